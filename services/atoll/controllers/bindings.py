"""APIBinding deletion: the objects of what was bound, then the finalizer.

Watches: APIBindings, and deletions of bound objects (one may be the last a binding waits for). Writes: deletions of
instances, the binding's finalizer. During deletion the resource stays readable and creation is withdrawn from
discovery, so what is left can be released.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.content import Remaining, clear
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.apiserver.options import DeleteOptions
from atoll.machinery.kcp import shapes
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, set_condition
from atoll.machinery.meta.names import CORE, LOCAL, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Scope

AGAIN_S = 5.0
DELETED = "BindingResourceDeleteSuccess"
_SERVED = DeleteOptions(served_finalizers=frozenset({shapes.BINDING_FINALIZER}))


class BindingDeletion:
    """Key: (cluster, binding name)."""

    name = "apibindingdeletion"
    workers = 2

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return type == API_BINDINGS or type.identity not in {CORE, LOCAL}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_BINDINGS:
            if b'"deletionTimestamp"' in entry.value and entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif entry.operation is Operation.DELETED:
            yield from self._going(key.cluster)

    def _going(self, cluster: str) -> Iterable[Hashable]:
        for binding in self._loopback.each(Scope(API_BINDINGS, cluster)):
            if binding["metadata"].get("deletionTimestamp"):
                yield cluster, binding["metadata"]["name"]

    def all_keys(self) -> Iterable[Hashable]:
        for binding in self._loopback.each(Scope(API_BINDINGS)):
            if binding["metadata"].get("deletionTimestamp"):
                yield binding["metadata"]["annotations"][shapes.CLUSTER], binding["metadata"]["name"]

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        binding = self._loopback.get(API_BINDINGS, cluster, "", name)
        if binding is None or not binding["metadata"].get("deletionTimestamp"):
            return None
        with self._loopback.store.snapshot() as snapshot:
            if snapshot.gate(cluster).state is GateState.DELETING:
                # The whole cluster goes; its own controller sees to the order.
                return None
        remaining = Remaining()
        for type in bound_types(binding):
            await clear(self._loopback, Scope(type, cluster), remaining)
        target = Target(self._kind, cluster, "", name)
        if not remaining.is_empty:
            await self._tell(target, binding, remaining)
            return AGAIN_S
        await self._loopback.delete(target, _SERVED)
        return None

    async def _tell(self, target: Target, binding: Object, remaining: Remaining) -> None:
        condition = Condition(DELETED, "False", "SomeResourcesRemain", remaining.told(), "Info")
        status = binding.get("status") or {}
        conditions = set_condition(status.get("conditions") or [], condition, times.now())
        if conditions == status.get("conditions"):
            return
        changed = {**binding, "status": {**status, "conditions": conditions}}
        try:
            await self._loopback.update(target, changed, whole=True)
        except (Conflict, NotFound):
            return


def bound_types(binding: Object) -> list[ResourceType]:
    """Under which types the objects of a binding's resources are stored."""
    resources = (binding.get("status") or {}).get("boundResources") or []
    return [
        ResourceType(item.get("group") or "", item["resource"], item["schema"]["identityHash"]) for item in resources
    ]
