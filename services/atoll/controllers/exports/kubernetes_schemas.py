"""The APIResourceSchemas of root's export `kubernetes`: written once somebody, on any shard, binds the export.

Watches: APIBindings; the export, also on the root shard. Writes: on the root shard the schemas, on another one the
annotation of the export that asks for them. Converges because each reconcile compares what stands in root, and because
bindings wait until the schemas of their export exist. So a shard on which nobody binds these kinds has none of their
40 schemas (800 KB) in its store, in its log or in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from atoll.controllers.shard_calls import ShardCaller
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis.apiexports import bound_export
from atoll.machinery.kcp.apis.kubernetes_export import (
    BINDING_LABEL,
    EXPORT,
    EXPORT_KEY,
    REQUESTED,
    resource_schemas,
    schema_keys,
)
from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.meta import rawscan, times
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import annotations_of, decode, encode_json
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.machinery.storage.contract import LogEntry, Operation, Snapshot
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN
from atoll.tenancy.bound_definitions import PART_BYTES

_EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", namespaced=False)
_NAMED = rawscan.string(EXPORT)


class KubernetesSchemas(ReplicaController):
    """Key: EXPORT_KEY. `root` is the stamp of the objects of root, `calls` None on a single shard."""

    name = "kubernetes-schemas"
    workers = 1
    lists_at_start = True

    def __init__(self, loopback: Loopback, root: ObjectStamp, calls: ShardCaller | None) -> None:
        self._loopback, self._root, self._calls = loopback, root, calls
        # Nobody checks these schemas and compiles their rules: tests validated them.
        kind = loopback.core.catalogs.builtin(API_RESOURCE_SCHEMAS)
        self._kind = replace(kind, schema=None, deferred_validator=None)

    def watches(self, type: ResourceType) -> bool:
        return type in {API_BINDINGS, API_EXPORTS}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is Operation.DELETED:
            return
        if entry.key == EXPORT_KEY or (entry.key.type == API_BINDINGS and _binds(entry)):
            yield EXPORT_KEY

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        return self.keys(entry)

    def all_keys(self) -> Iterable[Hashable]:
        yield EXPORT_KEY

    async def reconcile(self, key: Hashable) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            view = federated(snapshot)
            record = view.get(EXPORT_KEY)
            if record is None or not any(True for _ in _missing(view)):
                return None
            requested = REQUESTED in annotations_of(decode(record.value))
            is_bound = bool(snapshot.labelled(*BINDING_LABEL, API_BINDINGS, 1))
            is_here = is_of_this_shard(snapshot)
        if is_here and (requested or is_bound):
            await self._write()
        elif is_bound and not requested and self._calls is not None:
            await self._calls.call(ROOT_SHARD, _request, EXTERNAL_LOGICAL_CLUSTER_ADMIN)
        return None

    async def _write(self) -> None:
        stamp = self._root._replace(now=times.now())
        # The last first: bindings that wait name the first that is missing, and are not written again for each.
        left = (await asyncio.to_thread(lambda: list(_with_sizes(stamp))))[::-1]
        while left:
            await self._loopback.submit(partial(self._add, left))
            with self._loopback.store.snapshot() as snapshot:
                left = [sized for sized in left if not snapshot.revision_of(sized[0].key)]

    def _add(self, left: list[tuple[Manifest, int]], batch: Batch) -> None:
        """Add some of the schemas that are left, with their sizes, so that the event loop goes on between them."""
        size = 0
        for manifest, bytes_ in left:
            if size > PART_BYTES:
                return
            if not batch.revision_of(manifest.key):
                batch.create(Target(self._kind, ROOT, "", manifest.key.name), manifest.object)
                size += bytes_


def _with_sizes(stamp: ObjectStamp) -> Iterator[tuple[Manifest, int]]:
    return ((manifest, len(encode_json(manifest.object))) for manifest in resource_schemas(stamp))


def is_of_this_shard(snapshot: Snapshot) -> bool:
    """Return whether root is this shard's."""
    return bool(snapshot.revision_of(EXPORT_KEY))


def _missing(view: View) -> Iterator[object]:
    return (key for key in schema_keys() if not view.revision_of(key))


def _binds(entry: LogEntry) -> bool:
    """Return whether a binding names the export; its label, which a look-up goes by, may still be missing."""
    if _NAMED not in entry.value:
        return False
    found = bound_export(entry.value, entry.key.cluster)
    return found.name == EXPORT and ROOT in (found.path, found.cluster)


async def _request(client: Client) -> None:
    await client.cluster(ROOT).patch(_EXPORTS, EXPORT, {"metadata": {"annotations": {REQUESTED: "true"}}})
