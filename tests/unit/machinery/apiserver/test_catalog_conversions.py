"""APIConversions in the catalogue: tracked only for clusters with a resource bound in several versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kinds.apiconversion import Converter
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_BINDINGS, API_CONVERSIONS
from atoll.machinery.storage.contract import Delete, Put, Snapshot
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.clients.exports import schema
from harness.data.stores import store_options

GROUP, IDENTITY = "shapes.example.com", "ab" * 32
RULES: Object = {"conversions": [{"from": "v1", "to": "v2", "rules": []}]}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    opened = open_store(store_options(tmp_path))
    yield opened
    await opened.close()


class Counting:
    """A snapshot that records the types whose last revision is read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.requests: list[tuple[ResourceType, str]] = []

    def last(self, type: ResourceType, cluster: str) -> int:
        self.requests.append((type, cluster))
        return self._snapshot.last(type, cluster)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._snapshot, name)


def a_schema(*versions: str) -> Object:
    made = schema("circles")
    (only,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**only, "name": name, "storage": name == versions[0]} for name in versions]
    made["spec"]["conversion"] = {"strategy": "None"}
    made["metadata"]["uid"] = f"uid-of-{'-'.join(versions)}"
    return made


async def put(store: LmdbStore, key: ObjectKey, obj: Object, expected: int = 0) -> int:
    value, hole = encode({**obj, "metadata": {"name": key.name, "uid": key.name, **obj.get("metadata", {})}})
    return (await store.submit([Put(key, value, hole, expected)], ()))[0]


async def bound(store: LmdbStore, made: Object, cluster: str = "consumer") -> None:
    """A binding of a schema of the cluster `provider`, with its bound CRD."""
    uid, name = made["metadata"]["uid"], made["metadata"]["name"]
    crd = bound_crds.bound_crd(made, "provider", "shapes", "2026-01-01T00:00:00Z")
    await put(store, bound_crds.key_of(uid), crd)
    entry = {
        "group": GROUP,
        "resource": "circles",
        "storageVersions": ["v1"],
        "schema": {"name": name, "UID": uid, "identityHash": IDENTITY},
    }
    labels = {hashes.EXPORT_LABEL: hashes.export_hash("provider", "shapes")}
    await put(
        store,
        ObjectKey(API_BINDINGS, cluster, "", "shapes"),
        {
            "metadata": {"labels": labels},
            "spec": {"reference": {"export": {"path": "root:provider", "name": "shapes"}}},
            "status": {"apiExportClusterName": "provider", "phase": "Bound", "boundResources": [entry]},
        },
    )


CONVERSION = ObjectKey(API_CONVERSIONS, "provider", "", a_schema("v1")["metadata"]["name"])


def kind_of(store: LmdbStore, ours: Catalogs, version: str = "v2") -> Kind:
    with store.snapshot() as snapshot:
        found = ours.of(snapshot, "consumer").find(GROUP, version, "circles")
        assert found is not None
        everywhere = ours.by_identity(snapshot, (GROUP, version, "circles"), IDENTITY)
        assert everywhere is not None and everywhere.mark == found.mark, "wildcard requests convert alike"
    return found


async def test_the_rules_of_an_api_conversion_come_and_go_with_it(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    await bound(store, a_schema("v1", "v2"))
    plain = kind_of(store, ours)
    assert plain.conversion is None
    first = await put(store, CONVERSION, {"spec": RULES})
    ruled = kind_of(store, ours)
    assert ruled.conversion is not None and isinstance(ruled.conversion.by, Converter)
    assert ruled.mark != plain.mark
    assert kind_of(store, ours) is ruled
    changed = {"conversions": [*RULES["conversions"], {"from": "v2", "to": "v1", "rules": []}]}
    second = await put(store, CONVERSION, {"spec": changed}, first)
    assert kind_of(store, ours).mark not in {plain.mark, ruled.mark}
    await store.submit([Delete(CONVERSION, second)], ())
    assert kind_of(store, ours).mark == plain.mark


async def test_one_look_up_follows_all_conversions_and_only_where_they_matter(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    await bound(store, a_schema("v1", "v2"), "consumer")
    await bound(store, a_schema("v1"), "simple")
    looked: dict[str, int] = {}
    for cluster in ("consumer", "simple"):
        for _ in range(2):
            with store.snapshot() as snapshot:
                view = Counting(snapshot)
                ours.of(view, cluster)
            looked[cluster] = sum(type == API_CONVERSIONS for type, _ in view.requests)
    assert looked == {"consumer": 1, "simple": 0}


async def test_a_conversion_of_another_name_or_cluster_means_nothing(store: LmdbStore) -> None:
    ours = Catalogs(NATIVE)
    await bound(store, a_schema("v1", "v2"))
    await put(store, ObjectKey(API_CONVERSIONS, "consumer", "", CONVERSION.name), {"spec": RULES})
    await put(store, ObjectKey(API_CONVERSIONS, "provider", "", "other.circles.shapes.example.com"), {"spec": RULES})
    assert kind_of(store, ours).conversion is None
