"""One submit applied in its child transaction: guards, preconditions, objects, log, versions, indexes,
counters.

`writer` makes an `SubmitTransaction` for each submit of a batch. Whatever it raises, the child is aborted and
nothing of the submit is left; on success its counters and changes join the batch's. Invariant: an object's
resourceVersion is the revision of the log entry that wrote it, and all rows of a write are in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import splice
from atoll.machinery.meta.types import NAMESPACES
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
from atoll.machinery.storage.encoding.rows import Head, Version, pack_entry, pack_version, unpack_gate
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.sealing import SealingError
from atoll.machinery.storage.writing.commit_batch import CommitBatch, Counters, Image, IndexRows
from atoll.machinery.storage.writing.replica_rows import ReplicaRows

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


#: Objects that one DeletePrefix removes at most.
MAX_PREFIX_DELETES = 500
_FINALIZERS, _DELETING, _SEALED, _DELETED = (
    flag.value for flag in (Flag.FINALIZERS, Flag.DELETING, Flag.SEALED, Flag.DELETED)
)
_NO_FACTS = object_facts.ObjectFacts(0)


class SubmitTransaction:
    """Applies one submit. Use once."""

    def __init__(self, batch: CommitBatch, txn: Txn) -> None:
        self._batch, self._txn = batch, txn
        self._records, self._environment = batch.records, batch.records.environment
        self.counters = Counters(batch, txn)
        self._derived = IndexRows(batch, txn)
        self._changes: list[Change] = []
        self._replication: ReplicaRows | None = None
        self.log_bytes = 0

    def run(self, mutations: Sequence[Mutation], guards: Sequence[Guard]) -> list[int]:
        """Do everything or raise; gives one revision (or number) a mutation."""
        for guard in guards:
            if isinstance(guard, GateUnchanged | RevisionUnchanged) and not self._holds(guard):
                raise GuardFailed(guard)
        results = [self._mutate(mutation) for mutation in mutations]
        for guard in guards:
            if isinstance(guard, NamespaceActive) and not self._namespace_active(guard):
                raise GuardFailed(guard)
            if isinstance(guard, ClusterEmpty) and self.counters.holds_any(guard.cluster):
                raise GuardFailed(guard)
        return results

    def join(self) -> None:
        """Hand counters and changes to the batch, after the child committed."""
        self._batch.counters.update(self.counters.changed)
        self._batch.changes.extend(self._changes)
        self._batch.log_bytes += self.log_bytes
        if self._replication is not None:
            self._batch.applied = self._replication.applied

    @property
    def replication(self) -> ReplicaRows:
        """What applies the mutations that speak of other shards."""
        if self._replication is None:
            self._replication = ReplicaRows(self._batch, self._txn)
        return self._replication

    def _mutate(self, mutation: Mutation) -> int:
        match mutation:
            case Put():
                return self._put(mutation)
            case Delete():
                return self._delete(mutation)
            case Check():
                self._expect(mutation.key, mutation.expected)
                return 0
            case DeletePrefix():
                return self._delete_prefix(mutation)
            case Replica():
                return self.replication.replica(mutation)
            case ClusterRoute():
                return self.replication.route(mutation)
            case Mark():
                return self.replication.mark(mutation)
            case SweepReplicas():
                raise ValueError("only the first mutation of a submit sweeps")

    # --- guards and preconditions

    def _holds(self, guard: GateUnchanged | RevisionUnchanged) -> bool:
        if isinstance(guard, RevisionUnchanged):
            found = self._standing(guard.key)
            return (found[1] if found else 0) == guard.revision
        row = self._txn.get(keys.cluster_row_key(guard.cluster, NO_TYPE), db=self._environment.clusters)
        return (unpack_gate(row) if row is not None else Gate()).generation == guard.generation

    def _namespace_active(self, guard: NamespaceActive) -> bool:
        found = self._standing(ObjectKey(NAMESPACES, guard.cluster, "", guard.namespace))
        return found is not None and not found[2].flags & _DELETING

    def _standing(self, key: ObjectKey) -> tuple[bytes, int, Version] | None:
        number = self._batch.type_number(self._txn, key.type)
        if number == NO_TYPE:
            return None
        raw = keys.object_key(number, key.cluster, key.namespace, key.name)
        found = self._records.live_version(self._txn, raw)
        return None if found is None else (raw, *found)

    def _expect(self, key: ObjectKey, expected: int) -> tuple[bytes, int, Version] | None:
        """What stands, if it is what the author saw. Raises ObjectExists, ObjectMissing or RevisionConflict."""
        found = self._standing(key)
        actual = found[1] if found is not None else 0
        if actual == expected:
            return found
        if not expected:
            raise ObjectExists(key, actual)
        if not actual:
            raise ObjectMissing(key)
        raise RevisionConflict(key, expected, actual)

    # --- writes

    def _put(self, put: Put) -> int:
        batch, key = self._batch, put.key
        found = self._expect(key, put.expected)
        facts = object_facts.facts(put.value, batch.options.system_label_prefixes)
        self._require_room(put, facts)
        old = self._image(found)
        revision = batch.clock.next()
        raw = found[0] if found else self._key(key)
        flags = facts.flags | self._derived.expire(key.type, raw, revision)
        stored, version = self._form(put, raw, flags, revision)
        self._txn.put(raw, stored, db=self._environment.objects)
        self._derived.replace(key.cluster, raw, self._derived.facts(old), facts)
        self._derived.gate(key, put.value, revision)
        operation = Operation.ADDED if old is None else Operation.MODIFIED
        after = splice(put.value, put.hole, revision) if version.sealed else stored
        self._log(raw, old, version, (len(stored), 0 if old else 1), Change(revision, operation, key, None, after))
        return revision

    def _key(self, key: ObjectKey) -> bytes:
        return keys.object_key(self._batch.type_number(self._txn, key.type), key.cluster, key.namespace, key.name)

    def _form(self, put: Put, raw: bytes, flags: int, revision: int) -> tuple[bytes, Version]:
        """The bytes to store with the row that describes them."""
        if put.key.type not in self._batch.sealed_types:
            return splice(put.value, put.hole, revision), Version(crc32c(put.value), flags, put.hole)
        if self._records.sealer is None:
            raise SealingError("a sealed type is written without a key file")
        sealed = self._records.sealer.seal(put.key.type, raw[4:], put.value)
        return sealed, Version(crc32c(sealed), flags | _SEALED, put.hole)

    def _require_room(self, put: Put, facts: object_facts.ObjectFacts) -> None:
        """A full store takes no creates and no updates, but steps of a deletion and renewals of leases."""
        if not self._batch.full or (put.expected and facts.flags & _DELETING):
            return
        if not put.expected or put.key.type not in self._batch.options.always_writable:
            raise StoreFull("the store has no room for creates and updates")

    def _delete(self, delete: Delete) -> int:
        found = self._expect(delete.key, delete.expected)
        if found is None:
            raise ObjectMissing(delete.key)
        return self.remove(delete.key, found)

    def remove(self, key: ObjectKey, found: tuple[bytes, int, Version]) -> int:
        """Delete an object that was found as `(key, revision, row)`, with all that a delete entails."""
        old = self._image(found)
        assert old is not None
        raw, revision = found[0], self._batch.clock.next()
        self._txn.delete(raw, db=self._environment.objects)
        self._derived.replace(key.cluster, raw, self._derived.facts(old), _NO_FACTS)
        self._derived.gate(key, None, revision)
        version = Version(0, _DELETED, old.version.hole)
        after = splice(old.plain, old.version.hole, revision)
        self._log(raw, old, version, (0, -1), Change(revision, Operation.DELETED, key, None, after))
        return revision

    def _delete_prefix(self, mutation: DeletePrefix) -> int:
        scope = mutation.scope
        number = self._batch.type_number(self._txn, scope.type)
        limit = min(mutation.limit, MAX_PREFIX_DELETES)
        if number == NO_TYPE:
            return 0
        doomed = self._without_finalizer(scope, keys.scope_prefix(number, scope), limit)
        for found in doomed:
            image = self._image(found)
            assert image is not None
            self.remove(self._records.object_key(self._txn, found[0], image.plain), found)
        return len(doomed)

    def _without_finalizer(self, scope: Scope, prefix: bytes, limit: int) -> list[tuple[bytes, int, Version]]:
        doomed: list[tuple[bytes, int, Version]] = []
        with self._txn.cursor(self._environment.objects) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and len(doomed) < limit:
                raw = bytes(cursor.key())
                if not raw.startswith(prefix):
                    break
                found = self._records.live_version(self._txn, raw)
                if found and not found[1].flags & _FINALIZERS and keys.in_scope(raw, scope, prefix):
                    doomed.append((raw, *found))
                on_row = cursor.next()
        return doomed

    def _image(self, found: tuple[bytes, int, Version] | None) -> Image | None:
        """The record that is about to be replaced."""
        if found is None:
            return None
        raw, revision, version = found
        stored = self._txn.get(raw, db=self._environment.objects)
        if stored is None:
            raise self._records.corrupt(self._txn, raw, "the object is gone, its version is not")
        return Image(revision, version, stored, self._records.plain(self._txn, raw, stored, version))

    def _log(self, raw: bytes, old: Image | None, version: Version, growth: tuple[int, int], change: Change) -> None:
        """Write the entry with its before-image, the versions row and the counters, and note the change."""
        environment, txn, key, revision = self._environment, self._txn, change.key, change.revision
        size_bytes, count = growth[0] - (len(old.stored) if old else 0), growth[1]
        number = keys.type_number_of(raw)
        before_of_type = self.counters.add(keys.cluster_row_key(key.cluster, number), count, size_bytes, revision)
        self.counters.add(keys.cluster_row_key("", number), count, size_bytes, revision)
        head = Head(change.operation, raw, old.revision if old else 0, before_of_type)
        row = old.version if old else None
        entry = pack_entry(head, pack_version(*_fields(row)) if row else b"", old.stored if old else b"")
        txn.put(keys.revision_key(revision), entry, db=environment.log, append=True)
        txn.put(raw + keys.revision_key(revision), pack_version(*_fields(version)), db=environment.versions)
        self.log_bytes += len(entry)
        before = None
        if old is not None:
            before = splice(old.plain, old.version.hole, old.revision) if old.version.sealed else old.stored
        told = old.version if old is not None and version.deleted else version
        self._changes.append(
            Change(
                revision,
                change.operation,
                key,
                before,
                change.after,
                head.previous,
                before_of_type,
                told.crc,
                told.sealed,
            )
        )


def _fields(version: Version) -> tuple[int, int, int]:
    return version.crc, version.flags, version.hole
