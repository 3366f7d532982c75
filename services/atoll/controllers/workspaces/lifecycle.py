"""Phases of LogicalClusters: Ready after the last initializer, Deleting after the last terminator.

Watches: LogicalClusters. Writes: phase, the condition WorkspaceInitialized, and the labels, annotation and finalizer
that follow from status. Other changes of a deletion belong to `logicalcluster_deletion`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.workspaces.lifecycle import advance
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope


class LogicalClusterLifecycle(Controller):
    """Key: cluster."""

    name = "logicalcluster"
    workers = 8

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return type == LOGICAL_CLUSTERS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        # Most writes do not change the phase.
        if entry.operation is not Operation.DELETED and _moves(decode(entry.value)):
            yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for obj in self._loopback.each(Scope(LOGICAL_CLUSTERS)):
            if _moves(obj):
                yield obj["metadata"]["annotations"][wellknown.CLUSTER]

    async def reconcile(self, cluster: str) -> float | None:
        obj = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        wanted = advance(obj, times.now()) if obj is not None else None
        if wanted is None or wanted == obj:
            return None
        await self._loopback.try_update(Target(self._kind, cluster, "", wellknown.SINGLETON), wanted, whole=True)
        return None


def _moves(obj: Object) -> bool:
    return advance(obj, "") != obj
