"""Permission claims: labels of the claimed objects, and the claims in the status of APIBindings.

Watches: APIBindings, for accepted and exported claims; every other type, for objects whose write was in flight when the
claims changed. Writes: labels, through admission; in the status of APIBindings, the applied claims and their two
conditions. Converges because labels follow from the applied claims in status, which only this controller writes. Order:
status, then objects, then PermissionClaimsApplied=True. After an interruption (edit, restart) the condition is not
True, and all objects of the cluster are labelled again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from atoll.controllers.bindings.claim_backfill import ClaimBackfill
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis import claim_status
from atoll.machinery.kcp.apis.apibindings import INITIAL, is_withheld
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.claim_labels import NO_CLAIMS, Labelling
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import conditions, hashes, partial, rawscan, times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, decode, status_of
from atoll.machinery.meta.shared_lru import SharedLru
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Scope
from atoll.tenancy.claim_labels import ClaimLabels, ClusterLabelling
from atoll.tenancy.lookups import Lookups

FAILED = Backoff(10.0, 300.0)
#: Upper bound of the time between the plan of a write and its log entry; revisions count microseconds.
PLANNED_US = 120 * 1_000_000
#: Bytes of each cache.
MAX_BYTES = 4 << 20


_LABEL = rawscan.text(hashes.CLAIM_LABEL_PREFIX)
#: Patterns of a binding: a non-empty list of claims (one of three); PermissionClaimsApplied=True.
_CLAIMS = rawscan.member_ending("ermissionClaims", "[{")
_INITIAL = rawscan.text(INITIAL)
_APPLIED = rawscan.members({"status": "True", "type": claim_status.CLAIMS_APPLIED})


class Binding(msgspec.Struct, frozen=True, tag=True):
    """One APIBinding."""

    cluster: str
    name: str


class WithdrawnClaims(msgspec.Struct, frozen=True, tag=True):
    """Types of a cluster whose objects a deleted binding had labelled; None: all types."""

    cluster: str
    types: tuple[ResourceType, ...] | None


class PermissionClaimsController(Controller):
    """Keys: Binding, WithdrawnClaims, or the ObjectKey of an object with wrong labels."""

    name = "permissionclaims"
    workers = 4

    def __init__(self, loopback: Loopback, facts: Lookups, kind: Kind) -> None:
        self._loopback, self._facts, self._kind = loopback, facts, kind
        self._labels = ClaimLabels()
        self._relabelling = ClaimBackfill(loopback, self._labels)
        #: Labelling by cluster, not older than the last log entry of the cluster's bindings.
        self._labellings: SharedLru[str, ClusterLabelling] = SharedLru(MAX_BYTES)
        #: Types with objects that a completed pass could not write.
        self._failed: LruCache[Binding, set[ResourceType]] = LruCache(MAX_BYTES, size_bytes)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return True

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return type != API_BINDINGS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_BINDINGS:
            known = self._labellings.get(key.cluster)
            if _CLAIMS in entry.value or (known is not None and known.labelling is not NO_CLAIMS):
                # A binding without claims leaves a cluster without claims as it is.
                self._labellings.drop(key.cluster)
            yield from _of_binding(entry)
        if entry.operation is not Operation.DELETED:
            known = self._labellings.get(key.cluster)
            labelling = known.labelling if known is not None else self._labelling(key.cluster)
            if entry.sealed:
                # A sealed entry does not show its labels.
                if labelling.covers(key.type) or self._changed_before(entry):
                    yield key
            elif (labelling.covers(key.type) or _LABEL in entry.value) and labelling.misses(
                key.type, partial.labels(entry.value)
            ):
                # A write planned before the claims changed is stored with the earlier labels.
                yield key

    def _changed_before(self, entry: LogEntry) -> bool:
        """Return whether the write of an object may have been planned before the last change of the bindings."""
        with self._loopback.store.snapshot() as snapshot:
            last = snapshot.last(API_BINDINGS, entry.key.cluster)
        return bool(last) and entry.revision - last < PLANNED_US

    def _labelling(self, cluster: str) -> Labelling:
        with self._loopback.store.snapshot() as snapshot:
            found = self._labels.of(snapshot, cluster)
        self._labellings.put(cluster, ClusterLabelling(0, found))
        return found

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(API_BINDINGS)):
            yield Binding(key.cluster, key.name)

    # --- reconcile ---

    async def reconcile(self, key: Binding | WithdrawnClaims | ObjectKey) -> Requeue:
        if isinstance(key, Binding):
            return await self._reconcile_binding(key)
        if isinstance(key, WithdrawnClaims):
            return await self._reconcile_withdrawn(key)
        await self._relabelling.one(key)
        return None

    async def _reconcile_withdrawn(self, key: WithdrawnClaims) -> Requeue:
        with self._loopback.store.snapshot() as snapshot:
            going = snapshot.gate(key.cluster).state is GateState.DELETING
        failures = {} if going else await self._relabelling.types(key.cluster, key.types)
        return FAILED if failures else None

    async def _reconcile_binding(self, key: Binding) -> Requeue:
        binding, claimed = self._read(key)
        if binding is None or claimed is None:
            return None
        types = self._to_label(key, binding, claimed)
        failures: dict[ResourceType, str] = {}
        if types is None or types:
            begun = claim_status.labelling_started(binding, claimed, times.now())
            # Nothing to write if the status has the applied claims and PermissionClaimsApplied=False already.
            if not claim_status.has_started_labelling(binding, begun) and not await self._write(key, begun):
                return None
            failures = await self._relabelling.types(key.cluster, types)
            binding, now_claimed = self._read(key)
            if binding is None or now_claimed != claimed or claim_status.types_to_label(binding, claimed):
                # It changed during the labelling; its log entry enqueues this key again.
                return None
        if failures:
            self._failed.put(key, set(failures))
        desired = claim_status.labelling_finished(binding, claimed, failures, times.now())
        if desired != binding:
            await self._write(key, desired)
        return FAILED if failures else None

    def _to_label(self, key: Binding, binding: Object, claimed: Sequence[Object]) -> set[ResourceType] | None:
        """Return the types whose objects are to be labelled; None for all types, after an interrupted pass."""
        types, failed = claim_status.types_to_label(binding, claimed), self._failed.get(key)
        self._failed.drop(key)
        if not claim_status.is_changing(binding):
            return types
        return types | failed if failed is not None else None

    def _read(self, key: Binding) -> tuple[Object | None, Sequence[Object] | None]:
        """Return the binding and the claims of its export; without the export, the last known claims.

        (None, None): no such binding. (binding, None): the binding controller has not reconciled it yet.
        """
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_BINDINGS, key.cluster, "", key.name))
            if record is None:
                return None, None
            binding = decode(record.value)
            said = conditions_of(binding)
            if conditions.find(said, INITIAL) is None:
                return binding, None
            _, path, name = export_of(binding, key.cluster)
            export = self._facts.export(snapshot, path, name, seen_from=key.cluster)
        if export is not None:
            return binding, export.claims if not is_withheld(binding, export) else ()
        # An export that returns unchanged changes no binding, so no log entry would enqueue the key then.
        return binding, status_of(binding).get("exportPermissionClaims") or ()

    async def _write(self, key: Binding, binding: Object) -> bool:
        target = Target(self._kind, key.cluster, "", key.name)
        return await self._loopback.try_update(target, binding, whole=True) is not None


def _is_applied(value: bytes) -> bool:
    # Annotations named `status` and `type` may match too.
    return _APPLIED in value and conditions.is_true(conditions_of(decode(value)), claim_status.CLAIMS_APPLIED)


def _of_binding(entry: LogEntry) -> Iterator[Hashable]:
    key = entry.key
    if entry.operation is not Operation.DELETED:
        # The binding controller comes first. Without exported, accepted or applied claims, it alone writes the status.
        if _INITIAL in entry.value and (_CLAIMS in entry.value or not _is_applied(entry.value)):
            yield Binding(key.cluster, key.name)
        return
    types = claim_status.labelled_types(decode(entry.value))
    if types is None or types:
        yield WithdrawnClaims(key.cluster, tuple(sorted(types)) if types is not None else None)
