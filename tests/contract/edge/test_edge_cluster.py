"""What a syncer needs of a cluster: a workspace has it, and so have plain clusters (the long tier)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import APPLY, CRDS, Api, Object, configmap, crd, define, eventually, workspace_under
from harness.servers.edge_cluster import NEWER, OLDER, USUAL, EdgeCluster
from harness.servers.shard_process import ShardProcess

NAMESPACES, GROUP = "/api/v1/namespaces", "shapes.example.com"
LABEL = "downsynced-by"


_PLAIN = [pytest.param(version, marks=pytest.mark.long) for version in (USUAL, OLDER, NEWER)]


@pytest.fixture(scope="module", params=["workspace", *_PLAIN])
def edge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An administrator of the cluster."""
    directory = tmp_path_factory.mktemp("edge")
    if request.param == "workspace":
        with ShardProcess(directory) as shard:
            root = Api(shard, "root")
            yield root.at(workspace_under(root))
    else:
        with EdgeCluster(directory, request.param) as cluster:
            yield Api(cluster)


@pytest.fixture
def namespace(edge: Api) -> Iterator[str]:
    """The path of ConfigMaps in a Namespace of the test."""
    metadata = {"generateName": "n-"}
    made = edge.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).json
    name = made["metadata"]["name"]
    yield f"{NAMESPACES}/{name}/configmaps"
    edge.delete(f"{NAMESPACES}/{name}")


def apply(edge: Api, path: str, obj: Object, manager: str = "syncer", force: str = "true", expect: int = 200) -> Object:
    """Apply an object; return the answer."""
    query = f"fieldManager={manager}&force={force}"
    found: Object = edge.send("PATCH", f"{path}?{query}", obj, kind=APPLY, expect=expect).json
    return found


def test_an_apply_creates_with_201_and_one_that_changes_nothing_keeps_the_revision(edge: Api, namespace: str) -> None:
    wanted = configmap("c", {"a": "1"}, labels={LABEL: "me"})
    first = apply(edge, f"{namespace}/c", wanted, expect=201)
    assert apply(edge, f"{namespace}/c", wanted)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    entry = first["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("syncer", "Apply")
    changed = apply(edge, f"{namespace}/c", configmap("c", {"b": "2"}))
    assert changed["data"] == {"b": "2"}
    assert LABEL not in changed["metadata"].get("labels", {})


def test_an_apply_leaves_the_fields_of_others_and_takes_its_own_back_by_force(edge: Api, namespace: str) -> None:
    apply(edge, f"{namespace}/c", configmap("c", {"ours": "1"}), expect=201)
    apply(edge, f"{namespace}/c", configmap("c", {"theirs": "1", "ours": "2"}), manager="other")
    refused = apply(edge, f"{namespace}/c", configmap("c", {"ours": "1"}), force="false", expect=409)
    assert refused["reason"] == "Conflict"
    assert apply(edge, f"{namespace}/c", configmap("c", {"ours": "1"}))["data"] == {"ours": "1", "theirs": "1"}


def test_an_update_of_an_older_revision_is_a_409(edge: Api, namespace: str) -> None:
    first = edge.post(namespace, configmap("c", {"a": "1"})).json
    edge.put(f"{namespace}/c", {**first, "data": {"a": "2"}})
    refused = edge.put(f"{namespace}/c", {**first, "data": {"a": "3"}}, expect=409)
    assert refused.json["reason"] == "Conflict"


def test_what_is_invalid_is_a_422_with_the_field(edge: Api, namespace: str) -> None:
    wrong = configmap("c", {"not a key": "1"})
    refused = apply(edge, f"{namespace}/c", wrong, expect=422)
    assert refused["reason"] == "Invalid"
    assert refused["details"]["causes"][0]["field"].startswith("data")


def test_a_deletion_names_the_uid_and_the_revision_that_it_means(edge: Api, namespace: str) -> None:
    made = edge.post(namespace, configmap("c")).json["metadata"]
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    for wrong in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}):
        edge.delete(f"{namespace}/c", {**options, "preconditions": wrong}, expect=409)
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    edge.delete(f"{namespace}/c", {**options, "preconditions": right})
    edge.get(f"{namespace}/c", expect=404)


