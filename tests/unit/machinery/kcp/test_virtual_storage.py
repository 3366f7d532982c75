"""From an export's resource to the endpoint that serves it."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.apis import virtual_storage
from atoll.machinery.kcp.apis.virtual_storage import Reference, ShardEndpoint

SHARD = ShardEndpoint({"region": "north"}, "https://shard:6443")
OWN = "https://shard:6443/services/replication/c/s"
OTHER = "https://view:9443/services/rosters"


def slice_of(*endpoints: Any) -> dict[str, Any]:
    return {"status": {"endpoints": list(endpoints)}}


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([], ""),
        ([{"url": OWN}], OWN),
        ([{"url": OTHER}], ""),
        ([{"url": OTHER}, {"url": OWN}], OWN),
        ([{"url": OTHER, "shards": {"matchAll": True}}, {"url": OWN}], OTHER),
        ([{"url": OTHER, "shards": {"matchAll": False}}], ""),
        ([{"url": OTHER, "shards": {}}], ""),
        ([{"url": OTHER, "shards": {"selector": {"matchLabels": {"region": "north"}}}}], OTHER),
        ([{"url": OTHER, "shards": {"selector": {"matchLabels": {"region": "south"}}}}], ""),
        ([{"url": OTHER, "shards": {"selector": {}}}], OTHER),
        ([{"url": "https://shard:64431/services/replication/c/s"}], ""),
        ([{"url": "https://shard:6443.example.com/services/x"}], ""),
    ],
)
def test_an_endpoint_is_for_the_shards_it_names(endpoints: list[Any], expected: str) -> None:
    assert virtual_storage.endpoint(slice_of(*endpoints), SHARD) == expected


@pytest.mark.parametrize(
    "status",
    [
        None,
        "text",
        [],
        {"endpoints": "text"},
        {"endpoints": ["text", 1, None]},
        {"endpoints": [{"url": 1}, {"url": ""}]},
        {"endpoints": [{"url": OTHER, "shards": "all"}]},
        {"endpoints": [{"url": OTHER, "shards": {"selector": "all"}}]},
        {"endpoints": [{"url": OTHER, "shards": {"selector": {"matchLabels": "all"}}}]},
        {"endpoints": [{"url": OTHER, "shards": {"selector": {"matchExpressions": [{"operator": "Is"}]}}}]},
    ],
)
def test_what_makes_no_sense_leads_nowhere(status: Any) -> None:
    assert virtual_storage.endpoint({"status": status}, SHARD) == ""


def test_a_shard_without_a_url_has_no_endpoints_of_its_own() -> None:
    assert virtual_storage.endpoint(slice_of({"url": OWN}), ShardEndpoint({}, "")) == ""
    assert virtual_storage.own_endpoint({"metadata": {}}) == ShardEndpoint({}, "")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (OWN, "/services/replication/c/s"),
        (f"{OWN}/?x=1#y", "/services/replication/c/s"),
        (OTHER, None),
        ("https://shard:6443", None),
    ],
)
def test_our_own_urls_are_known_by_their_beginning(url: str, path: str | None) -> None:
    assert virtual_storage.own_path(url, SHARD) == path


def test_an_export_names_what_serves_a_resource() -> None:
    reference = {"apiGroup": "g", "kind": "K", "name": "n"}
    export = {
        "spec": {
            "resources": [
                {"name": "stored", "group": "a", "storage": {"crd": {}}},
                {"name": "plain", "group": "a"},
                {"name": "shown", "group": "a", "storage": {"virtual": {"reference": reference, "identityHash": "x"}}},
            ]
        }
    }
    assert virtual_storage.reference(export, "a", "shown") == Reference("g", "K", "n")
    for group, plural in (("a", "stored"), ("a", "plain"), ("b", "shown"), ("a", "none")):
        assert virtual_storage.reference(export, group, plural) is None
