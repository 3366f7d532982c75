"""One submit, applied: guards, preconditions, objects, log, versions, indexes, counters.

`writer` makes a `SubmitTransaction` for each submit of a batch, in the batch's transaction or in a child of it. On an
error the writer aborts that transaction if `writes` is set, so that nothing of the submit remains; on success its
counters and changes join the batch. Invariant: an object's resourceVersion is the revision of the log entry that wrote
it, all rows of a write are in the same transaction, and `writes` is set before the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import splice
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES, RESOURCE_QUOTAS
from atoll.machinery.meta.wellknown import MAX_TOTAL_OBJECTS
from atoll.machinery.storage.contract import (
    Change,
    Check,
    ClusterEmpty,
    ClusterRoute,
    Delete,
    DeletePrefix,
    Flag,
    Gate,
    GateUnchanged,
    Guard,
    GuardFailed,
    Mark,
    Mutation,
    NamespaceActive,
    ObjectExists,
    ObjectMissing,
    Operation,
    Put,
    Replica,
    RevisionConflict,
    RevisionUnchanged,
    Scope,
    StoreFull,
    SweepReplicas,
)
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import Head, Version, pack_entry, pack_version, pack_version_row, unpack_gate
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.sealing import SealingError
from atoll.machinery.storage.writing import fence_rows
from atoll.machinery.storage.writing.commit_batch import CommitBatch, Counters, Image, IndexRows, LiveObject
from atoll.machinery.storage.writing.first_counts import Counts
from atoll.machinery.storage.writing.limit_rows import LimitRows
from atoll.machinery.storage.writing.replica_rows import ReplicaRows

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


#: Objects that one DeletePrefix removes at most.
MAX_PREFIX_DELETES = 500
_FINALIZERS, _DELETING, _SEALED, _DELETED = (
    flag.value for flag in (Flag.FINALIZERS, Flag.DELETING, Flag.SEALED, Flag.DELETED)
)
_INDEXED = (Flag.OWNED | Flag.LABELLED).value
_NO_FACTS = object_facts.ObjectFacts(0)
#: Types whose objects are rules for others.
_RULES = frozenset({LOGICAL_CLUSTERS, RESOURCE_QUOTAS})
_MAX_TOTAL = MAX_TOTAL_OBJECTS.encode()
#: Guards that hold against the state before the submit.
_CHECKED_BEFORE = (GateUnchanged, RevisionUnchanged, FencingToken)


class _Write(msgspec.Struct, frozen=True, gc=False):
    """One write of an object: the image it replaced, its new version, and its value as watches get it.

    `size_bytes` is the size of the value as stored, 0 for a delete.
    """

    key: ObjectKey
    raw: bytes
    revision: int
    old: Image | None
    version: Version
    size_bytes: int
    after: bytes


class SubmitTransaction:
    """Applies one submit. Use once."""

    def __init__(self, batch: CommitBatch, txn: Txn, counts: Counts) -> None:
        self._batch, self._txn, self._counts = batch, txn, counts
        self._records, self._environment = batch.records, batch.records.environment
        self.counters = Counters(batch, txn)
        self._limit_rows: LimitRows | None = None
        self._changes: list[Change] = []
        self._replica_rows: ReplicaRows | None = None
        self.log_bytes = 0
        #: Whether it has begun to write rows.
        self.writes = False

    def run(self, mutations: Sequence[Mutation], guards: Sequence[Guard]) -> list[int]:
        """Apply everything or raise. Return one revision (or number) a mutation."""
        for guard in guards:
            if isinstance(guard, _CHECKED_BEFORE) and not self._holds(guard):
                raise GuardFailed(guard)
        results = []
        for mutation in mutations:
            results.append(self._put(mutation) if type(mutation) is Put else self._mutate(mutation))
        for guard in guards:
            if isinstance(guard, NamespaceActive) and not self._namespace_active(guard):
                raise GuardFailed(guard)
            if isinstance(guard, ClusterEmpty) and self.counters.objects_in(guard.cluster) > guard.but:
                raise GuardFailed(guard)
            if isinstance(guard, FencingToken):
                self.writes = True
                fence_rows.note(self._txn, self._environment.marks, guard, self._batch.clock.last)
        return results

    def join(self) -> None:
        """Add counters and changes to the batch, after the submit succeeded."""
        self._batch.counters.update(self.counters.changed)
        self._batch.changes.extend(self._changes)
        self._batch.log_bytes += self.log_bytes
        if self._replica_rows is not None:
            self._batch.applied = self._replica_rows.applied

    @property
    def replica_rows(self) -> ReplicaRows:
        """Applies the mutations about rows of other shards."""
        if self._replica_rows is None:
            self._replica_rows = ReplicaRows(self._batch, self._txn)
        return self._replica_rows

    @property
    def limit_rows(self) -> LimitRows:
        """Charges quotas and the limits of clusters."""
        if self._limit_rows is None:
            self._limit_rows = LimitRows(self._batch, self._txn, self.counters, self._counts)
        return self._limit_rows

    def _mutate(self, mutation: Mutation) -> int:
        match mutation:
            case Put():
                return self._put(mutation)
            case Delete():
                return self._delete(mutation)
            case Check():
                self._expect(mutation.key, self._live(mutation.key), mutation.expected)
                return 0
        self.writes = True
        match mutation:
            case DeletePrefix():
                return self._delete_prefix(mutation)
            case Replica():
                return self.replica_rows.replica(mutation)
            case ClusterRoute():
                return self.replica_rows.route(mutation)
            case Mark():
                return self.replica_rows.mark(mutation)
            case SweepReplicas():
                raise ValueError("SweepReplicas must be the first mutation of a submit")

    # --- guards and preconditions

    def _holds(self, guard: GateUnchanged | RevisionUnchanged | FencingToken) -> bool:
        if isinstance(guard, FencingToken):
            return fence_rows.holds(self._txn, self._environment.marks, guard)
        if isinstance(guard, RevisionUnchanged):
            found = self._live(guard.key)
            return (found.revision if found else 0) == guard.revision
        generation = self._batch.gates.get(guard.cluster)
        if generation is None or self._batch.gated:
            row = self._txn.get(keys.cluster_row_key(guard.cluster, NO_TYPE), db=self._environment.clusters)
            generation = (unpack_gate(row) if row is not None else Gate()).generation
            self._batch.gates[guard.cluster] = generation
        return generation == guard.generation

    def _namespace_active(self, guard: NamespaceActive) -> bool:
        batch, place = self._batch, (guard.cluster, guard.namespace)
        if place in batch.active and not batch.namespaced:
            return True
        found = self._live(ObjectKey(NAMESPACES, guard.cluster, "", guard.namespace))
        if found is None or found.version.flags & _DELETING:
            return False
        batch.active.add(place)
        return True

    def _live(self, key: ObjectKey) -> LiveObject | None:
        number = self._environment.type_table.numbers.get(key.type) or self._batch.type_number(self._txn, key.type)
        if number == NO_TYPE:
            return None
        raw = keys.object_key(number, key.cluster, key.namespace, key.name)
        found = self._records.live_version(self._txn, raw)
        return None if found is None else LiveObject(raw, *found)

    def _expect(self, key: ObjectKey, found: LiveObject | None, expected: int) -> LiveObject | None:
        """Return the object if it has the expected revision. Raise ObjectExists, ObjectMissing or RevisionConflict."""
        actual = found.revision if found is not None else 0
        if actual == expected:
            return found
        if not expected:
            raise ObjectExists(key, actual)
        if not actual:
            raise ObjectMissing(key)
        raise RevisionConflict(key, expected, actual)

    # --- writes

    def _put(self, put: Put) -> int:
        batch, key, txn = self._batch, put.key, self._txn
        number = self._environment.type_table.numbers.get(key.type) or batch.type_number(txn, key.type)
        raw = keys.object_key(number, key.cluster, key.namespace, key.name)
        live = self._records.live_version(txn, raw)
        found = LiveObject(raw, *live) if live is not None else None
        if (live[0] if live is not None else 0) != put.expected:
            self._expect(key, found, put.expected)
        facts = object_facts.facts(put.value, batch.options.system_label_prefixes)
        if batch.full:
            self._require_room(put, facts)
        old = self._image(found) if found is not None else None
        self.writes, revision = True, batch.clock.next()
        flags = facts.flags
        if key.type in batch.ttl_us:
            flags |= IndexRows(batch, txn).note_expiry(key.type, raw, revision)
        after = splice(put.value, put.hole, revision)
        if key.type in batch.sealed_types:
            stored, flags = self._sealed(put, raw), flags | _SEALED
            version = Version(crc32c(stored), flags, put.hole)
        else:
            stored, version = after, Version(crc32c(put.value), flags, put.hole)
        txn.put(raw, stored, db=self._environment.objects)
        if flags & _INDEXED or (old is not None and old.version.flags & _INDEXED):
            IndexRows(batch, txn).replace(key.cluster, raw, old, facts)
        self._log(_Write(key, raw, revision, old, version, len(stored), after))
        if key.type in _RULES:
            self._set_rule(key, old, put.value, revision)
        return revision

    def _set_rule(self, key: ObjectKey, old: Image | None, value: bytes | None, revision: int) -> None:
        """Make what follows from a ResourceQuota or a LogicalCluster follow from its new JSON; None: it is deleted."""
        if key.type == RESOURCE_QUOTAS:
            self._batch.limited = True
            self.limit_rows.set_quota(key, old.plain if old is not None else None, value)
        elif key.name == "cluster":
            IndexRows(self._batch, self._txn).set_gate(key, value, revision)
            if self._batch.limited or (value is not None and _MAX_TOTAL in value):
                self._batch.limited = True
                self.limit_rows.set_total(key, value)

    def _sealed(self, put: Put, raw: bytes) -> bytes:
        if self._records.sealer is None:
            raise SealingError("a sealed type is written without a key file")
        return self._records.sealer.seal(put.key.type, raw[4:], put.value)

    def _require_room(self, put: Put, facts: object_facts.ObjectFacts) -> None:
        """In a full store: raise StoreFull, but for steps of a deletion and renewals of leases."""
        if put.expected and facts.flags & _DELETING:
            return
        if not put.expected or put.key.type not in self._batch.options.always_writable:
            raise StoreFull("the store has no room for creates and updates")

    def _delete(self, delete: Delete) -> int:
        found = self._expect(delete.key, self._live(delete.key), delete.expected)
        if found is not None and delete.value:
            self._put(Put(delete.key, delete.value, delete.hole, delete.expected))
            found = self._live(delete.key)
        if found is None:
            raise ObjectMissing(delete.key)
        return self.remove(delete.key, found)

    def remove(self, key: ObjectKey, found: LiveObject) -> int:
        """Delete an object with its index rows. Return the revision of the delete."""
        old = self._image(found)
        self.writes, raw, revision = True, found.raw, self._batch.clock.next()
        self._txn.delete(raw, db=self._environment.objects)
        IndexRows(self._batch, self._txn).replace(key.cluster, raw, old, _NO_FACTS)
        version = Version(0, _DELETED, old.version.hole)
        after = splice(old.plain, old.version.hole, revision)
        self._log(_Write(key, raw, revision, old, version, 0, after))
        if key.type in _RULES:
            self._set_rule(key, old, None, revision)
        return revision

    def _delete_prefix(self, mutation: DeletePrefix) -> int:
        scope = mutation.scope
        number = self._batch.type_number(self._txn, scope.type)
        limit = min(mutation.limit, MAX_PREFIX_DELETES)
        if number == NO_TYPE:
            return 0
        doomed = self._without_finalizer(scope, keys.scope_prefix(number, scope), limit)
        for found in doomed:
            key = self._records.object_key(self._txn, found.raw, self._image(found).plain)
            self.remove(key, found)
        return len(doomed)

    def _without_finalizer(self, scope: Scope, prefix: bytes, limit: int) -> list[LiveObject]:
        doomed: list[LiveObject] = []
        with self._txn.cursor(self._environment.objects) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and len(doomed) < limit:
                raw = bytes(cursor.key())
                if not raw.startswith(prefix):
                    break
                found = self._records.live_version(self._txn, raw)
                if found and not found[1].flags & _FINALIZERS and keys.in_scope(raw, scope, prefix):
                    doomed.append(LiveObject(raw, *found))
                on_row = cursor.next()
        return doomed

    def _image(self, found: LiveObject) -> Image:
        """Read the record that a write replaces."""
        raw, version = found.raw, found.version
        stored = self._txn.get(raw, db=self._environment.objects)
        if stored is None:
            raise self._records.corrupt(self._txn, raw, "the object is missing, its version is not")
        plain = self._records.plain(self._txn, raw, stored, version) if version.flags & _SEALED else stored
        return Image(found.revision, version, stored, plain)

    def _log(self, write: _Write) -> None:
        """Write the entry with its before-image, the versions row and the counters. Keep the change for watches."""
        environment, txn, raw, revision, old = self._environment, self._txn, write.raw, write.revision, write.old
        if write.key.type == NAMESPACES:
            self._batch.namespaced = True
        size_bytes = write.size_bytes - (len(old.stored) if old else 0)
        is_deleted = write.version.flags & _DELETED
        count = (0 if is_deleted else 1) - (1 if old else 0)
        operation = Operation.DELETED if is_deleted else Operation.MODIFIED if old else Operation.ADDED
        number, log_key = int.from_bytes(raw[: keys.TYPE_BYTES], "big"), keys.revision_key(revision)
        rows = keys.cluster_row_key(write.key.cluster, number), keys.cluster_row_key("", number)
        before_of_type = self.counters.add(rows, count, size_bytes, revision)
        if self._batch.limited and (count or (write.key.type.group, write.key.type.resource) in EVALUATORS):
            self.limit_rows.charge(write.key, old.plain if old else None, None if is_deleted else write.after)
        head = Head(operation, raw, old.revision if old else 0, before_of_type)
        entry = pack_entry(head, pack_version(old.version) if old else b"", old.stored if old else b"")
        txn.put(log_key, entry, db=environment.log, append=True)
        version = write.version
        packed = pack_version_row(version.crc, version.flags, version.hole)
        txn.put(raw + log_key, packed, db=environment.versions)
        self.log_bytes += len(entry)
        before = None
        if old is not None:
            before = splice(old.plain, old.version.hole, old.revision) if old.version.flags & _SEALED else old.stored
        published = old.version if old is not None and is_deleted else write.version
        self._changes.append(
            Change(
                revision=revision,
                operation=operation,
                key=write.key,
                before=before,
                after=write.after,
                previous=head.previous,
                previous_of_type=before_of_type,
                crc=published.crc,
                sealed=published.flags & _SEALED != 0,
            )
        )
