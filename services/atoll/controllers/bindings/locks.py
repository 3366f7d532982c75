"""Reconcile the lock annotation of each LogicalCluster with its APIBindings and CustomResourceDefinitions.

Watches: LogicalClusters (missing annotation, or a lock that expires), deletions of APIBindings, and CRDs. Writes: the
annotation, conditional on the revision that was read. The binding and CRD controllers write locks themselves when they
bind or accept names; this controller removes stale locks and adds a missing annotation. Converges because each
reconcile compares the locks with the current bindings and CRDs.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator

from atoll.controllers.bindings.naming import MAX_CACHED, accepted
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.apis.locks import expiries, in_step, read_locks, with_locks
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.types import API_BINDINGS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Scope
from atoll.machinery.storage.pages import each_record, each_revision

_ANNOTATION = rawscan.text(wellknown.LOCKS)
#: Pattern of a lock that expires: the annotation's JSON is a string within the object's JSON.
_EXPIRES = rawscan.text('"e":')


class Locks(Controller):
    """Key: cluster."""

    name = "resourcebindinglocks"
    workers = 2

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind
        #: CRDs are large, and a cluster may have many: only changed ones are decoded.
        self._accepted = RevisionCache(accepted, MAX_CACHED)

    def watches(self, type: ResourceType) -> bool:
        return type in {LOGICAL_CLUSTERS, API_BINDINGS, CRDS}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        cluster, gone = entry.key.cluster, entry.operation is Operation.DELETED
        if entry.key.type == LOGICAL_CLUSTERS:
            if not gone and (_EXPIRES in entry.value or not _is_readable(entry.value)):
                yield cluster
        elif entry.key.type == API_BINDINGS:
            if gone:
                yield cluster
        elif not is_system_cluster(cluster) and entry.operation is not Operation.MODIFIED:
            yield cluster

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(LOGICAL_CLUSTERS)):
            yield key.cluster

    async def reconcile(self, cluster: str) -> float | None:
        now = times.now()
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
            if record is None or snapshot.gate(cluster).state is GateState.DELETING:
                return None
            obj = decode(record.value)
            locks = read_locks(obj)
            bound = dict(_bound(snapshot, cluster))
            definitions = list(self._defined(snapshot, cluster))
        wanted = in_step(locks or {}, bound, definitions, now)
        if wanted != locks:
            target = Target(self._kind, cluster, "", wellknown.SINGLETON)
            if await self._loopback.try_update(target, with_locks(obj, wanted), whole=True) is None:
                # Compare again with the newer state.
                return 0.0
        return _until_next(expiries(wanted))

    def _defined(self, view: View, cluster: str) -> Iterator[str]:
        """Yield the group-resources of CRDs whose names were accepted."""
        for key, revision in each_revision(view, Scope(CRDS, cluster)):
            found = self._accepted.of(view, key, revision)
            if found.names.plural:
                yield _joined(found.names.plural, found.group)


def _is_readable(record: bytes) -> bool:
    """Return whether the locks of a LogicalCluster can be parsed; without them, no binding is bound."""
    return _ANNOTATION in record and read_locks(decode(record)) is not None


def _bound(view: View, cluster: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each binding of a cluster, with its bound group-resources."""
    for record in each_record(view, Scope(API_BINDINGS, cluster)):
        resources: list[Object] = status_of(decode(record.value)).get("boundResources") or []
        yield record.key.name, [_joined(each["resource"], each.get("group") or "") for each in resources]


def _joined(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _until_next(moments: list[str]) -> float | None:
    """Return seconds until the first of some times; None without any."""
    moment = times.parse_time(moments[0]) if moments else None
    return max(moment - time.time(), 0.0) + 1.0 if moment is not None else None
