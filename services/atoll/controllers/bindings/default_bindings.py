"""Default APIBindings of WorkspaceTypes: create them for the initializer `system:apibindings`, and maintain them.

Watches: initializing LogicalClusters and APIBindings; WorkspaceTypes and APIExports, also on other shards. Writes: the
spec of the APIBindings that a type requires (the binding controller binds them), and the condition of the
LogicalCluster; the last binding removes the initializer. A type finds its clusters by an index, so a change costs only
the clusters that use it. Converges because each reconcile compares the existing bindings with the required ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.workspaces import default_bindings
from atoll.machinery.kcp.workspaces.default_bindings import INITIALIZED, RECONCILED, RequiredBindings
from atoll.machinery.kcp.workspaces.lifecycle import advance
from atoll.machinery.kcp.workspaces.workspacetypes import (
    BINDINGS_INITIALIZER,
    Lookup,
    Resolution,
    TypeRefused,
    resolve_present,
    with_bases,
)
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import hashes, rawscan, times, wellknown
from atoll.machinery.meta.conditions import TRUE, Condition
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.status import ApiError, Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import GateState, GateUnchanged, LogEntry, ObjectExists, Operation, Scope
from atoll.machinery.storage.pages import PAGE, each_key_in_snapshots, pages
from atoll.tenancy.lookups import Lookups

CONFLICT = Backoff(1.0, 60.0)
_OPEN = frozenset({GateState.INITIALIZING, GateState.OPEN})
_INITIALIZING = rawscan.members({"phase": "Initializing"})
_INITIALIZER, _MAINTAINED = rawscan.string(BINDINGS_INITIALIZER), rawscan.string(RECONCILED)


class Cluster(msgspec.Struct, frozen=True, tag=True):
    """One logical cluster."""

    cluster: str


class Type(msgspec.Struct, frozen=True, tag=True):
    """A changed WorkspaceType: the clusters of this type and of types that extend it."""

    cluster: str
    name: str


class OfferedExport(msgspec.Struct, frozen=True, tag=True):
    """A new APIExport: the clusters of types that maintain a binding to it."""

    cluster: str
    name: str


class RequestedBindings(msgspec.Struct, frozen=True):
    """The bindings that types require in a cluster, and the condition type that reports them.

    `problem`: why the types cannot be resolved; empty if they can.
    """

    type: str
    bindings: tuple[RequiredBindings, ...]
    problem: str = ""


class DefaultBindings(ReplicaController):
    """Keys: Cluster, Type, OfferedExport."""

    name = "defaultapibindings"
    workers = 8
    #: Seconds: users wait for workspaces.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, facts: Lookups, kinds: tuple[Kind, Kind]) -> None:
        """`kinds`: the kinds LogicalCluster and APIBinding."""
        self._loopback, self._facts = loopback, facts
        self._cluster_kind, self._binding_kind = kinds
        self._types = facts.identities.workspace_types
        self._maintained: tuple[int, dict[str, list[Resolution]]] | None = None

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {LOGICAL_CLUSTERS, API_BINDINGS, API_EXPORTS, self._types}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {API_EXPORTS, self._types}

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is not Operation.DELETED:
            key = entry.key
            yield OfferedExport(key.cluster, key.name) if key.type == API_EXPORTS else Type(key.cluster, key.name)

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return type == API_BINDINGS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key, gone = entry.key, entry.operation is Operation.DELETED
        if key.type == API_BINDINGS:
            if self._reports_bindings(key.cluster):
                yield Cluster(key.cluster)
        elif gone:
            return
        elif key.type == LOGICAL_CLUSTERS:
            if _waits(entry.value):
                yield Cluster(key.cluster)
        elif key.type == API_EXPORTS:
            # A change of an existing export shows in its bindings.
            if entry.operation is Operation.ADDED:
                yield OfferedExport(key.cluster, key.name)
        else:
            yield Type(key.cluster, key.name)

    def _reports_bindings(self, cluster: str) -> bool:
        """Return whether the LogicalCluster reports the state of its default bindings; most do not, or are complete."""
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(_singleton(cluster))
        return record is not None and (_waits(record.value) or _MAINTAINED in record.value)

    def all_keys(self) -> Iterable[Hashable]:
        yield from (Type(key.cluster, key.name) for key in self._type_keys())
        yield from self._waiting()

    def _type_keys(self) -> Iterator[ObjectKey]:
        """Yield every WorkspaceType, local or replicated."""
        return each_key_in_snapshots(self._loopback.store, Scope(self._types), federated)

    def _waiting(self) -> Iterator[Cluster]:
        """Yield the clusters that wait for their default bindings."""
        return self._by_label(*hashes.initializer_label(BINDINGS_INITIALIZER))

    def _by_label(self, label: str, value: str) -> Iterator[Cluster]:
        def read(after: ObjectKey | None) -> list[ObjectKey]:
            with self._loopback.store.snapshot() as snapshot:
                return snapshot.labelled(label, value, LOGICAL_CLUSTERS, PAGE, after)

        return (Cluster(key.cluster) for page in pages(read, lambda key: key) for key in page)

    # --- reconcile ---

    async def reconcile(self, key: Cluster | Type | OfferedExport) -> Requeue:
        if isinstance(key, Cluster):
            return await self._cluster(key.cluster)
        clusters = self._clusters_using(key) if isinstance(key, Type) else self._clusters_binding(key)
        again: Requeue = None
        for each in clusters:
            # Yield to the event loop. A cluster that could not be written is retried with this key.
            await asyncio.sleep(0)
            if await self._cluster(each.cluster) is not None:
                again = CONFLICT
        return again

    def _clusters_using(self, key: Type) -> Iterator[Cluster]:
        """Yield clusters whose type is or extends this one and maintains bindings, and all initializing clusters."""
        for resolution in self._resolutions():
            if any((alias.cluster, alias.name) == (key.cluster, key.name) for alias in resolution.aliases):
                yield from self._of_type(resolution)
        yield from self._waiting()

    def _clusters_binding(self, key: OfferedExport) -> Iterator[Cluster]:
        for resolution in self._maintaining().get(key.name, ()):
            if any(self._names(each.path, each.export, key) for each in resolution.maintained_bindings):
                yield from self._of_type(resolution)
        yield from self._waiting()

    def _maintaining(self) -> dict[str, list[Resolution]]:
        """Return the types that maintain bindings, by export name. Cached until any type changes."""
        with self._loopback.store.snapshot() as snapshot:
            stamp = federated(snapshot).last(self._types, "")
        if self._maintained is None or self._maintained[0] != stamp:
            found: dict[str, list[Resolution]] = {}
            for resolution in self._resolutions():
                for name in {each.export for each in resolution.maintained_bindings}:
                    found.setdefault(name, []).append(resolution)
            self._maintained = stamp, found
        return self._maintained[1]

    def _names(self, path: str, export: str, key: OfferedExport) -> bool:
        if export != key.name:
            return False
        with self._loopback.store.snapshot() as snapshot:
            return self._facts.cluster_of(snapshot, path) == key.cluster

    def _of_type(self, resolution: Resolution) -> Iterator[Cluster]:
        if resolution.maintained_bindings:
            yield from self._by_label(wellknown.TYPE, resolution.type.qualified)

    def _resolutions(self) -> Iterator[Resolution]:
        """Yield every type with its bases. Types are few compared with clusters."""
        for key in self._type_keys():
            with self._loopback.store.snapshot() as snapshot:
                resolution = self._resolution(snapshot, key)
            if resolution is not None:
                yield resolution

    def _resolution(self, view: View, key: ObjectKey) -> Resolution | None:
        found = self._facts.workspace_type(view, key.cluster, key.name)
        try:
            return with_bases(found, self._lookup(view)) if found is not None else None
        except TypeRefused:
            return None

    def _lookup(self, view: View) -> Lookup:
        return lambda path, name: self._facts.workspace_type(view, path, name)

    # --- one cluster ---

    async def _cluster(self, cluster: str) -> Requeue:
        """Create or update the bindings of a cluster and write its condition.

        Returns when to retry if every attempt met a conflict, else None.
        """
        for _ in range(ATTEMPTS):
            with self._loopback.store.snapshot() as snapshot:
                record = snapshot.get(_singleton(cluster))
                if record is None or snapshot.gate(cluster).state not in _OPEN:
                    return None
                obj = decode(record.value)
                requested = self._requested(snapshot, obj)
            if requested is None or obj["metadata"].get("deletionTimestamp"):
                return None
            condition = await self._ensure_bindings(cluster, requested)
            changed = advance(default_bindings.with_bindings_condition(obj, condition, times.now()), times.now())
            if changed == obj:
                return None
            if await self._write(cluster, changed) and condition != Condition(INITIALIZED, TRUE):
                return None
        return CONFLICT

    def _requested(self, view: View, obj: Object) -> RequestedBindings | None:
        """Return the bindings that types require in a cluster; None if there is nothing to do or report."""
        waits = BINDINGS_INITIALIZER in (status_of(obj).get("initializers") or ())
        type = INITIALIZED if waits else RECONCILED
        try:
            resolution = resolve_present(obj, self._lookup(view))
        except TypeRefused as error:
            return RequestedBindings(type, (), str(error)) if waits else None
        if resolution is None:
            return None
        requested = resolution.default_bindings if waits else resolution.maintained_bindings
        cluster = obj["metadata"]["annotations"][wellknown.CLUSTER]
        return RequestedBindings(type, default_bindings.required(cluster, requested)) if requested or waits else None

    async def _ensure_bindings(self, cluster: str, requested: RequestedBindings) -> Condition:
        """Create or update the required bindings. Returns the condition to write."""
        if requested.problem:
            return default_bindings.types_invalid(requested.type, requested.problem)
        present = list(self._loopback.each(Scope(API_BINDINGS, cluster)))
        waiting: list[str] = []
        problems: list[str] = []
        for wanted in requested.bindings:
            binding = default_bindings.find_binding(present, wanted)
            try:
                if not await self._ensure_binding(cluster, wanted, binding, keeps=requested.type == RECONCILED):
                    waiting.append(wanted.name)
            except ApiError as error:
                problems.append(error.message)
        return default_bindings.bindings_condition(requested.type, waiting, problems)

    async def _ensure_binding(
        self, cluster: str, wanted: RequiredBindings, binding: Object | None, *, keeps: bool
    ) -> bool:
        """Create a binding or update it. Returns whether it is bound. Raises ApiError; NotFound without an export."""
        if binding is not None and default_bindings.is_done(binding) and not keeps:
            return True
        with self._loopback.store.snapshot() as snapshot:
            export = self._facts.export(snapshot, wanted.path, wanted.export, seen_from=cluster)
        if export is None:
            raise NotFound(default_bindings.no_export(wanted))
        if binding is None:
            await self._create(cluster, wanted.name, default_bindings.binding_of(wanted, export.claims))
            return False
        if keeps and default_bindings.is_outdated(binding, wanted, export.claims):
            changed = {**binding, "spec": default_bindings.binding_spec(wanted, export.claims)}
            with suppress(Conflict):
                # The conflicting write has a log entry, which enqueues the cluster again.
                await self._loopback.update(Target(self._binding_kind, cluster, "", wanted.name), changed)
            return False
        return default_bindings.is_done(binding)

    async def _create(self, cluster: str, name: str, binding: Object) -> None:
        """Create a binding unless the cluster's gate is closed (terminating, moving); the batch guards the gate."""
        batch = self._loopback.batch()
        gate = batch.gate(cluster)
        if gate.state in _OPEN:
            batch.create(Target(self._binding_kind, cluster, "", name), binding, whole=False)
            batch.guard(GateUnchanged(cluster, gate.generation))
            with suppress(ObjectExists):
                # Several keys may reach one cluster; the log entry of the first write enqueues it again.
                await batch.submit()

    async def _write(self, cluster: str, changed: Object) -> bool:
        target = Target(self._cluster_kind, cluster, "", wellknown.SINGLETON)
        return await self._loopback.try_update(target, changed, whole=True) is not None


def _singleton(cluster: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)


def _waits(value: bytes) -> bool:
    """Return whether a LogicalCluster may wait for default bindings, from the bytes of its record."""
    return _INITIALIZING in value and _INITIALIZER in value
