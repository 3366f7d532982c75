"""Catalogues of bound APIs: shared, built from the bound CRDs; wildcard kinds are found by a row's revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.bindings.apibindings import BindingKey
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.catalog import catalogs, export_index, revision_cache
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kinds.kind import Kind, Virtual
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.tenancy.bound_definitions import target_of
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import Cell, cell

GROUP, THERE = "shapes.example.com", "provider"
CIRCLES = GROUP, "v1", "circles"
IDENTITY = hashes.identity_hash(b"shapes")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        for cluster in (THERE, "one", "two"):
            await made.cluster(cluster)
        await made.export(THERE, "shapes", crd("circles", GROUP))
        yield made


def by_identity(here: Cell, identity: str = IDENTITY) -> Kind | None:
    with here.store.snapshot() as snapshot:
        return here.core.catalogs.by_identity(snapshot, CIRCLES, identity)


async def bind(here: Cell, *clusters: str) -> None:
    for cluster in clusters:
        await here.bind(cluster, THERE, "shapes")
    await here.settle()


async def test_clusters_that_bind_the_same_share_a_catalogue_and_one_that_unbinds_has_its_own(here: Cell) -> None:
    await bind(here, "one", "two")
    assert here.catalog("one") is here.catalog("two")
    one, two = (here.core.catalogs._by_cluster.get(cluster) for cluster in ("one", "two"))
    assert one is not None and two is not None
    assert one.content is two.content
    held = here.found(API_BINDINGS, "one", "shapes")["metadata"]
    await here.change(API_BINDINGS, "one", "shapes", metadata={**held, "finalizers": [*held["finalizers"], "x/y"]})
    await here.delete(API_BINDINGS, "one", "shapes")
    going, staying = here.catalog("one"), here.catalog("two")
    assert going.terminating == {(GROUP, "circles")}
    assert not staying.terminating
    assert going.find(*CIRCLES) is staying.find(*CIRCLES)
    assert here.catalog("one").mark != here.catalog("two").mark


async def test_a_batch_serves_what_it_is_about_to_bind(here: Cell) -> None:
    await here.bind("one", THERE, "shapes")
    await here.bind("two", THERE, "shapes")
    batch = here.loopback.batch()
    here.controllers[0]._plan(batch, BindingKey("one", "shapes"))  # type: ignore[attr-defined]
    assert here.core.catalogs.of(batch, "one").find(*CIRCLES) is not None
    assert here.catalog("one").find(*CIRCLES) is None


async def test_a_bound_crd_that_is_not_there_makes_its_resource_unavailable_until_it_is(here: Cell) -> None:
    await bind(here, "one")
    (needed,) = bound_crds.required_crds(here.found(API_BINDINGS, "one", "shapes"))
    crd_ = here.loopback.get(needed.key.type, needed.key.cluster, "", needed.uid)
    assert crd_ is not None
    await here.loopback.delete(target_of(needed.uid), DeleteOptions())
    assert here.catalog("one").unavailable == {(GROUP, "circles")}
    await here.loopback.create(target_of(needed.uid), {**crd_, "metadata": _bare(crd_)}, whole=True)
    assert here.catalog("one").find(*CIRCLES) is not None


def _bare(obj: Object) -> Object:
    return {"name": obj["metadata"]["name"], "annotations": obj["metadata"]["annotations"]}


async def test_a_resource_stored_in_no_version_is_virtual(here: Cell) -> None:
    await bind(here, "one")
    status = here.found(API_BINDINGS, "one", "shapes")["status"]
    status["boundResources"][0]["storageVersions"] = []
    await here.change(API_BINDINGS, "one", "shapes", status=status)
    kind = here.catalog("one").find(*CIRCLES)
    assert kind is not None
    assert kind.virtual == Virtual(THERE, "shapes")


async def test_a_wildcard_kind_is_found_once_and_then_by_revisions(here: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    await bind(here, "one")
    found = by_identity(here)
    assert found is not None
    await here.export(THERE, "others", crd("squares", GROUP))
    await here.bind("two", THERE, "shapes")

    def never(data: bytes) -> Object:
        raise AssertionError("decoded")

    for module in (export_index, catalogs, revision_cache):
        monkeypatch.setattr(module, "decode", never)
    assert by_identity(here) is found


async def test_a_wildcard_kind_outlives_its_export_and_goes_with_the_last_binding(here: Cell) -> None:
    assert by_identity(here) is not None, "offered, though nobody binds it"
    assert by_identity(here, "0" * 64) is None
    await bind(here, "one", "two")
    await here.delete(API_EXPORTS, THERE, "shapes")
    await here.delete(API_RESOURCE_SCHEMAS, THERE, f"today.circles.{GROUP}")
    assert by_identity(here) is not None
    for cluster in ("one", "two"):
        await here.delete(API_BINDINGS, cluster, "shapes")
    await here.settle()
    assert by_identity(here) is None
