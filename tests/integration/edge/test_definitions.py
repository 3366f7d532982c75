"""Workspaces define one kind with other schemas: the first definition stays, and the second takes over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, Object, crd, define, eventually
from integration.edge.placed import (
    PLACEMENTS,
    condition,
    inventory,
    is_projected,
    mailboxes,
    new_workload,
    place,
    workload,
)

pytestmark = pytest.mark.long

__all__ = ["inventory", "mailboxes", "workload"]

GROUP = "harbour.example.com"
FERRIES = f"/apis/{GROUP}/v1/namespaces/default/ferries"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ferries.harbour.example.com"


@pytest.fixture
def other(root: Api) -> Iterator[Api]:
    """A second workspace for workloads."""
    here = new_workload(root)
    yield here
    here.delete(PLACEMENTS)
    here.close()


def definition(*fields: str) -> Object:
    """A definition of ferries, whose spec has these fields."""
    found = crd("ferries", GROUP)
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = {field: {"type": "string"} for field in fields}
    del found["spec"]["versions"][0]["subresources"]["scale"]
    return found


def ferry(name: str, **spec: str) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Ferrie", "metadata": {"name": name}, "spec": spec}


def fields_of(box: Api) -> set[str]:
    version = box.get(DEFINITION).json["spec"]["versions"][0]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def spec(box: Api, name: str) -> Any:
    found = box.send("GET", f"{FERRIES}/{name}")
    return found.json["spec"] if found.code == 200 else None


def contested(api: Api) -> str:
    return str(condition(api, "p", "Conflicting").get("message", ""))


def test_the_first_of_two_definitions_stays_what_fits_it_goes_along_and_the_second_takes_over(
    workload: Api, other: Api, mailboxes: dict[str, Api]
) -> None:
    box = mailboxes["one"]
    define(workload, definition("hull", "deck"))
    workload.post(FERRIES, ferry("first", hull="x", deck="y"))
    place(workload, "p", {"env": "one"}, {"apiGroup": GROUP})
    eventually(lambda: spec(box, "first") == {"hull": "x", "deck": "y"}, "the first")
    eventually(lambda: is_projected(workload, "p"), "all of it")
    define(other, definition("hull", "mast"))
    other.post(FERRIES, ferry("fits", hull="z"))
    other.post(FERRIES, ferry("differs", mast="m"))
    place(other, "p", {"env": "one"}, {"apiGroup": GROUP})
    eventually(lambda: spec(box, "fits") == {"hull": "z"}, "what fits goes along")
    first = workload.get("/api/v1/namespaces/default").json["metadata"]["annotations"]["kcp.io/cluster"]
    name, rest = f"customresourcedefinitions.apiextensions.k8s.io ferries.{GROUP}", f"ferries.{GROUP} default/differs"
    eventually(lambda: f"{name}: spec of workspace {first}" in contested(other), "the definitions are in conflict")
    eventually(lambda: f"{rest}: definition of workspace {first}" in contested(other), "the rest")
    eventually(lambda: f"{name}: spec of workspace {first}" in contested(workload), "the first one is told too")
    assert spec(box, "differs") is None
    assert fields_of(box) == {"hull", "deck"}, "the definition that came first"
    other.patch(DEFINITION, {"metadata": {"labels": {"edited": "yes"}}})
    eventually(lambda: box.get(DEFINITION).json["metadata"]["labels"].get("edited") == "yes", "a later edit")
    assert fields_of(box) == {"hull", "deck"}, "does not replace it"
    kept = box.get(f"{FERRIES}/fits").json["metadata"]
    workload.delete(f"{PLACEMENTS}/p")
    eventually(lambda: fields_of(box) == {"hull", "mast"}, "the second definition takes over")
    eventually(lambda: spec(box, "differs") == {"mast": "m"}, "and what fits that")
    eventually(lambda: spec(box, "first") is None, "what the first one sent is withdrawn")
    after = box.get(f"{FERRIES}/fits").json["metadata"]
    assert (after["uid"], after["resourceVersion"]) == (kept["uid"], kept["resourceVersion"]), "no copy was made anew"
    eventually(lambda: condition(other, "p", "Conflicting") == {}, "without a conflict")
    eventually(lambda: is_projected(other, "p"), "all is there")
