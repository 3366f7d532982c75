"""Endpoints of slices between shards: which shard removes which endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from atoll.controllers.exports.cached_endpointslices import CachedEndpoints
from atoll.controllers.exports.endpointslice_urls import EndpointUrlController
from atoll.controllers.exports.endpointslices import EndpointSliceController
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import cachedresources, endpointslices
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORT_ENDPOINT_SLICES,
    API_EXPORTS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
)
from atoll.machinery.storage.contract import Delete, LogEntry, Put
from harness.clients.exports import export
from harness.servers.in_process.minimal_shard import Cell, cell


def url(shard: str) -> str:
    return endpointslices.endpoint_url(f"https://{shard}.example", "provider", "shapes")


async def announce(here: Cell, shard: str) -> None:
    """A Shard object, as root has them."""
    metadata = {"name": shard, "uid": f"uid-of-{shard}", "annotations": {"kcp.io/cluster": ROOT}}
    value, hole = encode({"metadata": metadata, "spec": {"virtualWorkspaceURL": f"https://{shard}.example"}})
    key = ObjectKey(here.facts.identities.shard_objects, ROOT, "", shard)
    await here.store.submit([Put(key, value, hole, 0)])


async def forget(here: Cell, shard: str) -> None:
    key = ObjectKey(here.facts.identities.shard_objects, ROOT, "", shard)
    with here.store.snapshot() as snapshot:
        revision = snapshot.revision_of(key)
    await here.store.submit([Delete(key, revision)])


async def apply(here: Cell, shard: str, found: str) -> None:
    """Apply to the slice as a shard or another field manager."""
    kind = here.kind(API_EXPORT_ENDPOINT_SLICES)
    body = endpointslices.apply_configuration("shapes", [found])
    await here.loopback.apply(Target(kind, "provider", "", "shapes", "status"), body, shard)


def urls(here: Cell) -> list[str]:
    status = here.found(API_EXPORT_ENDPOINT_SLICES, "provider", "shapes").get("status") or {}
    return sorted(each["url"] for each in status.get("endpoints") or [])


def revision(here: Cell) -> int:
    with here.store.snapshot() as snapshot:
        return snapshot.revision


def bindings_since(here: Cell, revision: int) -> list[LogEntry]:
    return [entry for entry in here.store.tail(revision, 100) if entry.key.type == API_BINDINGS]


@asynccontextmanager
async def with_a_slice(directory: Path) -> AsyncIterator[Cell]:
    """A provider with an export and a slice, on the shard `here`, which is not root's."""
    async with cell(directory) as here:
        here.controllers.extend(
            [
                EndpointSliceController(here.loopback, here.facts, "here"),
                EndpointUrlController(here.loopback, here.facts, "here"),
            ]
        )
        await here.cluster("provider")
        await here.cluster("consumer")
        await here.put(API_EXPORTS, "provider", export("shapes"))
        kind = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice"}
        spec = {"export": {"path": "provider", "name": "shapes"}}
        await here.put(API_EXPORT_ENDPOINT_SLICES, "provider", {**kind, "metadata": {"name": "shapes"}, "spec": spec})
        yield here


async def test_the_slices_own_shard_takes_away_what_shards_left_that_are_no_more(tmp_path: Path) -> None:
    async with with_a_slice(tmp_path) as here:
        for shard in ("here", "amber"):
            await announce(here, shard)
        await here.bind("consumer", "provider", "shapes")
        await here.settle()
        await apply(here, "amber", url("amber"))
        await apply(here, "a-tool", "https://tools.example/of-its-own")
        await here.settle()
        everybody = sorted([url("here"), url("amber"), "https://tools.example/of-its-own"])
        assert urls(here) == everybody
        await forget(here, "amber")
        await here.settle()
        assert urls(here) == [each for each in everybody if each != url("amber")]


async def test_a_binding_more_reconciles_only_slices_without_the_shards_endpoint(tmp_path: Path) -> None:
    async with with_a_slice(tmp_path) as here:
        await announce(here, "here")
        await here.settle()
        (urls_of_here,) = (each for each in here.controllers if isinstance(each, EndpointUrlController))
        before = revision(here)
        await here.bind("consumer", "provider", "shapes")
        (first,) = bindings_since(here, before)
        assert list(urls_of_here.keys(first)) == [("provider", "shapes")]
        await here.settle()
        assert urls(here) == [url("here")]
        assert list(urls_of_here.keys(first)) == []
        *_, bound = bindings_since(here, before)
        removed = endpointslices.apply_configuration("shapes", [])
        kind = here.kind(API_EXPORT_ENDPOINT_SLICES)
        await here.loopback.apply(Target(kind, "provider", "", "shapes", "status"), removed, "here")
        assert urls(here) == []
        assert list(urls_of_here.keys(first)) == [("provider", "shapes")]
        # A change of a binding counts if it is one of its export.
        other = b'{"metadata":{"labels":{}}}'
        assert list(urls_of_here.keys(bound)) == []
        assert list(urls_of_here.keys(replace(bound, before=other))) == [("provider", "shapes")]
        await here.settle()
        assert urls(here) == [url("here")]


async def test_a_shard_that_root_has_not_told_of_takes_nothing_away(tmp_path: Path) -> None:
    async with with_a_slice(tmp_path) as here:
        # Earlier endpoints of this shard and another; the Shard objects of both are still missing here.
        await here.settle()
        for shard in ("here", "amber"):
            await apply(here, shard, url(shard))
        await here.settle()
        assert urls(here) == [url("amber"), url("here")]
        # Now the Shard object is here, and the export has no binding on this shard.
        for shard in ("here", "amber"):
            await announce(here, shard)
        await here.settle()
        assert urls(here) == [url("amber")]


async def test_a_shard_that_root_has_not_told_of_takes_nothing_away_of_cached_resources(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        here.controllers.append(CachedEndpoints(here.loopback, here.facts, "here"))
        await here.cluster("provider")
        await here.put(API_EXPORTS, "provider", export("plans"))
        kind = {"apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResource"}
        cached = {"group": "plans.example.com", "version": "v1", "resource": "plans"}
        await here.put(CACHED_RESOURCES, "provider", {**kind, "metadata": {"name": "plans"}, "spec": cached})
        kind = {"apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResourceEndpointSlice"}
        spec = {"clusterCachedResource": {"name": "plans"}, "export": {"name": "plans"}}
        slices = CACHED_RESOURCE_ENDPOINT_SLICES
        await here.put(slices, "provider", {**kind, "metadata": {"name": "plans"}, "spec": spec})
        found = cachedresources.endpoint_url("https://here.example", "provider", "plans")
        body = cachedresources.apply_configuration("plans", [found])

        def endpoints() -> list[str]:
            status = here.found(slices, "provider", "plans").get("status") or {}
            return [each["url"] for each in status.get("endpoints") or []]

        await here.settle()
        await here.loopback.apply(Target(here.kind(slices), "provider", "", "plans", "status"), body, "here")
        await here.settle()
        assert endpoints() == [found]
        await announce(here, "here")
        await here.settle()
        assert endpoints() == []
