"""What an endpoint slice says, and which part of it is whose."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.meta.objects import Object

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
URL, OTHER = "https://alpha.example/services/apiexport/c1/shapes", "https://beta.example/services/apiexport/c1/shapes"


def a_slice(status: Object | None = None, partition: str = "", path: str = "root:provider") -> Object:
    spec: Object = {"export": {"name": "shapes", **({"path": path} if path else {})}}
    if partition:
        spec["partition"] = partition
    made: Object = {"metadata": {"name": "shapes", "annotations": {"kcp.io/cluster": "c9"}}, "spec": spec}
    return {**made, "status": status} if status is not None else made


def a_partition(**selector: Any) -> Object:
    return {"metadata": {"name": "eu"}, "spec": {"selector": selector}}


def said(status: Object) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each.get("reason", "")) for each in status["conditions"]]


def test_a_slice_without_a_partition_means_every_shard() -> None:
    status = endpointslices.desired_status(a_slice(), has_export=True, partition=None, now=NOW)
    assert said(status) == [("APIExportValid", "True", ""), ("PartitionValid", "True", "")]
    assert status["shardSelector"] == ""
    assert "endpoints" not in status


def test_a_partition_is_written_out_as_a_selector() -> None:
    expression = {"key": "tier", "operator": "In", "values": ["tin", "gold"]}
    partition = a_partition(matchLabels={"region": "eu"}, matchExpressions=[expression])
    status = endpointslices.desired_status(a_slice(partition="eu"), has_export=True, partition=partition, now=NOW)
    assert status["shardSelector"] == "region=eu,tier in (gold,tin)"
    found = a_slice(status)
    assert endpointslices.selects_shard(found, {"region": "eu", "tier": "tin"})
    assert not endpointslices.selects_shard(found, {"region": "eu", "tier": "iron"})
    assert not endpointslices.selects_shard(found, {"region": "us", "tier": "tin"})


@pytest.mark.parametrize(
    ("has_export", "partition", "type", "reason"),
    [
        (False, None, "APIExportValid", "APIExportNotFound"),
        (True, None, "PartitionValid", "PartitionInvalidReference"),
        (True, a_partition(matchLabels={"no key!": "x"}), "PartitionValid", "PartitionInvalidReference"),
    ],
    ids=["no-export", "no-partition", "bad-partition"],
)
def test_what_refers_to_nothing_has_no_endpoints_of_anybody(
    has_export: bool, partition: Object | None, type: str, reason: str
) -> None:
    whole = endpointslices.desired_status(a_slice(), has_export=True, partition=None, now=NOW)
    before = a_slice({**whole, "endpoints": [{"url": URL}, {"url": OTHER}]}, "eu")
    status = endpointslices.desired_status(before, has_export=has_export, partition=partition, now=LATER)
    assert (type, "False", reason) in said(status)
    assert "endpoints" not in status
    assert not endpointslices.selects_shard({**before, "status": status}, {})


def test_endpoints_are_left_alone_while_all_is_well() -> None:
    whole = endpointslices.desired_status(a_slice(), has_export=True, partition=None, now=NOW)
    with_urls = {**whole, "endpoints": [{"url": OTHER}]}
    assert endpointslices.desired_status(a_slice(with_urls), has_export=True, partition=None, now=LATER) == with_urls


def test_a_slice_that_nobody_has_judged_means_no_shard() -> None:
    assert not endpointslices.selects_shard(a_slice(), {})
    assert not endpointslices.selects_shard(a_slice({"shardSelector": "in in ("}), {})


def test_a_shard_knows_its_own_endpoints_by_its_field_manager() -> None:
    def entry(manager: str, url: str) -> Object:
        fields: Object = {"f:status": {"f:endpoints": {f'k:{{"url":"{url}"}}': {".": {}, "f:url": {}}}}}
        return {"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": fields}

    found = a_slice({"endpoints": [{"url": URL}, {"url": OTHER}]})
    found["metadata"]["managedFields"] = [entry("alpha", URL), entry("beta", OTHER)]
    assert endpointslices.owned_urls(found, "alpha") == [URL]
    assert endpointslices.owned_urls(found, "gamma") == []
    found["status"]["endpoints"] = [{"url": OTHER}]
    assert endpointslices.owned_urls(found, "alpha") == []


def test_a_shard_applies_its_own_endpoint_and_nothing_else() -> None:
    base = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "shapes"}}
    assert endpointslices.apply_configuration("shapes", [URL]) == {**base, "status": {"endpoints": [{"url": URL}]}}
    assert endpointslices.apply_configuration("shapes", []) == base
    assert endpointslices.endpoint_url("https://alpha.example/", "c1", "shapes") == URL


def test_a_reference_without_a_path_is_to_the_slices_own_cluster() -> None:
    assert endpointslices.reference_of(a_slice()) == ("root:provider", "shapes")
    assert endpointslices.reference_of(a_slice(path="")) == ("c9", "shapes")
    assert endpointslices.reference_of(a_slice(path=""), "c1").label != endpointslices.reference_of(a_slice()).label
