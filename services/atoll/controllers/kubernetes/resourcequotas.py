"""ResourceQuota status: what is allowed, and what is in use.

Watches: ResourceQuotas, and what changes the use of quotas in logical clusters with limits: creates and deletes of
every kind, updates of those of which more counts than the number. Writes: `status` of ResourceQuotas, once for all
changes of a moment. The store counts and refuses by itself; nothing depends on the status.
Converges because it is computed from the store's limits, and an equal one is not written. A status that somebody else
writes stays until the quota or the use changes, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

import msgspec

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ALL_OPERATIONS, Controller
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope, Snapshot
from atoll.machinery.storage.limits import Limit
from atoll.machinery.storage.quota_limits import ADMIN_NAMESPACE, limited_kind, limits_of, text

#: Operations that change the number of objects.
_COUNTED = ALL_OPERATIONS - {Operation.MODIFIED}
#: Logical clusters without limits that are remembered.
MAX_UNLIMITED = 4096


class _Specified(msgspec.Struct, frozen=True, gc=False):
    """A ResourceQuota, reduced to what its status follows from, beside the annotation."""

    spec: msgspec.Raw = msgspec.Raw()


_specified = msgspec.json.Decoder(_Specified).decode


class QuotaStatus(Controller):
    """Key: the ObjectKey of a ResourceQuota."""

    name = "resourcequota"
    workers = 2
    #: Many creates of a moment are one write.
    batch_delay_s = 0.3

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind
        #: Clusters that had no limits; an entry of a ResourceQuota comes before the first that a limit counts.
        self._unlimited: LruCache[str, bool] = LruCache(MAX_UNLIMITED)

    def watches(self, type: ResourceType) -> bool:
        return True

    def operations(self, type: ResourceType) -> Collection[Operation]:
        is_evaluated = (type.group, type.resource) in EVALUATORS
        return ALL_OPERATIONS if type == RESOURCE_QUOTAS or is_evaluated else _COUNTED

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return type != RESOURCE_QUOTAS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == RESOURCE_QUOTAS:
            self._unlimited.drop(key.cluster)
            own = [key] if _concerns(entry) else []
            return own if entry.operation is Operation.MODIFIED else [*own, *self._counting(key)]
        return () if self._unlimited.get(key.cluster) else self._counting(key)

    def _counting(self, key: ObjectKey) -> set[ObjectKey]:
        """Return the quotas that count an object."""
        with self._loopback.store.snapshot() as snapshot:
            if not snapshot.limited(key.cluster):
                self._unlimited.put(key.cluster, True)
                return set()
            limits = snapshot.limits(key.type, key.cluster, key.namespace)
        # A quota of the namespace and one of the whole cluster, which is in `admin`, may have one name.
        return {
            ObjectKey(RESOURCE_QUOTAS, key.cluster, namespace, limit.quota)
            for limit in limits
            for namespace in {key.namespace, ADMIN_NAMESPACE} - {""}
        }

    def all_keys(self) -> Iterable[Hashable]:
        return self._loopback.keys(Scope(RESOURCE_QUOTAS))

    async def reconcile(self, key: ObjectKey) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            if record is None:
                return None
            obj = decode(record.value)
            status = _status(snapshot, key, obj, limits_of(record.value).namespace)
        if status != {name: (obj.get("status") or {}).get(name) or {} for name in status}:
            target = Target(self._kind, key.cluster, key.namespace, key.name, "status")
            await self._loopback.try_update(target, {**obj, "status": status})
        return None


def _concerns(entry: LogEntry) -> bool:
    """Whether the status of a ResourceQuota may have to follow a change of its own."""
    if entry.operation is not Operation.MODIFIED or entry.sealed:
        return entry.operation is not Operation.DELETED
    if limits_of(entry.value) != limits_of(entry.before):
        return True
    return bytes(_specified(entry.value).spec) != bytes(_specified(entry.before).spec)


def _status(snapshot: Snapshot, key: ObjectKey, obj: Object, scope: str) -> Object:
    hard = (obj.get("spec") or {}).get("hard") or {}
    counted = {name: kind for name in hard if (kind := limited_kind(name)) is not None}
    found: list[Limit] = []
    for kind in sorted(set(counted.values())):
        found += snapshot.limits(ResourceType(*kind), key.cluster, scope)
    used: dict[str, Amount] = dict.fromkeys(counted, 0)
    # Those of the namespace come first, and one of the whole cluster may have the same name.
    used.update((limit.resource, limit.used) for limit in reversed(found) if limit.quota == key.name)
    return {"hard": hard, "used": {name: text(name, amount) for name, amount in used.items()}}
