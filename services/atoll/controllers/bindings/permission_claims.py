"""Permission claims: labels on what they cover, and what a binding's status says of them.

Watches: APIBindings, for what is accepted and, in a status that the binding controller writes, claimed; every other
type, for an object whose write was under way while that changed. Writes: labels, through admission; of APIBindings'
status the claims and their two conditions. Converges because labels follow from what status says to be applied, which
nobody else changes: it is written first, then the objects, then that it is done. What an edit or a restart interrupts
is not done, and all that the cluster holds is gone through again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from atoll.controllers.bindings.claim_backfill import ClaimBackfill, labels_of
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import claim_status
from atoll.machinery.kcp.apis.apibindings import INITIAL
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.claim_labels import NO_CLAIMS, Labelling
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import conditions, hashes, times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Scope
from atoll.tenancy.claim_labels import ClaimLabels
from atoll.tenancy.lookups import Lookups

AGAIN_S = 10.0
#: Longer than any write takes from its plan to the log; revisions count microseconds.
PLANNED_US = 120 * 1_000_000
#: Clusters whose labelling the reading of the log remembers.
MAX_CLUSTERS = 4096


#: In the record of a binding: any of its three lists of claims, and the condition that ends the work on them.
_LABEL = hashes.CLAIM_LABEL_PREFIX.encode()
_CLAIMS, _APPLIED = b'ermissionClaims":[{', f'"status":"True","type":"{claim_status.CLAIMS_APPLIED}"'.encode()


class Binding(msgspec.Struct, frozen=True, tag=True):
    """An APIBinding to look at."""

    cluster: str
    name: str


class WithdrawnClaims(msgspec.Struct, frozen=True, tag=True):
    """Types of a cluster of which a binding that is gone had labelled objects; None for any."""

    cluster: str
    types: tuple[ResourceType, ...] | None


class PermissionClaimsController:
    """Keys: Binding, WithdrawnClaims, or the ObjectKey of an object with other labels than it should carry."""

    name = "permissionclaims"
    workers = 4

    def __init__(self, loopback: Loopback, facts: Lookups, kind: Kind) -> None:
        self._loopback, self._facts, self._kind = loopback, facts, kind
        self._labels = ClaimLabels()
        self._relabelling = ClaimBackfill(loopback, self._labels)
        #: As of a moment not before the log's last entry on the cluster's bindings.
        self._known: LruCache[str, Labelling] = LruCache(MAX_CLUSTERS)
        #: Types that are left of a pass that was finished, and could not write all objects.
        self._failed: LruCache[Binding, set[ResourceType]] = LruCache(MAX_CLUSTERS)

    # --- what to look at ---

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_BINDINGS:
            if _CLAIMS in entry.value or self._known.get(key.cluster) is not NO_CLAIMS:
                # One more that grants nothing changes nothing where nothing is granted.
                self._known.drop(key.cluster)
            yield from _of_binding(entry)
        if entry.operation is not Operation.DELETED:
            labelling = self._labelling(key.cluster)
            if entry.sealed:
                # Its labels cannot be told from the entry.
                if labelling.covers(key.type) or self._changed_before(entry):
                    yield key
            elif (labelling.covers(key.type) or _LABEL in entry.value) and labelling.misses(
                key.type, labels_of(entry.value)
            ):
                # A write that was planned before claims changed is stored with the labels of then.
                yield key

    def _changed_before(self, entry: LogEntry) -> bool:
        """Whether an object may have been planned before the last change of its cluster's bindings."""
        with self._loopback.store.snapshot() as snapshot:
            last = snapshot.last(API_BINDINGS, entry.key.cluster)
        return bool(last) and entry.revision - last < PLANNED_US

    def _labelling(self, cluster: str) -> Labelling:
        found = self._known.get(cluster)
        if found is None:
            with self._loopback.store.snapshot() as snapshot:
                found = self._labels.of(snapshot, cluster)
            self._known.put(cluster, found)
        return found

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(API_BINDINGS)):
            yield Binding(key.cluster, key.name)

    # --- what to do ---

    async def reconcile(self, key: Binding | WithdrawnClaims | ObjectKey) -> float | None:
        if isinstance(key, Binding):
            return await self._reconcile_binding(key)
        if isinstance(key, WithdrawnClaims):
            return await self._reconcile_withdrawn(key)
        await self._relabelling.one(key)
        return None

    async def _reconcile_withdrawn(self, key: WithdrawnClaims) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            going = snapshot.gate(key.cluster).state is GateState.DELETING
        failures = {} if going else await self._relabelling.types(key.cluster, key.types)
        return AGAIN_S if failures else None

    async def _reconcile_binding(self, key: Binding) -> float | None:
        binding, claimed = self._read(key)
        if binding is None or claimed is None:
            return None
        types = self._to_label(key, binding, claimed)
        failures: dict[ResourceType, str] = {}
        if types is None or types:
            begun = claim_status.labelling_started(binding, claimed, times.now())
            # One that is applied as it should be, and told to be unfinished, says all there is to say.
            if not claim_status.has_started_labelling(binding, begun) and not await self._write(key, begun):
                return None
            failures = await self._relabelling.types(key.cluster, types)
            binding, now_claimed = self._read(key)
            if binding is None or now_claimed != claimed or claim_status.types_to_label(binding, claimed):
                # It was changed while objects were labelled, and its entry brings this key back.
                return None
        if failures:
            self._failed.put(key, set(failures))
        desired = claim_status.labelling_finished(binding, claimed, failures, times.now())
        if desired != binding:
            await self._write(key, desired)
        return AGAIN_S if failures else None

    def _to_label(self, key: Binding, binding: Object, claimed: Sequence[Object]) -> set[ResourceType] | None:
        """The types whose objects are to be gone through; None for all, where an earlier pass was not finished."""
        types, failed = claim_status.types_to_label(binding, claimed), self._failed.get(key)
        self._failed.drop(key)
        if not claim_status.is_changing(binding):
            return types
        return types | failed if failed is not None else None

    def _read(self, key: Binding) -> tuple[Object | None, Sequence[Object] | None]:
        """The binding and what its export claims, or claimed last if it is away; None for one that is not there, or not
        yet judged by its controller, which a new binding waits for."""
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_BINDINGS, key.cluster, "", key.name))
            if record is None:
                return None, None
            binding = decode(record.value)
            said = (binding.get("status") or {}).get("conditions") or ()
            if conditions.find(said, INITIAL) is None:
                return binding, None
            _, path, name = export_of(binding, key.cluster)
            export = self._facts.export(snapshot, path, name, seen_from=key.cluster)
        if export is not None:
            return binding, export.claims
        # One that comes back unchanged changes no binding, so that nothing would bring what is accepted now here again.
        return binding, (binding.get("status") or {}).get("exportPermissionClaims") or ()

    async def _write(self, key: Binding, binding: Object) -> bool:
        try:
            await self._loopback.update(Target(self._kind, key.cluster, "", key.name), binding, whole=True)
        except (Conflict, NotFound):
            # Its newer state has an entry in the log, which brings this key back.
            return False
        return True


def _of_binding(entry: LogEntry) -> Iterator[Hashable]:
    key = entry.key
    if entry.operation is not Operation.DELETED:
        # Where nothing is claimed, granted or still applied, the binding controller has said all there is to say.
        if _CLAIMS in entry.value or _APPLIED not in entry.value:
            yield Binding(key.cluster, key.name)
        return
    types = claim_status.labelled_types(decode(entry.value))
    if types is None or types:
        yield WithdrawnClaims(key.cluster, tuple(sorted(types)) if types is not None else None)
