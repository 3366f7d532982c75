"""Definitions of three versions in three workspaces, upgraded and rolled back one workspace after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from harness.clients.api import CRDS, Api, Object, crd, define, eventually
from harness.servers.edge_service import GROUP, EdgeControllers
from integration.edge.placed import (
    BUILT_IN,
    PLACEMENTS,
    condition,
    inventory,
    is_projected,
    listed,
    mailboxes,
    new_workload,
    place,
)

__all__ = ["inventory", "mailboxes"]

PLURAL, _, BUILT_GROUP = BUILT_IN.partition(".")
NAMES = ("a", "b", "c")
#: Who serves what from now on, and what they agree on then, as the rules say it.
UPGRADES = (
    ("a", "v1 v2", "v1"),
    ("b", "v1 v2", "v1"),
    ("c", "v1 v2", "v2"),
    ("c", "v1 v2 v3", "v2"),
    ("a", "v2 v3", "v2"),
    ("b", "v2 v3", "v3"),
)
ROLLBACKS = (("c", "v1 v2", "v2"), ("a", "v1 v2", "v2"), ("b", "v1", "v1"), ("a", "v1", "v1"), ("c", "v1", "v1"))


@pytest.fixture
def workspaces(root: Api) -> Iterator[dict[str, Api]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(new_workload(root))) for name in NAMES}


def path(version: str, name: str = "") -> str:
    return f"/apis/{BUILT_GROUP}/{version}/namespaces/default/{PLURAL}/{name}".rstrip("/")


def serve(api: Api, text: str) -> None:
    """Serve versions; v1, in which objects are stored, is there anyway."""
    served = text.split()
    (first,) = crd(PLURAL, BUILT_GROUP)["spec"]["versions"]
    rows = [
        {**first, "name": name, "storage": name == "v1", "served": name in served}
        for name in dict.fromkeys(("v1", *served))
    ]
    api.patch(f"{CRDS}/{BUILT_IN}", {"spec": {"versions": rows}})


def versions(box: Api) -> tuple[list[str], str]:
    """Versions in the list, and the choice in its annotation."""
    config: Object = box.get(f"{GROUP}/syncerconfigs/the-one").json
    rows = config["spec"].get("namespacedObjects") or ()
    choice = config["metadata"]["annotations"].get("edge.kubestellar.io/versions", "")
    return [each["apiVersion"] for each in rows if each["group"] == BUILT_GROUP], choice


def listed_names(box: Api) -> list[str]:
    rows = listed(box).get("namespacedObjects") or ()
    return [
        name
        for row in rows
        if row["group"] == BUILT_GROUP
        for each in row["objectsByNamespace"]
        for name in each["names"]
    ]


def fill(workspaces: dict[str, Api], box: Api, environment: str) -> None:
    """Have an object of each workspace in a mailbox, which serves all versions."""
    for api in (*workspaces.values(), box):
        define(api, crd(PLURAL, BUILT_GROUP))
    serve(box, "v1 v2 v3")
    for name, api in workspaces.items():
        api.post(
            path("v1"), {"apiVersion": f"{BUILT_GROUP}/v1", "kind": "Gauge", "metadata": {"name": name}, "spec": {}}
        )
        place(api, "p", {"env": environment}, {"apiGroup": BUILT_GROUP})
    eventually(lambda: listed_names(box) == list(NAMES), "all three are listed", 60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_choice_follows_each_step_stays_over_restarts_and_no_copy_is_made_anew(
    workspaces: dict[str, Api], mailboxes: dict[str, Api], controllers: EdgeControllers
) -> None:
    box = mailboxes["one"]
    fill(workspaces, box, "one")
    uids = {name: box.get(path("v1", name)).json["metadata"]["uid"] for name in NAMES}

    def step(name: str, served: str, wanted: str) -> None:
        """One workspace serves other versions; all of its group follow and an edit arrives."""
        serve(workspaces[name], served)
        eventually(lambda: versions(box)[0] == [wanted], f"{name} serves {served}: they agree on {wanted}", 60)
        edited = served.split(maxsplit=1)[0]
        workspaces[name].patch(path(edited, name), {"spec": {"colour": f"{served} {wanted}"}})
        colour = f"{served} {wanted}"
        eventually(lambda: box.get(path("v1", name)).json["spec"].get("colour") == colour, "an edit arrives", 60)
        eventually(lambda: all(is_projected(api, "p") for api in workspaces.values()), "all is there", 60)
        assert versions(box)[0] == [wanted]
        assert {each: box.get(path("v1", each)).json["metadata"]["uid"] for each in NAMES} == uids

    for name, served, wanted in UPGRADES:
        step(name, served, wanted)
    assert versions(box)[1] == f"{BUILT_GROUP}=v3"
    for name, served, wanted in ROLLBACKS:
        controllers.stop()
        serve(workspaces[name], served)
        controllers.start()
        step(name, served, wanted)
    eventually(lambda: versions(box)[1] == "", "one version is no choice", 60)
    for number, name in enumerate(NAMES):
        serve(workspaces[name], f"v1 v2 v{4 + number}")
    eventually(
        lambda: versions(box) == (["v2"], f"{BUILT_GROUP}=v2") or versions(box) == (["v1"], f"{BUILT_GROUP}=v1"),
        "one that all have",
        60,
    )
    chosen = versions(box)
    controllers.stop()
    controllers.start()
    workspaces["b"].patch(path("v1", "b"), {"spec": {"colour": "last"}})
    eventually(lambda: box.get(path("v1", "b")).json["spec"].get("colour") == "last", "it goes on", 60)
    assert versions(box) == chosen, "the choice is kept over a restart"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_workspaces_without_a_common_version_leave_from_the_lowest_on_and_their_copies_stay(
    workspaces: dict[str, Api], mailboxes: dict[str, Api]
) -> None:
    box = mailboxes["two"]
    fill(workspaces, box, "two")
    serve(workspaces["c"], "v3")
    eventually(lambda: versions(box)[1] == f"{BUILT_GROUP}=v3", "a and b have v1 alone", 60)
    serve(workspaces["b"], "v2")
    text = f"has v3 of {BUILT_GROUP}, and no version of this workspace"
    for name in ("a", "b"):
        told = workspaces[name]
        eventually(lambda: text in condition(told, "p").get("message", ""), f"{name} is told", 60)  # noqa: B023
        workspaces[name].patch(path("v2" if name == "b" else "v1", name), {"spec": {"colour": "unsent"}})
    serve(workspaces["a"], "v3 v1")
    eventually(lambda: is_projected(workspaces["a"], "p"), "a serves it, too", 60)
    eventually(lambda: box.get(path("v3", "a")).json["spec"].get("colour") == "unsent", "its edit arrives", 60)
    assert box.get(path("v3", "b")).json["spec"].get("colour") is None, "the last copy of b stays"
    serve(workspaces["b"], "v1 v2 v3")
    eventually(lambda: all(is_projected(api, "p") for api in workspaces.values()), "all are back", 60)
    assert box.get(path("v3", "b")).json["spec"].get("colour") == "unsent"
    for api in workspaces.values():
        api.delete(f"{PLACEMENTS}/p")
    eventually(lambda: box.get(path("v3")).json["items"] == [], "all is withdrawn", 60)
