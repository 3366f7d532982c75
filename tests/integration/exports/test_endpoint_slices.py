"""Endpoint slices: the shard's URL is listed while an APIBinding of the shard exists, and references are validated."""

from __future__ import annotations

import json

from harness.clients.api import APPLY, Api, Object
from harness.clients.exports import (
    EXPORTS,
    SLICES,
    bind,
    cluster_of,
    condition,
    export,
    make_export,
    schema,
    unbind,
    wait,
    wait_condition,
)
from harness.clients.tenants import allow

PARTITIONS = "/apis/topology.kcp.io/v1alpha1/partitions"
SHARD = "/apis/core.kcp.io/v1alpha1/shards/root"


def urls(obj: Object) -> list[str]:
    return [each["url"] for each in (obj.get("status") or {}).get("endpoints") or []]


def endpoint(api: Api, name: str) -> str:
    return f"{api.shard.url}/services/apiexport/{cluster_of(api)}/{name}"


def a_slice(name: str, path: str = "", export: str = "shapes", partition: str = "") -> Object:
    spec: Object = {"export": {"name": export, **({"path": path} if path else {})}}
    if partition:
        spec["partition"] = partition
    kind = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def a_partition(name: str, **labels: str) -> Object:
    kind = {"apiVersion": "topology.kcp.io/v1alpha1", "kind": "Partition"}
    return {**kind, "metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}}}


def valid(api: Api, name: str) -> Object:
    return wait_condition(api, f"{SLICES}/{name}", "PartitionValid")


def has(api: Api, name: str, *wanted: str) -> Object:
    """Return the slice once it has these endpoints."""
    return wait(api, f"{SLICES}/{name}", lambda obj: urls(obj) == list(wanted))


def test_a_slice_stands_by_itself_and_has_the_shard_while_somebody_binds(provider: Api, consumer: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    plain, uid = valid(provider, "shapes"), made["metadata"]["uid"]
    owner = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "name": "shapes", "uid": uid}
    assert plain["metadata"]["ownerReferences"] == [owner]
    assert "labels" not in plain["metadata"]
    assert plain["spec"] == {"export": {"path": provider.cluster, "name": "shapes"}}
    conditions = plain["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [
        ("APIExportValid", "True"),
        ("PartitionValid", "True"),
    ]
    assert plain["status"] == {"shardSelector": "", "conditions": conditions}
    bind(consumer, provider.cluster, "shapes")
    bind(provider, provider.cluster, "shapes")
    found = has(provider, "shapes", endpoint(provider, "shapes"))
    assert found["status"] == {**plain["status"], "endpoints": [{"url": endpoint(provider, "shapes")}]}
    unbind(consumer, "shapes")
    assert urls(provider.get(f"{SLICES}/shapes").json) == [endpoint(provider, "shapes")]
    unbind(provider, "shapes")
    assert has(provider, "shapes")["status"] == plain["status"]


def test_each_slice_of_an_export_has_the_shard_wherever_it_is_and_however_it_says_it(
    provider: Api, consumer: Api, admin: Api
) -> None:
    make_export(provider, "shapes", schema("circles"))
    provider.post(SLICES, a_slice("own"))
    consumer.post(SLICES, a_slice("by-path", provider.cluster))
    consumer.post(SLICES, a_slice("shapes", cluster_of(provider)))
    provider.post(SLICES, {**a_slice(""), "metadata": {"generateName": "some-"}})
    generated = next(each for each in provider.get(SLICES).json["items"] if each["metadata"]["name"][:5] == "some-")
    everywhere = [
        (provider, "shapes"),
        (provider, "own"),
        (consumer, "by-path"),
        (consumer, "shapes"),
        (provider, generated["metadata"]["name"]),
    ]
    for api, name in everywhere:
        assert urls(valid(api, name)) == []
    bind(consumer, provider.cluster, "shapes")
    for api, name in everywhere:
        has(api, name, endpoint(provider, "shapes"))
    # A later slice finds the existing bindings.
    provider.post(SLICES, a_slice("late"))
    has(provider, "late", endpoint(provider, "shapes"))
    # The author of a slice cannot remove the label that selects it.
    consumer.patch(f"{SLICES}/by-path", {"metadata": {"labels": {"internal.apis.kcp.io/export-endpoints": None}}})
    unbind(consumer, "shapes")
    for api, name in [*everywhere, (provider, "late")]:
        has(api, name)


def test_who_may_not_bind_an_export_gets_no_slice_and_does_not_learn_whether_it_exists(
    provider: Api, consumer: Api
) -> None:
    make_export(provider, "shapes", schema("circles"))
    allow(consumer, "enters", "bob", nonResourceURLs=["/"], verbs=["access"])
    allow(consumer, "slices", "bob", apiGroups=["apis.kcp.io"], resources=["apiexportendpointslices"], verbs=["*"])
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")

    def refused(path: str, name: str) -> str:
        text = bob.post(SLICES, a_slice("s", path, name), expect=403).message
        said = f"unable to create APIExportEndpointSlice: no permission to bind to export {path}:{name}"
        assert text.endswith(said), text
        return text

    for name in ("shapes", "nothing"):
        refused(provider.cluster, name)
        refused("root:nowhere", name)
    allow(
        provider,
        "binds",
        "bob",
        apiGroups=["apis.kcp.io"],
        resources=["apiexports"],
        verbs=["bind"],
        resourceNames=["shapes"],
    )
    bob.post(SLICES, a_slice("s", provider.cluster))
    wrong = {"spec": {"export": {"path": "root", "name": "tenancy.kcp.io"}}}
    assert "APIExport reference must not be changed" in bob.patch(f"{SLICES}/s", wrong, expect=422).message


def test_a_partition_says_which_shards_are_meant(provider: Api, consumer: Api, master: Api) -> None:
    label = f"zone-of-{cluster_of(provider)}"
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    provider.post(SLICES, a_slice("zoned", partition="zone"))
    found = wait_condition(provider, f"{SLICES}/zoned", "PartitionValid", "False", "PartitionInvalidReference")
    assert (urls(found), condition(found, "PartitionValid")["severity"]) == ([], "Error")
    assert condition(found, "APIExportValid")["status"] == "True"
    provider.post(PARTITIONS, a_partition("zone", **{label: "west"}))
    assert valid(provider, "zoned")["status"]["shardSelector"] == f"{label}=west"
    assert urls(provider.get(f"{SLICES}/zoned").json) == []
    # The shard enters the partition, the partition selects others and this shard again, and the shard leaves it.
    master.patch(SHARD, {"metadata": {"labels": {label: "west"}}})
    has(provider, "zoned", endpoint(provider, "shapes"))
    provider.patch(f"{PARTITIONS}/zone", {"spec": {"selector": {"matchLabels": {label: "east"}}}})
    has(provider, "zoned")
    provider.patch(f"{PARTITIONS}/zone", {"spec": {"selector": {"matchLabels": {label: "west"}}}})
    has(provider, "zoned", endpoint(provider, "shapes"))
    master.patch(SHARD, {"metadata": {"labels": {label: None}}})
    has(provider, "zoned")
    master.patch(SHARD, {"metadata": {"labels": {label: "west"}}})
    has(provider, "zoned", endpoint(provider, "shapes"))
    provider.delete(f"{PARTITIONS}/zone")
    wait_condition(provider, f"{SLICES}/zoned", "PartitionValid", "False", "PartitionInvalidReference")
    has(provider, "zoned")
    provider.patch(f"{SLICES}/zoned", {"spec": {"partition": None}})
    has(provider, "zoned", endpoint(provider, "shapes"))
    master.patch(SHARD, {"metadata": {"labels": {label: None}}})


def test_a_slice_of_an_export_that_is_gone_has_no_endpoints_until_it_is_back(provider: Api, consumer: Api) -> None:
    made = schema("circles")
    make_export(provider, "shapes", made)
    consumer.post(SLICES, a_slice("there", provider.cluster))
    bind(consumer, provider.cluster, "shapes")
    has(consumer, "there", endpoint(provider, "shapes"))
    provider.delete(f"{EXPORTS}/shapes")
    found = wait_condition(consumer, f"{SLICES}/there", "APIExportValid", "False", "APIExportNotFound")
    assert "endpoints" not in found["status"]
    wait(consumer, f"{SLICES}/there", lambda obj: "endpoints" not in obj["status"])
    # The default slice is owned by the export and deleted with it.
    wait_gone(provider, f"{SLICES}/shapes")
    provider.post(EXPORTS, export("shapes", made))
    has(consumer, "there", endpoint(provider, "shapes"))
    has(provider, "shapes", endpoint(provider, "shapes"))


def wait_gone(api: Api, path: str) -> None:
    wait(api, path.rpartition("/")[0], lambda found: path.rpartition("/")[2] not in names(found))


def names(found: Object) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


def test_what_other_shards_apply_stays_when_this_one_comes_and_goes(provider: Api, consumer: Api) -> None:
    """Each shard owns its own entry: two field managers, one list."""
    make_export(provider, "shapes", schema("circles"))
    valid(provider, "shapes")
    elsewhere = "https://beta.example/services/apiexport/x/shapes"
    kind = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "shapes"}}
    applied = json.dumps({**kind, "status": {"endpoints": [{"url": elsewhere}]}}).encode()
    provider.patch(f"{SLICES}/shapes/status?fieldManager=beta", applied, APPLY)
    bind(consumer, provider.cluster, "shapes")
    here = endpoint(provider, "shapes")
    found = wait(provider, f"{SLICES}/shapes", lambda obj: set(urls(obj)) == {here, elsewhere})
    managers = {each["manager"] for each in found["metadata"]["managedFields"] if each["operation"] == "Apply"}
    assert managers == {"root", "beta"}
    unbind(consumer, "shapes")
    has(provider, "shapes", elsewhere)
    provider.patch(f"{SLICES}/shapes/status?fieldManager=beta", json.dumps(kind).encode(), APPLY)
    has(provider, "shapes")


def test_an_endpoint_that_somebody_takes_out_comes_back(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    has(provider, "shapes", endpoint(provider, "shapes"))
    provider.patch(f"{SLICES}/shapes/status", {"status": {"endpoints": [], "shardSelector": "x=y", "conditions": []}})
    found = has(provider, "shapes", endpoint(provider, "shapes"))
    assert found["status"]["shardSelector"] == ""
