"""Copies are written and listed at a version that their workspace and their mailbox serve."""

from __future__ import annotations

from typing import Any

from harness.clients.api import CRDS, Api, crd, define, eventually
from integration.edge.placed import (
    BUILT_IN,
    PLACEMENTS,
    condition,
    inventory,
    is_projected,
    listed,
    mailboxes,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

PLURAL, _, GROUP = BUILT_IN.partition(".")
DEFINITION = crd(PLURAL, GROUP)


def at(version: str) -> str:
    return f"/apis/{GROUP}/{version}/namespaces/default/{PLURAL}"


def serve(api: Api, *served: str) -> None:
    """Serve versions; v1, in which objects are stored, is there anyway."""
    (first,) = DEFINITION["spec"]["versions"]
    rows = [
        {**first, "name": name, "storage": name == "v1", "served": name in served}
        for name in {"v1": 0} | dict.fromkeys(served)
    ]
    api.patch(f"{CRDS}/{BUILT_IN}", {"spec": {"versions": rows}})


def listed_at(api: Api) -> Any:
    (row,) = listed(api).get("namespacedObjects") or [{}]
    return row.get("apiVersion")


def colour(api: Api, version: str) -> Any:
    found = api.send("GET", f"{at(version)}/a")
    return found.json["spec"].get("colour") if found.code == 200 else None


def test_a_copy_has_the_first_version_of_its_workspace_that_its_mailbox_serves(
    workload: Api, mailboxes: dict[str, Api]
) -> None:
    box = mailboxes["one"]
    for api in (workload, box):
        define(api, DEFINITION)
    head = {"apiVersion": f"{GROUP}/v1", "kind": "Gauge", "metadata": {"name": "a"}}
    workload.post(at("v1"), {**head, "spec": {"colour": "red"}})
    place(workload, "p", {"env": "one"}, {"apiGroup": GROUP})
    eventually(lambda: listed_at(box) == "v1", "the copy is listed")
    serve(workload, "v1", "v2")
    workload.patch(f"{at('v2')}/a", {"spec": {"colour": "green"}})
    eventually(lambda: colour(box, "v1") == "green", "a change of an object that is read at a version of its mailbox")
    eventually(lambda: is_projected(workload, "p"), "nothing is missing")
    assert listed_at(box) == "v1"
    serve(box, "v1", "v2")
    eventually(lambda: listed_at(box) == "v2", "the mailbox serves what the workspace prefers")
    serve(box, "v3")
    text = f"the workspace serves {BUILT_IN} at v2, v1, the mailbox at v3"
    eventually(lambda: text in condition(workload, "p").get("message", ""), "no version is served by both")
    assert condition(workload, "p")["reason"] == "ObjectsRefused"
    assert colour(box, "v3") == "green", "the last copy stays"
    serve(workload, "v3", "v1")
    eventually(lambda: listed_at(box) == "v3", "the workspace serves it too")
    eventually(lambda: is_projected(workload, "p"), "all is well")
    serve(box, "v1")
    workload.delete(f"{PLACEMENTS}/p")
    eventually(lambda: box.send("GET", f"{at('v1')}/a").code == 404, "withdrawn at the version that is served now")
