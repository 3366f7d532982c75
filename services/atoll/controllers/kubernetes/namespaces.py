"""Namespace deletion: Pods first, then other content, then the finalizer, then the Namespace itself.

Watches: Namespaces, and deletions inside a namespace (a terminating namespace may wait for the object). Writes:
deletions of content, conditions, `spec.finalizers`. Converges because a terminating namespace admits no new objects.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from atoll.controllers.content_deleter import HELD, RemainingContent, clear
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import EXISTING, Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times
from atoll.machinery.meta.conditions import Condition, set_status_condition
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, spec_of, status_of
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Flag, LogEntry, Operation, Scope

FINALIZER = "kubernetes"
#: Group and resource, under any identity.
PODS = ("", "pods")


class NamespaceController(Controller):
    """Key: (cluster, namespace name)."""

    name = "namespace"
    workers = 4

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return True

    def operations(self, type: ResourceType) -> Collection[Operation]:
        return EXISTING if type == NAMESPACES else {Operation.DELETED}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == NAMESPACES:
            if rawscan.DELETION in entry.value:
                yield key.cluster, key.name
        elif key.namespace and self._is_terminating(key):
            yield key.cluster, key.namespace

    def _is_terminating(self, key: ObjectKey) -> bool:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(NAMESPACES, key.cluster, "", key.namespace))
        return record is not None and bool(record.flags & Flag.DELETING)

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.deleting(Scope(NAMESPACES)):
            yield key.cluster, key.name

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        namespace = self._loopback.get(NAMESPACES, cluster, "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return None
        remaining = RemainingContent()
        for types in self._stages(cluster):
            for type in types:
                await clear(self._loopback, Scope(type, cluster, name), remaining)
            if not remaining.is_empty:
                break
        await self._write_conditions(cluster, namespace, remaining)
        if not remaining.is_empty:
            return HELD
        await self._release(cluster, name)
        return None

    def _stages(self, cluster: str) -> Iterable[list[ResourceType]]:
        """Yield the types of Pods, then all others: what a Pod uses stays until it is gone, as in Kubernetes."""
        with self._loopback.store.snapshot() as snapshot:
            types = [usage.type for usage in snapshot.usage(cluster)]
        yield [each for each in types if (each.group, each.resource) == PODS]
        yield [each for each in types if (each.group, each.resource) != PODS]

    async def _write_conditions(self, cluster: str, namespace: Object, remaining: RemainingContent) -> None:
        """Write the remaining content to the conditions; no write if nothing remains and no conditions exist."""
        status = status_of(namespace)
        if remaining.is_empty and not status.get("conditions"):
            return
        conditions = conditions_of(namespace)
        for condition in _conditions(remaining):
            conditions = set_status_condition(conditions, condition, times.now())
        changed = {**namespace, "status": {**status, "conditions": conditions}}
        target = Target(self._kind, cluster, "", namespace["metadata"]["name"], "status")
        await self._loopback.try_update(target, changed)

    async def _release(self, cluster: str, name: str) -> None:
        """Remove our finalizer; the object is deleted with it unless other finalizers remain."""
        namespace = self._loopback.get(NAMESPACES, cluster, "", name)
        if namespace is None:
            return
        spec = spec_of(namespace)
        left = [each for each in spec.get("finalizers") or [] if each != FINALIZER]
        changed = {**namespace, "spec": {**spec, "finalizers": left}}
        try:
            await self._loopback.update(Target(self._kind, cluster, "", name, "finalize"), changed)
        except NotFound:
            return


def _counted(found: dict[str, int], what: str) -> str:
    return ", ".join(f"{name} {what.format(count)}" for name, count in sorted(found.items()))


def _conditions(remaining: RemainingContent) -> list[Condition]:
    """Return the five conditions of a terminating namespace, with the texts of Kubernetes."""
    left = "Some resources are remaining: " + _counted(remaining.objects, "has {} resource instances")
    held = "Some content in the namespace has finalizers remaining: " + _counted(
        remaining.finalizers, "in {} resource instances"
    )
    some, finalizers, refused = not remaining.is_empty, bool(remaining.finalizers), "; ".join(remaining.refusals)
    return [
        Condition(
            "NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"
        ),
        Condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        Condition(
            "NamespaceDeletionContentFailure",
            str(bool(refused)),
            "ContentDeletionFailed" if refused else "ContentDeleted",
            f"Failed to delete all resource types, {len(remaining.objects)} remaining: {refused}"
            if refused
            else "All content successfully deleted, may be waiting on finalization",
        ),
        Condition(
            "NamespaceContentRemaining",
            str(some),
            "SomeResourcesRemain" if some else "ContentRemoved",
            left if some else "All content successfully removed",
        ),
        Condition(
            "NamespaceFinalizersRemaining",
            str(finalizers),
            "SomeFinalizersRemain" if finalizers else "ContentHasNoFinalizers",
            held if finalizers else "All content-preserving finalizers finished",
        ),
    ]
