"""Catalogs of exports follow the rows that they derive from, in other clusters too."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_CONVERSIONS, API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.virtualworkspaces.export_catalog import ExportCatalogs, ExportKey
from harness.clients.exports import claim, resource_of, schema
from harness.data.stores import store_options

GROUP, IDENTITY = "shapes.example.com", "ab" * 32
RULES: Object = {"conversions": [{"from": "v1", "to": "v2", "rules": []}]}


async def put(store: LmdbStore, key: ObjectKey, obj: Object) -> None:
    value, hole = encode({**obj, "metadata": {"name": key.name, "uid": key.name}})
    await store.submit([Put(key, value, hole, 0)])


async def test_conversions_of_a_claimed_kind_are_those_of_its_export(tmp_path: Path) -> None:
    store, made = open_store(store_options(tmp_path)), schema("circles")
    (only,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**only, "name": name, "storage": name == "v1"} for name in ("v1", "v2")]
    made["spec"]["conversion"] = {"strategy": "None"}
    offered = {"spec": {"resources": [resource_of(made)]}, "status": {"identityHash": IDENTITY}}
    claiming = {"spec": {"permissionClaims": [claim("circles", GROUP, identity=IDENTITY)]}}
    name = made["metadata"]["name"]
    await put(store, ObjectKey(API_RESOURCE_SCHEMAS, "provider", "", name), made)
    await put(store, ObjectKey(API_EXPORTS, "provider", "", "shapes"), offered)
    await put(store, ObjectKey(API_EXPORTS, "painter", "", "painter"), claiming)
    catalogs = ExportCatalogs(Catalogs(NATIVE))

    def converts() -> bool:
        with store.snapshot() as snapshot:
            offer = catalogs.of(snapshot, ExportKey("painter", "painter"))
        kind = offer.catalog.find(GROUP, "v2", "circles") if offer is not None else None
        assert kind is not None
        return kind.conversion is not None

    assert not converts()
    await put(store, ObjectKey(API_CONVERSIONS, "provider", "", name), {"spec": RULES})
    assert converts()
    await store.close()
