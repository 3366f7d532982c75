"""APIBindings: bind the resources of the export, and again whenever the export changes.

Watches: APIBindings; APIExports and APIResourceSchemas, LogicalClusters and Workspaces (path resolution), each also on
other shards; CustomResourceDefinitions and bound CRDs (freed names, lost rows). Writes: in one transaction the
binding's status, the locks in the LogicalCluster and missing bound CRDs. Converges because `apibindings.desired_status`
computes from current state each time, and every change that can unblock a waiting binding is a log entry that enqueues
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

import msgspec

from atoll.controllers.bindings.naming import HeldNames
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import apibindings, bound_crds, claim_status
from atoll.machinery.kcp.apis.apibindings import BindingContext, Export
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.locks import only_adds_locks, read_locks, with_locks
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import hashes, partial, rawscan, times, wellknown
from atoll.machinery.meta.conditions import Condition
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode, labels_of, spec_of, status_of
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Record, RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.bound_definitions import BoundCrds, has_to_prepare
from atoll.tenancy.lookups import Lookups

#: Bindings of one export that are reconciled concurrently; their writes share commits.
AT_A_TIME = 32
#: Bytes of each cache.
MAX_BYTES = 4 << 20
#: Bindings that are remembered until their own log entry comes; those forgotten are planned again.
MAX_UNCHANGED = 1024
#: Byte patterns present in, and absent from, the record of a binding that waits for nothing.
_AWAITED = (hashes.AWAITED_PATH_LABEL, hashes.AWAITED_WORKSPACE_LABEL, hashes.AWAITED_EXPORT_LABEL)
#: Pattern of a LogicalCluster owned by a Workspace.
_OWNED = rawscan.member("owner", "{")
_BOUND, _CONFLICT = rawscan.members({"phase": "Bound"}), rawscan.string("NamingConflicts")


class BindingKey(msgspec.Struct, frozen=True, tag=True):
    """One binding."""

    cluster: str
    name: str


class WaitingKey(msgspec.Struct, frozen=True, tag=True):
    """The bindings of a cluster that are not completely bound."""

    cluster: str


class ExportKey(msgspec.Struct, frozen=True, tag=True):
    """The bindings of an export."""

    cluster: str
    name: str


class SchemasKey(msgspec.Struct, frozen=True, tag=True):
    """The bindings of all exports of a cluster that name one of its new schemas."""

    cluster: str


class LostKey(msgspec.Struct, frozen=True, tag=True):
    """The bindings of some exports of a cluster of which a bound CRD was deleted."""

    cluster: str
    exports: tuple[str, ...]


Key = BindingKey | WaitingKey | ExportKey | SchemasKey | LostKey


class ApiBindings(ReplicaController):
    """Keys: one binding, or the bindings that wait in a cluster, of an export, of new schemas, of a lost bound CRD."""

    name = "apibinding"
    workers = 16
    #: Seconds: users wait for APIs, so the back-off stays short after any number of failures.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, facts: Lookups, kind: Kind, clusters: Kind) -> None:
        self._loopback, self._facts = loopback, facts
        self._kind, self._clusters, self._workspaces = kind, clusters, facts.identities.workspaces
        self._bound = BoundCrds()
        self._held = HeldNames(self._bound)
        #: Revision and export of bindings that were bound and whose own log entry is still to come.
        self._unchanged: LruCache[BindingKey, tuple[int, Export]] = LruCache(MAX_UNCHANGED)
        #: Held while the definitions of an export are written: all who wait for it need the same ones.
        self._defining = asyncio.Lock()
        self._offered: LruCache[ExportKey, Export] = LruCache(MAX_BYTES, size_bytes)
        #: Names of the new schemas of each SchemasKey that is queued: an export may get forty at once.
        self._new_schemas: dict[str, set[str]] = {}
        #: The first missing schema of exports, as their bindings name it.
        self._missing: LruCache[ExportKey, str] = LruCache(MAX_UNCHANGED)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {API_BINDINGS, CRDS} or self.watches_replicas(type)

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {API_EXPORTS, API_RESOURCE_SCHEMAS, LOGICAL_CLUSTERS, self._workspaces}

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        key, gone = entry.key, entry.operation is Operation.DELETED
        if key.type == API_EXPORTS:
            yield self._export_key(entry)
        elif gone:
            return
        elif key.type == API_RESOURCE_SCHEMAS:
            yield self._schemas_key(key)
        elif key.type == self._workspaces:
            yield from self._waiting_for_workspace(key)
        elif _OWNED not in entry.value:
            # The path of a cluster owned by a Workspace is handled with the Workspace.
            yield from self._waiting_for_path(entry)

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return type in {API_BINDINGS, CRDS}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key, added = entry.key, entry.operation is Operation.ADDED
        if key.type == API_BINDINGS:
            yield from self._of_binding(entry)
        elif key.type == API_EXPORTS:
            yield self._export_key(entry)
        elif key.type == self._workspaces:
            if entry.operation is not Operation.DELETED:
                yield from self._leaving(key)
        elif key.type == API_RESOURCE_SCHEMAS:
            if added:
                yield self._schemas_key(key)
        elif key.cluster == SYSTEM_BOUND_CRDS:
            yield from _bindings_of_lost_crd(entry)
        elif not added:
            if not _only_adds_locks(entry):
                yield WaitingKey(key.cluster)
        elif key.type == LOGICAL_CLUSTERS:
            yield from self._waiting_for_path(entry)

    def _export_key(self, entry: LogEntry) -> ExportKey:
        export = ExportKey(entry.key.cluster, entry.key.name)
        if entry.operation is Operation.DELETED:
            # Bindings may have been updated while the export was absent, even if it returns unchanged.
            self._offered.drop(export)
        return export

    def _schemas_key(self, key: ObjectKey) -> SchemasKey:
        self._new_schemas.setdefault(key.cluster, set()).add(key.name)
        return SchemasKey(key.cluster)

    def _leaving(self, key: ObjectKey) -> Iterator[Hashable]:
        """Yield bindings that wait for a Workspace of this shard whose cluster is remote."""
        with self._loopback.store.snapshot() as snapshot:
            if snapshot.replicas.empty:
                return
        yield from self._waiting_for_workspace(key)

    def _waiting_for_workspace(self, key: ObjectKey) -> Iterator[Hashable]:
        """Yield bindings whose path does not resolve without this Workspace, or leads to no such export."""
        with self._loopback.store.snapshot() as snapshot:
            found = snapshot.labelled(*hashes.awaited_workspace_label(key.cluster, key.name), API_BINDINGS)
        yield from (BindingKey(binding.cluster, binding.name) for binding in found)

    def _of_binding(self, entry: LogEntry) -> Iterator[Hashable]:
        key = entry.key
        if entry.operation is Operation.DELETED or apibindings.may_hold_names(entry.before):
            # Its names may be free: it is deleted, or bound to another schema.
            yield WaitingKey(key.cluster)
        if entry.operation is Operation.ADDED and _is_up_to_date(entry.value) and not self._has_remote_export(entry):
            # The batch that creates a workspace creates its bindings as Bound, and guards their exports.
            return
        if entry.operation is not Operation.DELETED:
            yield BindingKey(key.cluster, key.name)

    def _has_remote_export(self, entry: LogEntry) -> bool:
        """Return whether a binding created as Bound is to a remote export, whose revision no batch can guard."""
        with self._loopback.store.snapshot() as snapshot:
            if snapshot.replicas.empty:
                return False
            cluster = status_of(decode(entry.value)).get("apiExportClusterName") or ""
            return not self._facts.is_here(snapshot, cluster)

    def _waiting_for_path(self, entry: LogEntry) -> Iterator[Hashable]:
        """Yield bindings that refer to a path which can now be resolved."""
        annotations = annotations_of(decode(entry.value))
        with self._loopback.store.snapshot() as snapshot:
            found = snapshot.labelled(*hashes.awaited_path_label(annotations.get(wellknown.PATH, "")), API_BINDINGS)
        yield from (BindingKey(key.cluster, key.name) for key in found)

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(API_BINDINGS)):
            yield BindingKey(key.cluster, key.name)

    # --- reconcile ---

    async def reconcile(self, key: Key) -> float | None:
        match key:
            case BindingKey():
                if not self._is_unchanged(key):
                    await self._reconcile_binding(key)
            case WaitingKey(cluster):
                # One at a time: they write the same LogicalCluster.
                await self._each(self._waiting(cluster), at_once=1)
            case ExportKey():
                await self._reconcile_export(key)
            case SchemasKey(cluster):
                await self._reconcile_schemas(cluster)
            case LostKey(cluster, exports):
                for name in exports:
                    await self._reconcile_bindings(ExportKey(cluster, name))
        return None

    def _waiting(self, cluster: str) -> list[BindingKey]:
        """Return the bindings of a cluster that are not completely bound, found without decoding the records."""
        with self._loopback.store.snapshot() as snapshot:
            found = each_record(snapshot, Scope(API_BINDINGS, cluster))
            return [BindingKey(cluster, each.key.name) for each in found if not _is_up_to_date(each.value)]

    # --- all bindings of an export ---

    async def _reconcile_export(self, key: ExportKey) -> None:
        """Reconcile the bindings of an export if its resources changed since they were last reconciled."""
        with self._loopback.store.snapshot() as snapshot:
            export = self._facts.export(snapshot, key.cluster, key.name)
        if export is None:
            self._offered.drop(key)
        elif self._offered.get(key) == export:
            return
        else:
            # Before the bindings are reconciled: a deletion during that time removes the cached entry.
            self._offered.put(key, export)
        try:
            await self._reconcile_bindings(key)
        except BaseException:
            self._offered.drop(key)
            raise

    async def _reconcile_schemas(self, cluster: str) -> None:
        names = self._new_schemas.pop(cluster, set())
        try:
            for export, missing in self._exports_naming(cluster, names):
                if not missing or self._missing.get(export) != missing:
                    await self._reconcile_bindings(export)
                    self._missing.put(export, missing)
        except BaseException:
            self._new_schemas.setdefault(cluster, set()).update(names)
            raise

    def _exports_naming(self, cluster: str, schemas: Collection[str]) -> list[tuple[ExportKey, str]]:
        """Return the exports that name one of these schemas, each with an earlier one that it still lacks, or ""."""
        quoted = [rawscan.string(name) for name in schemas]
        with self._loopback.store.snapshot() as snapshot:
            view = federated(snapshot)
            found = each_record(view, Scope(API_EXPORTS, cluster))
            return [
                (ExportKey(cluster, each.key.name), _missing_before(view, each, schemas))
                for each in found
                if any(map(each.value.__contains__, quoted))
            ]

    async def _reconcile_bindings(self, export: ExportKey) -> None:
        with self._loopback.store.snapshot() as snapshot:
            label = hashes.EXPORT_LABEL, hashes.export_hash(export.cluster, export.name)
            found = snapshot.labelled(*label, API_BINDINGS)
            found += snapshot.labelled(*hashes.awaited_export_label(export.cluster, export.name), API_BINDINGS)
        await self._each([BindingKey(key.cluster, key.name) for key in dict.fromkeys(found)])

    async def _each(self, keys: Sequence[BindingKey], at_once: int = AT_A_TIME) -> None:
        """Reconcile bindings, some at a time. All are tried; the first error is raised at the end."""
        failures: list[BaseException] = []
        for at in range(0, len(keys), at_once):
            some = (self._reconcile_binding(key) for key in keys[at : at + at_once])
            done = await asyncio.gather(*some, return_exceptions=True)
            failures.extend(each for each in done if each is not None)
        if failures:
            raise failures[0]

    # --- one binding ---

    def _is_unchanged(self, key: BindingKey) -> bool:
        """Return whether a binding is as this controller bound it, and its export is the same.

        The plan of that write guarded the rest of what it read: a plan for the write's own log entry changes nothing.
        """
        known = self._unchanged.get(key)
        if known is None:
            return False
        self._unchanged.drop(key)
        revision, export = known
        with self._loopback.store.snapshot() as snapshot:
            if snapshot.revision_of(_object_key(key)) != revision:
                return False
            return self._facts.export(snapshot, export.cluster, export.name, seen_from=key.cluster) == export

    def _settle(self, key: BindingKey, batch: Batch, export: Export) -> None:
        """Note a binding that a submitted batch bound completely."""
        revision, record = batch.submitted(_object_key(key)), batch.get(_object_key(key))
        if revision and record is not None and _is_up_to_date(record.value):
            self._unchanged.put(key, (revision, export))

    async def _reconcile_binding(self, key: BindingKey) -> None:
        is_prepared = is_lacking = False
        export: Export | None = None
        batch: Batch | None = None

        def plan(latest: Batch) -> None:
            nonlocal batch, export, is_lacking
            batch = latest
            export, is_lacking = self._plan(latest, key, is_prepared=is_prepared)

        await self._loopback.submit(plan)
        if is_lacking and export is not None:
            await self._prepare(key, export.identity)
            is_prepared = True
            await self._loopback.submit(plan)
        if batch is not None and export is not None:
            self._settle(key, batch, export)

    async def _prepare(self, key: BindingKey, identity: str) -> None:
        """Load the kinds of a binding, and write its bound CRDs, for all bindings that wait for the same ones."""
        more, shipped = True, self._loopback.core.catalogs.shipped

        def add(batch: Batch) -> None:
            nonlocal more
            found = self._stored(batch, key)
            export = self._export(batch, key.cluster, found)[0] if found is not None else None
            more = isinstance(export, Export) and self._bound.add_some(batch, export)

        async with self._defining:
            if shipped.lacks(identity):
                await shipped.load()
            while more:
                await self._loopback.submit(add)

    def _stored(self, batch: Batch, key: BindingKey) -> Object | None:
        record = batch.get(_object_key(key))
        binding = decode(record.value) if record is not None else None
        return binding if binding is not None and not binding["metadata"].get("deletionTimestamp") else None

    def _plan(self, batch: Batch, key: BindingKey, *, is_prepared: bool = False) -> tuple[Export | None, bool]:
        """Add the writes of a binding to the batch, none where it is up to date. Return its export, and whether that
        is to be prepared first.

        The export is read once: a second reading may find more of its schemas than the first.
        """
        binding = self._stored(batch, key)
        if binding is None:
            return None, False
        export, labels = self._export(batch, key.cluster, binding)
        if isinstance(export, Export) and export.can_bind_at_once and not is_prepared and has_to_prepare(batch, export):
            return export, True
        desired = self._desired_binding(batch, key.cluster, binding, export, labels)
        if desired != binding or self._bound.lacks(batch, binding):
            self._bound.add(batch, desired, binding)
            batch.update(Target(self._kind, key.cluster, "", key.name), desired, whole=True)
        elif self._bound.is_outdated(batch, binding):
            self._bound.add(batch, desired, binding)
        return export if isinstance(export, Export) else None, False

    def _desired_binding(
        self, batch: Batch, cluster: str, binding: Object, export: Export | Condition, labels: dict[str, str]
    ) -> Object:
        """Return the desired binding. Adds its locks and the guards of its plan to the batch."""
        now, home = times.now(), ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        record = batch.get(home)
        if record is None:
            return {**binding, "status": apibindings.without_cluster(binding, now)}
        if batch.gate(cluster).state is GateState.DELETING:
            return binding
        logical = decode(record.value)
        locks = read_locks(logical)
        if locks is None:
            # The lock controller writes the annotation; that entry enqueues waiting bindings.
            return binding
        name = binding["metadata"]["name"]
        around = BindingContext(
            locks=locks,
            holders=lambda groups: self._held.beside(batch, cluster, name, groups),
            stands=lambda uid: self._bound.get(batch, uid) is not None,
        )
        desired = apibindings.desired_status(binding, export, around, now)
        if desired.locks != locks:
            target = Target(self._clusters, cluster, "", wellknown.SINGLETON)
            batch.update(target, with_locks(logical, desired.locks), whole=True)
        else:
            batch.guard(RevisionUnchanged(home, record.revision))
        status, before = desired.status, labels_of(binding).get(hashes.EXPORT_LABEL)
        if before and before != labels.get(hashes.EXPORT_LABEL):
            status = claim_status.labels_moved(status, now)
        return {**binding, "metadata": {**binding["metadata"], "labels": labels}, "status": status}

    def _export(self, view: View, cluster: str, binding: Object) -> tuple[Export | Condition, dict[str, str]]:
        """Return the export of a binding, and the labels by which changes of the export find the binding."""
        _, path, name = export_of(binding, cluster)
        labels = {key: each for key, each in labels_of(binding).items() if key not in _AWAITED}
        home = self._facts.cluster_of(view, path)
        if home is None:
            return apibindings.not_found(path, name), {**labels, **self._path_labels(view, path)}
        found = self._facts.export(view, home, name, seen_from=cluster)
        if apibindings.pinned_identity(binding) and (found is None or apibindings.is_withheld(binding, found)):
            # The label of the export that has the identity stays: claims and the view go by it.
            reason = apibindings.withheld(binding, found) if found is not None else apibindings.not_found(path, name)
            awaited = dict([hashes.awaited_export_label(home, name)])
            return reason, {**labels, **awaited, **self._path_labels(view, path)}
        labels[hashes.EXPORT_LABEL] = hashes.export_hash(home, name)
        if found is None:
            # The path may resolve to another cluster later: a deleted workspace loses its content before its path.
            return apibindings.not_found(path, name), {**labels, **self._path_labels(view, path)}
        return found, labels

    def _path_labels(self, view: View, path: str) -> dict[str, str]:
        """Return the labels by which a binding is found when its path resolves differently.

        A LogicalCluster without an owner is found by the path itself.
        """
        labels, workspace = dict([hashes.awaited_path_label(path)]), self._facts.awaited(view, path)
        return {**labels, **dict([hashes.awaited_workspace_label(*workspace)])} if workspace is not None else labels


def _missing_before(view: View, export: Record, schemas: Collection[str]) -> str:
    """Return the first schema that an export lacks, if it comes before `schemas` in the export; otherwise ""."""
    for name in (offered["schema"] for offered in spec_of(decode(export.value)).get("resources") or ()):
        if name in schemas:
            return ""
        if not view.revision_of(ObjectKey(API_RESOURCE_SCHEMAS, export.key.cluster, "", name)):
            return str(name)
    return ""


def _object_key(key: BindingKey) -> ObjectKey:
    return ObjectKey(API_BINDINGS, key.cluster, "", key.name)


def _is_up_to_date(record: bytes) -> bool:
    """Return whether a binding is completely bound; few are decoded, and not in full."""
    return _BOUND in record and _CONFLICT not in record and partial.phase(record) == "Bound"


def _only_adds_locks(entry: LogEntry) -> bool:
    """Return whether an entry is of a LogicalCluster that got locks, as each binding adds some."""
    is_change = entry.key.type == LOGICAL_CLUSTERS and entry.operation is Operation.MODIFIED and bool(entry.before)
    return is_change and only_adds_locks(entry.before, entry.value)


def _bindings_of_lost_crd(entry: LogEntry) -> Iterator[Hashable]:
    """Yield keys of the bindings to a deleted bound CRD."""
    if entry.key.type == CRDS and entry.operation is Operation.DELETED:
        crd = decode(entry.value)
        cluster = annotations_of(crd).get(bound_crds.SCHEMA_CLUSTER)
        if cluster:
            yield LostKey(cluster, tuple(bound_crds.exports_of(crd)))
