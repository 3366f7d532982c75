"""Catalogues of clusters over a real store: shared by content, and rebuilt only for changed definitions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.catalog import catalogs, discovery
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.meta.types import CRDS
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.openapi import GROUP, definition, structure
from harness.data.stores import store_options

WIDGETS = definition("widgets", structure(spec=structure(colour={"type": "string"})))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    opened = open_store(store_options(tmp_path))
    yield opened
    await opened.close()


async def _put(store: LmdbStore, cluster: str, crd: Object, expected: int = 0) -> int:
    metadata = {**crd["metadata"], "uid": f"{cluster}-{crd['metadata']['name']}"}
    value, hole = encode({**crd, "metadata": metadata})
    key = ObjectKey(CRDS, cluster, "", crd["metadata"]["name"])
    return (await store.submit([Put(key, value, hole, expected)], ()))[0]


def _of(store: LmdbStore, ours: Catalogs, cluster: str) -> Catalog:
    with store.snapshot() as snapshot:
        return ours.of(snapshot, cluster)


async def test_clusters_with_equal_definitions_share_one_catalogue(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    await _put(store, "one", WIDGETS)
    await _put(store, "two", WIDGETS)
    await _put(store, "three", definition("widgets", structure()))
    one = _of(store, ours, "one")
    assert one.find(GROUP, "v1", "widgets") is not None
    assert _of(store, ours, "two") is one
    assert _of(store, ours, "three") is not one
    assert _of(store, ours, "none") is ours.base


async def test_one_more_definition_is_the_only_one_decoded(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def noted(data: bytes) -> Object:
        value = decode(data)
        decoded.append(value["metadata"]["name"])
        return value

    monkeypatch.setattr(catalogs, "decode", noted)
    ours = Catalogs(NATIVE)
    await _put(store, "one", WIDGETS)
    await _put(store, "one", definition("gears", structure()))
    _of(store, ours, "one")
    decoded.clear()
    _of(store, ours, "one")
    assert decoded == []
    await _put(store, "one", definition("bolts", structure()))
    assert {plural for _, _, plural in _of(store, ours, "one").kinds} >= {"widgets", "gears", "bolts"}
    assert decoded == [f"bolts.{GROUP}"]


async def test_a_changed_definition_is_seen_at_once(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    first = await _put(store, "one", WIDGETS)
    before = _of(store, ours, "one")
    changed = definition("widgets", structure(size={"type": "integer"}))
    await _put(store, "one", changed, first)
    after = _of(store, ours, "one")
    assert after.mark != before.mark
    kind = after.find(GROUP, "v1", "widgets")
    assert kind is not None
    assert kind.schema is not None
    assert "size" in kind.schema.source["properties"]


async def test_of_a_definition_on_its_way_out_nothing_new_is_offered(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    await _put(store, "one", WIDGETS)
    going = definition("widgets", structure(spec=structure(colour={"type": "string"})))
    going["status"]["conditions"].append({"type": "Terminating", "status": "True"})
    await _put(store, "two", going)
    pair = [_of(store, ours, cluster) for cluster in ("one", "two")]
    assert pair[0].mark != pair[1].mark
    verbs = [_listed(each)["widgets"]["verbs"] for each in pair]
    assert set(verbs[0]) - set(verbs[1]) == {"create", "patch", "update"}
    aggregated = json.loads(discovery.aggregated(pair[1], "v2", core=False).body)["items"][-1]
    assert aggregated["versions"][0]["resources"][0]["verbs"] == verbs[1]


def _listed(catalog: Catalog) -> dict[str, Any]:
    resources = json.loads(discovery.resource_list(catalog, GROUP, "v1").body)["resources"]
    return {each["name"]: each for each in resources}


async def test_groups_of_tenants_come_after_the_systems_by_name_and_resources_by_name(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    for plural, group in (("apples", "z.example.com"), ("pears", "a.example.com"), ("figs", "a.example.com")):
        crd = definition(plural, structure())
        crd["spec"]["group"] = group
        crd["metadata"]["name"] = f"{plural}.{group}"
        await _put(store, "one", crd)
    found = _of(store, ours, "one")
    groups = list(discovery.groups(found))
    assert groups[0] == "events.k8s.io"
    assert groups[-2:] == ["a.example.com", "z.example.com"]
    listed = json.loads(discovery.resource_list(found, "a.example.com", "v1").body)["resources"]
    assert [each["name"] for each in listed] == ["figs", "pears"]


def test_storage_hashes_are_those_of_kubernetes() -> None:
    catalog = Catalog(NATIVE)
    core = json.loads(discovery.resource_list(catalog, "", "v1").body)["resources"]
    found = {each["name"]: each.get("storageVersionHash") for each in core}
    assert found["configmaps"] == "qFsyl6wFWjQ="
    assert found["namespaces/status"] is None
    # Events of both groups share one storage.
    events = json.loads(discovery.resource_list(catalog, "events.k8s.io", "v1").body)["resources"]
    assert events[0]["storageVersionHash"] == found["events"] == "r2yiGXH7wu8="


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "v2"),
        ("application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2beta1", "v2beta1"),
        ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/json", None),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=0,application/json", None),
        ("application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*", None),
        ("application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", None),
        ("", None),
    ],
)
def test_aggregated_discovery_is_given_where_its_clause_is_the_first_that_can_be(accept: str, version: str) -> None:
    assert discovery.aggregated_version(accept) == version


@pytest.mark.parametrize("accept", ["application/json;q=0", "text/html", "application/json;g=x;v=v1;as=Other"])
def test_discovery_that_nobody_can_read_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        discovery.aggregated_version(accept)