def test_an_object_with_a_finalizer_stays_under_deletion_until_it_is_taken_off(edge: Api, namespace: str) -> None:
    edge.post(namespace, configmap("c", finalizers=["example.com/hold"]))
    edge.delete(f"{namespace}/c")
    assert "deletionTimestamp" in edge.get(f"{namespace}/c").json["metadata"]
    edge.patch(f"{namespace}/c", {"metadata": {"finalizers": None}})
    edge.get(f"{namespace}/c", expect=404)


def test_a_namespace_takes_what_is_in_it_along(edge: Api) -> None:
    edge.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})
    edge.post(f"{NAMESPACES}/going/configmaps", configmap("c"))
    edge.delete(f"{NAMESPACES}/going")
    eventually(lambda: edge.get(f"{NAMESPACES}/going", expect=0).code == 404, "the Namespace is gone")
    assert edge.get(f"{NAMESPACES}/going/configmaps").json["items"] == []


def test_a_watch_by_label_begins_after_a_list_and_resumes_from_a_revision(edge: Api, namespace: str) -> None:
    edge.post(namespace, configmap("before", labels={LABEL: "me"}))
    selected = f"{namespace}?labelSelector={LABEL}%3Dme"
    listed = edge.get(f"{selected}&limit=1").json
    assert [each["metadata"]["name"] for each in listed["items"]] == ["before"]
    edge.post(namespace, configmap("other"))
    edge.post(namespace, configmap("after", labels={LABEL: "me"}))
    since = f"{selected}&watch=true&allowWatchBookmarks=true&resourceVersion={listed['metadata']['resourceVersion']}"
    with edge.watch(since) as events:
        added = events.until("ADDED")
        assert added.name == "after"
        edge.patch(f"{namespace}/after", {"metadata": {"labels": {LABEL: None}}})
        gone = events.until("DELETED")
    assert gone.name == "after"
    assert edge.get(f"{namespace}/after").json["metadata"]["resourceVersion"] == str(gone.revision)


def test_a_definition_is_established_served_and_taken_away_with_its_objects(edge: Api) -> None:
    define(edge, crd("squares"))
    found = eventually(lambda: conditions(edge, f"squares.{GROUP}").get("Established") == "True", "established")
    assert found
    resources = {each["name"]: each for each in edge.get(f"/apis/{GROUP}/v1").json["resources"]}
    assert {"squares", "squares/status"} <= set(resources)
    path = f"/apis/{GROUP}/v1/namespaces/default/squares"
    square: Object = {"apiVersion": f"{GROUP}/v1", "kind": "Square", "metadata": {"name": "s"}, "spec": {"replicas": 2}}
    made = apply(edge, f"{path}/s", square, expect=201)
    reported = {key: square[key] for key in ("apiVersion", "kind", "metadata")} | {"status": {"replicas": 2}}
    status = apply(edge, f"{path}/s/status", {**reported, "spec": {"replicas": 9}}, manager="controller")
    assert (status["spec"]["replicas"], status["status"]) == (2, {"replicas": 2})
    assert status["metadata"]["generation"] == made["metadata"]["generation"]
    wrong = {**square, "metadata": {"name": "wrong"}, "spec": {"replicas": "two"}}
    refused = edge.post(path, wrong, expect=422).json
    assert refused["details"]["causes"][0]["field"] == "spec.replicas"
    edge.delete(f"{CRDS}/squares.{GROUP}")
    eventually(lambda: edge.get(path, expect=0).code == 404, "the kind is gone")


def conditions(edge: Api, name: str) -> dict[str, str]:
    """The conditions of a definition."""
    status = edge.get(f"{CRDS}/{name}").json.get("status", {})
    return {each["type"]: each["status"] for each in status.get("conditions", [])}
