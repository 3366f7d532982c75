"""Roots: logical clusters that an administrator creates by their LogicalCluster, without a Workspace.

Watches: LogicalClusters. Writes: those in phase "" and Scheduling, with all objects that their type demands, in one
batch, as homes are built. A cluster that was created is built however it was created; while it is not, it has its
LogicalCluster alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from atoll.controllers.content_deleter import CONFLICT
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.workspaces import unowned_cluster
from atoll.machinery.kcp.workspaces.workspace import Shard
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.tenancy.cluster_builder import ClusterBuilder
from atoll.tenancy.lookups import Lookups


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Cluster(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_phases = msgspec.json.Decoder(_Cluster)


class Roots(Controller):
    """Key: cluster."""

    name = "rootclusters"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups, shard: Shard) -> None:
        self._loopback, self._shard = loopback, shard
        self._builder = ClusterBuilder(loopback, facts)

    def watches(self, type: ResourceType) -> bool:
        return type == LOGICAL_CLUSTERS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is not Operation.DELETED and _waits(entry.value, entry.key.cluster):
            yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for record in self._loopback.records(Scope(LOGICAL_CLUSTERS)):
            if _waits(record.value, record.key.cluster):
                yield record.key.cluster

    async def reconcile(self, cluster: str) -> Requeue:
        batch = self._loopback.batch()
        if not self._builder.build_unowned(batch, cluster, self._shard):
            return None
        return None if await batch.try_submit() else CONFLICT


def _waits(value: bytes, cluster: str) -> bool:
    """Whether a stored LogicalCluster waits to be built. Nearly all have a phase behind that."""
    return _phases.decode(value).status.phase in unowned_cluster.NEW and unowned_cluster.waits(decode(value), cluster)
