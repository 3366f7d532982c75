"""PartitionSets over real Shard objects: Partitions are created, kept and deleted with the labels of shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import TABLE, Api, Object, eventually, workspace_under
from harness.clients.exports import (
    EXPORTS,
    PATIENCE_S,
    SLICES,
    cluster_of,
    condition,
    export,
    identity_of,
    wait,
    wait_condition,
)

TOPOLOGY = "/apis/topology.kcp.io/v1alpha1"
SETS, PARTITIONS = f"{TOPOLOGY}/partitionsets", f"{TOPOLOGY}/partitions"
SHARDS = "/apis/core.kcp.io/v1alpha1/shards"


class Fleet:
    """Shard objects without processes, with labels that no other test uses."""

    def __init__(self, master: Api, mark: str) -> None:
        self._master, self._mark, self._names = master, mark, set[str]()
        self.region, self.tier = f"region-{mark}", f"tier-{mark}"

    def put(self, name: str, region: str, tier: str | None = "gold") -> None:
        full = f"{name}-{self._mark}"
        labels = {self.region: region, self.tier: tier}
        if full in self._names:
            self._master.patch(f"{SHARDS}/{full}", {"metadata": {"labels": labels}})
            return
        kind = {"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "spec": {"baseURL": f"https://{full}.example"}}
        given = {key: value for key, value in labels.items() if value is not None}
        self._master.post(SHARDS, {**kind, "metadata": {"name": full, "labels": given}})
        self._names.add(full)

    def remove(self, name: str) -> None:
        full = f"{name}-{self._mark}"
        self._master.delete(f"{SHARDS}/{full}")
        self._names.remove(full)

    def clear(self) -> None:
        for name in sorted(self._names):
            self._master.delete(f"{SHARDS}/{name}")


@pytest.fixture
def fleet(master: Api, provider: Api) -> Iterator[Fleet]:
    made = Fleet(master, cluster_of(provider))
    yield made
    made.clear()


def a_set(name: str, *dimensions: str, **selector: object) -> Object:
    spec: Object = {"dimensions": list(dimensions), **({"shardSelector": selector} if selector else {})}
    return {"apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "metadata": {"name": name}, "spec": spec}


def partitions(api: Api) -> list[Object]:
    return [dict(each) for each in api.get(PARTITIONS).json["items"]]


def selected(api: Api, *keys: str) -> list[tuple[str, ...]]:
    """The values of some labels that the Partitions select by, in order."""
    return sorted(tuple(each["spec"]["selector"]["matchLabels"][key] for key in keys) for each in partitions(api))


def test_partitions_follow_the_labels_of_shards(provider: Api, fleet: Fleet) -> None:
    fleet.put("a", "eu")
    fleet.put("b", "eu")
    fleet.put("c", "US_east", "tin")
    fleet.put("d", "ap", None)
    provider.post(SETS, a_set("zones", fleet.tier, fleet.region))
    found = wait(provider, f"{SETS}/zones", lambda obj: (obj.get("status") or {}).get("count") == 2)
    assert [(each["type"], each["status"]) for each in found["status"]["conditions"]] == [
        ("PartitionSetValid", "True"),
        ("PartitionsReady", "True"),
    ]
    assert selected(provider, fleet.region, fleet.tier) == [("US_east", "tin"), ("eu", "gold")]
    first = {each["spec"]["selector"]["matchLabels"][fleet.region]: each for each in partitions(provider)}
    owner = {
        "apiVersion": "topology.kcp.io/v1alpha1",
        "kind": "PartitionSet",
        "name": "zones",
        "uid": found["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for each in first.values():
        assert each["metadata"]["ownerReferences"] == [owner]
    assert first["eu"]["metadata"]["name"].startswith("zones-eu-gold-")
    assert first["US_east"]["metadata"]["name"].startswith("zones-us-east-tin-")

    fleet.put("d", "ap", "tin")
    wait(provider, f"{SETS}/zones", lambda obj: obj["status"]["count"] == 3)
    fleet.remove("c")
    wait(provider, f"{SETS}/zones", lambda obj: obj["status"]["count"] == 2)
    assert selected(provider, fleet.region, fleet.tier) == [("ap", "tin"), ("eu", "gold")]
    # One of two shards is deleted: its Partition still has a shard, and is the same object.
    fleet.remove("b")
    fleet.put("d", "eu")
    wait(provider, f"{SETS}/zones", lambda obj: obj["status"]["count"] == 1)
    assert [each["metadata"]["uid"] for each in partitions(provider)] == [first["eu"]["metadata"]["uid"]]


def test_a_set_that_changes_changes_its_partitions_and_takes_them_along_when_it_goes(
    provider: Api, fleet: Fleet
) -> None:
    fleet.put("a", "eu")
    fleet.put("b", "us", "tin")
    chosen = {"matchExpressions": [{"key": fleet.tier, "operator": "In", "values": ["gold"]}]}
    provider.post(SETS, a_set("zones", fleet.region, **chosen))
    wait(provider, f"{SETS}/zones", lambda obj: (obj.get("status") or {}).get("count") == 1)
    [only] = partitions(provider)
    assert only["spec"]["selector"] == {"matchLabels": {fleet.region: "eu"}, **chosen}
    # A Partition that a user changed or deleted is created again.
    provider.patch(f"{PARTITIONS}/{only['metadata']['name']}", {"spec": {"selector": {"matchLabels": {"x": "y"}}}})

    def recreated() -> bool:
        found = partitions(provider)
        return [each["spec"] for each in found] == [only["spec"]] and found[0]["metadata"] != only["metadata"]

    eventually(recreated, "a Partition in place of the one that was changed", PATIENCE_S)
    provider.delete(f"{PARTITIONS}/{partitions(provider)[0]['metadata']['name']}")
    eventually(recreated, "a Partition in place of the one that was deleted", PATIENCE_S)
    kind = {"apiVersion": "topology.kcp.io/v1alpha1", "kind": "Partition"}
    provider.post(PARTITIONS, {**kind, "metadata": {"name": "not-the-sets"}, "spec": {"selector": {}}})
    provider.patch(f"{SETS}/zones", {"spec": {"shardSelector": None}})
    wait(provider, f"{SETS}/zones", lambda obj: obj["status"]["count"] == 2)
    assert condition(provider.get(f"{SETS}/zones").json, "PartitionsReady")["status"] == "True"
    provider.delete(f"{SETS}/zones")
    eventually(
        lambda: [each["metadata"]["name"] for each in partitions(provider)] == ["not-the-sets"],
        "only its own went",
        PATIENCE_S,
    )


def test_a_shard_of_one_url_has_it_for_everything(master: Api, fleet: Fleet) -> None:
    fleet.put("a", "eu")
    [made] = master.get(f"{SHARDS}?labelSelector={fleet.region}").json["items"]
    url = made["spec"]["baseURL"]
    assert made["spec"] == {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url}
    path = f"{SHARDS}/{made['metadata']['name']}"
    other = master.patch(path, {"spec": {"virtualWorkspaceURL": "https://views.example", "externalURL": ""}}).json
    assert other["spec"] == {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": "https://views.example"}


def test_topology_is_told_in_columns(provider: Api, fleet: Fleet) -> None:
    fleet.put("a", "eu")
    provider.post(SETS, a_set("zones", fleet.region))
    wait(provider, f"{SETS}/zones", lambda obj: (obj.get("status") or {}).get("count") == 1)

    def columns(path: str) -> list[tuple[str, object]]:
        table = provider.get(path, accept=TABLE).json
        names = [each["name"] for each in table["columnDefinitions"]]
        return list(zip(names, table["rows"][0]["cells"], strict=True))[1:-1]

    assert columns(SETS) == [("Count", 1)]
    assert columns(PARTITIONS) == [("Owner", "zones")]


def test_a_workspace_that_goes_leaves_nothing_of_its_exports_and_partitions(
    admin: Api, master: Api, fleet: Fleet
) -> None:
    """Controllers recreate deleted objects, but not in a workspace that is being deleted."""
    path = workspace_under(admin, type_="universal")
    there, everywhere = admin.at(path), master.at("*")
    cluster, identity = cluster_of(there), identity_of(admin, "topology.kcp.io")
    for number in range(5):
        fleet.put(f"s{number}", f"r{number}")
    there.post(SETS, a_set("zones", fleet.region))
    for number in range(10):
        there.post(EXPORTS, export(f"e{number}"))
    wait_condition(there, f"{EXPORTS}/e9", "IdentityValid")
    wait(there, f"{SETS}/zones", lambda obj: (obj.get("status") or {}).get("count") == 5)
    workspace = f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{path.removeprefix('root:')}"
    admin.delete(workspace)
    eventually(lambda: admin.get(workspace, expect=0).code == 404, "the workspace is gone", PATIENCE_S)
    fleet.put("s5", "r5")
    left = [
        (where, each["metadata"]["name"])
        for where in (SLICES, EXPORTS, "/api/v1/secrets", "/api/v1/namespaces", f"{PARTITIONS}:{identity}")
        for each in everywhere.get(where).json["items"]
        if each["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    ]
    assert left == []


def test_a_selector_that_cannot_be_is_refused_where_it_is_written(provider: Api) -> None:
    for wrong in (
        {"matchExpressions": [{"key": "x", "operator": "Like", "values": ["y"]}]},
        {"matchExpressions": [{"key": "x", "operator": "In"}]},
        {"matchExpressions": [{"key": "x", "operator": "Exists", "values": ["y"]}]},
        {"matchLabels": {"no key!": "y"}},
        {"matchLabels": {f"k{number}": "v" for number in range(11)}},
    ):
        provider.post(SETS, a_set("wrong", "region", **wrong), expect=422)


@pytest.mark.parametrize("resource", ["partitions", "partitionsets"])
@pytest.mark.parametrize("key", ["k" * 64, "example.com/" + "k" * 64, "p" * 254 + "/k"])
def test_keys_of_shard_selectors_are_bounded_in_prefix_and_name(provider: Api, resource: str, key: str) -> None:
    kind, field = {"partitions": ("Partition", "selector"), "partitionsets": ("PartitionSet", "shardSelector")}[
        resource
    ]
    path = f"{TOPOLOGY}/{resource}"

    def body(name: str, selector: Object) -> Object:
        spec = {field: selector}
        return {"apiVersion": "topology.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    labels = {"matchLabels": {key: "a"}}
    expressions = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    for selector in (labels, expressions):
        assert f"spec.{field}" in provider.post(path, body("long", selector), expect=422).message
    provider.post(path, body("bounded", {"matchLabels": {"example.com/" + "k" * 63: "a"}}))
    for selector in (labels, expressions):
        provider.patch(f"{path}/bounded", {"spec": {field: selector}}, expect=422)
    provider.delete(f"{path}/bounded")
