"""Several workspaces send the same object to one cluster: it is merged, and what they do not agree on is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import CRDS, Api, configmap, crd, define, eventually
from harness.servers.edge_service import GROUP, EdgeControllers
from integration.edge.placed import (
    BUILT_IN,
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    PLACEMENTS,
    condition,
    data,
    inventory,
    is_projected,
    listed,
    mailboxes,
    new_workload,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

PLURAL, _, BUILT_GROUP = BUILT_IN.partition(".")
SHARED = f"{CONFIGMAPS}/shared"


@pytest.fixture
def other(root: Api) -> Iterator[Api]:
    """A second workspace for workloads."""
    here = new_workload(root)
    yield here
    here.delete(PLACEMENTS)
    here.close()


def cluster_of(api: Api) -> str:
    found = api.get("/api/v1/namespaces/default").json["metadata"]["annotations"]["kcp.io/cluster"]
    return str(found)


def conflict(api: Api) -> str:
    return str(condition(api, "p", "Conflicting").get("message", ""))


def warnings(api: Api) -> set[tuple[str, str]]:
    """Messages about conflicts, with the objects that they are about."""
    found = api.get("/api/v1/namespaces/default/events").json["items"]
    rows = [each for each in found if each["reason"] == "WorkloadConflict"]
    return {(each["involvedObject"]["name"], each["message"]) for each in rows}


def touch(api: Api, box: Api, name: str) -> None:
    """Change what is not propagated of the object, and wait until that was read."""
    api.patch(SHARED, {"metadata": {"annotations": {"kubestellar.io/executing-count": name}}})
    api.post(CONFIGMAPS, configmap(name, {"k": "1"}))
    eventually(lambda: data(box, f"{CONFIGMAPS}/{name}") == {"k": "1"}, "what came after it")


@pytest.mark.long
def test_data_is_merged_the_last_change_counts_and_a_conflict_is_said_until_it_ends(
    workload: Api, other: Api, mailboxes: dict[str, Api], controllers: EdgeControllers
) -> None:
    box, first, second = mailboxes["one"], cluster_of(workload), cluster_of(other)
    expanded = {"edge.kubestellar.io/expand-parameters": "true"}
    for api, key, notes in ((workload, "a", expanded), (other, "b", {})):
        content = {key: "%(env)", "both": key}
        api.post(CONFIGMAPS, configmap("shared", content, labels={key: "yes"}, annotations=notes))
        api.post("/api/v1/namespaces", {"metadata": {"name": "team", "labels": {key: "yes"}}})
        api.post("/api/v1/namespaces/team/configmaps", configmap(key, {"k": "1"}))
    spaces = {"apiGroup": "", "resources": ["namespaces"], "objectNames": ["team"]}
    place(workload, "p", {"env": "one"}, CONFIGMAPS_OF_ALL, spaces)
    place(other, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    keys = {"a": "one", "b": "%(env)"}
    eventually(
        lambda: data(box, SHARED) == {**keys, "both": "b"}, "the keys of both, each customized, and the last value"
    )
    labels = box.get(SHARED).json["metadata"]["labels"]
    assert {"a": "yes", "b": "yes"}.items() <= labels.items()
    names = sorted([first, second])
    assert box.get(SHARED).json["metadata"]["annotations"]["edge.kubestellar.io/sources"] == ",".join(names)
    eventually(lambda: data(box, "/api/v1/namespaces/team/configmaps/b") == {"k": "1"}, "an object in the Namespace")
    eventually(lambda: box.get("/api/v1/namespaces/team").json["metadata"]["labels"].get("a") == "yes", "its label")
    assert "b" not in box.get("/api/v1/namespaces/team").json["metadata"]["labels"], "it is not selected"
    text = "data[both] is not the same in all workspaces that send it: that of {} counts"
    for api in (workload, other):
        wanted = f"configmaps default/shared: data[both] of workspace {second}"
        eventually(lambda: conflict(api) == wanted, "the condition")  # noqa: B023
        eventually(lambda: warnings(api) == {("shared", text.format(second))}, "the Event")  # noqa: B023
        eventually(lambda: is_projected(api, "p"), "what is merged is there")  # noqa: B023
    touch(workload, box, "mark-1")
    assert data(box, SHARED) == {**keys, "both": "b"}, "what is not propagated is no change"
    before = box.get(SHARED).json["metadata"]["resourceVersion"]
    controllers.stop()
    controllers.start()
    touch(workload, box, "mark-2")
    assert data(box, SHARED) == {**keys, "both": "b"}, "also after a restart"
    assert box.get(SHARED).json["metadata"]["resourceVersion"] == before
    workload.patch(SHARED, {"data": {"both": "new"}})
    eventually(lambda: data(box, SHARED) == {**keys, "both": "new"}, "a change of the first")
    eventually(lambda: ("shared", text.format(first)) in warnings(other), "the Event names it")
    other.patch(SHARED, {"data": {"both": "new"}})
    for api in (workload, other):
        eventually(lambda: condition(api, "p", "Conflicting") == {}, "they agree")  # noqa: B023
    by = "edge.kubestellar.io/customizer"
    workload.patch(SHARED, {"metadata": {"annotations": {by: "lost"}}, "data": {"a": "unsent"}})
    missing = "Customizer default/lost is not there"
    eventually(lambda: missing in condition(workload, "p").get("message", ""), "what cannot be rendered is told")
    other.patch(SHARED, {"data": {"b": "sent"}})
    beside = {"a": "one", "b": "sent", "both": "new"}
    eventually(lambda: data(box, SHARED) == beside, "the other goes on beside its last rendering")
    controllers.stop()
    controllers.start()
    other.patch(SHARED, {"data": {"b": "%(env)"}})
    eventually(lambda: data(box, SHARED) == {**keys, "both": "new"}, "after a restart too")
    assert missing in condition(workload, "p")["message"]
    workload.patch(
        SHARED, {"metadata": {"annotations": {"edge.kubestellar.io/customizer": None}}, "data": {"a": "%(env)"}}
    )
    eventually(lambda: is_projected(workload, "p"), "it can be rendered")
    other.patch(SHARED, {"data": {"both": "last"}})
    eventually(lambda: data(box, SHARED) == {**keys, "both": "last"}, "another conflict")
    eventually(lambda: conflict(workload), "the condition is back")
    other.delete(SHARED)
    eventually(
        lambda: data(box, SHARED) == {"a": "one", "both": "new"}, "without the one that counts the next one does"
    )
    eventually(lambda: condition(workload, "p", "Conflicting") == {}, "alone")


def serve(api: Api, *served: str) -> None:
    """Serve versions; v1, in which objects are stored, is there anyway."""
    (first,) = crd(PLURAL, BUILT_GROUP)["spec"]["versions"]
    rows = [
        {**first, "name": name, "storage": name == "v1", "served": name in served}
        for name in {"v1": 0} | dict.fromkeys(served)
    ]
    api.patch(f"{CRDS}/{BUILT_IN}", {"spec": {"versions": rows}})


def versions_of(box: Api) -> Any:
    """The version in the list, and the choice in its annotation."""
    config = box.get(f"{GROUP}/syncerconfigs/the-one").json
    rows = [
        each["apiVersion"] for each in config["spec"].get("namespacedObjects") or () if each["group"] == BUILT_GROUP
    ]
    return rows, config["metadata"]["annotations"].get("edge.kubestellar.io/versions", "")


@pytest.mark.long
def test_workspaces_that_serve_other_versions_agree_on_one_through_upgrades_and_rollbacks(
    workload: Api, other: Api, mailboxes: dict[str, Api], controllers: EdgeControllers
) -> None:
    box = mailboxes["two"]
    for api in (workload, other, box):
        define(api, crd(PLURAL, BUILT_GROUP))
    serve(box, "v1", "v2", "v3")
    serve(other, "v1", "v2")
    gauges = f"/apis/{BUILT_GROUP}/v1/namespaces/default/{PLURAL}"
    for api, name in ((workload, "a"), (other, "b")):
        api.post(gauges, {"apiVersion": f"{BUILT_GROUP}/v1", "kind": "Gauge", "metadata": {"name": name}, "spec": {}})
        place(api, "p", {"env": "two"}, {"apiGroup": BUILT_GROUP})

    def agreed(version: str) -> Any:
        return versions_of(box) == ([version], f"{BUILT_GROUP}={version}")

    eventually(lambda: agreed("v1"), "what both serve")
    eventually(lambda: len(listed(box)["namespacedObjects"][0]["objectsByNamespace"][0]["names"]) == 2, "both objects")
    serve(workload, "v1", "v2")
    eventually(lambda: agreed("v2"), "both prefer the new one")
    serve(workload, "v1")
    eventually(lambda: agreed("v1"), "rolled back")
    serve(workload, "v1", "v4")
    serve(other, "v1", "v5")
    eventually(lambda: agreed("v1"), "nothing else in common")
    serve(workload, "v1", "v2", "v4")
    serve(other, "v1", "v2", "v5")
    controllers.stop()
    controllers.start()
    other.patch(f"{gauges}/b", {"spec": {"colour": "red"}})
    eventually(lambda: box.get(f"{gauges}/b").json["spec"].get("colour") == "red", "it goes on")
    assert agreed("v1"), "a choice stays while it is possible, over a restart too"
    serve(workload, "v1", "v2")
    serve(other, "v3")
    text = f"has v3 of {BUILT_GROUP}, and no version of this workspace"
    eventually(lambda: versions_of(box)[1] == f"{BUILT_GROUP}=v3", "the one with the lowest versions leaves")
    eventually(lambda: text in condition(workload, "p").get("message", ""), "its objects are reported")
    eventually(lambda: "apiVersion of workspace" in conflict(workload), "as a conflict")
    assert box.send("GET", f"{gauges}/a").code == 200, "their last copy stays"
    serve(workload, "v3", "v1")
    eventually(lambda: agreed("v3"), "it is back")
    eventually(lambda: condition(workload, "p", "Conflicting") == {}, "without a conflict")
    eventually(lambda: is_projected(workload, "p"), "all is there")
