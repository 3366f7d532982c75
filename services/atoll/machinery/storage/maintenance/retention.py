"""Compaction of the log, and deletion of expired objects.

`LmdbStore.maintain` runs it in rounds; each step is a bounded job in the writer's next transaction, so a writer waits
for one step at most. Invariant: compaction drops a prefix of the log and nothing above it; an expired object leaves by
an ordinary delete, with a log entry.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.storage.contract import CorruptRecord, Flag, Operation
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Head, unpack_head
from atoll.machinery.storage.environment.databases import Environment, Meta
from atoll.machinery.storage.environment.space import Space
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Alarm, Records
from atoll.machinery.storage.writing.commit_batch import LiveObject
from atoll.machinery.storage.writing.submit_transaction import SubmitTransaction
from atoll.machinery.storage.writing.writer import Writer

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Rows one step handles: a few milliseconds of the writer.
_STEP_ROWS = 256
#: Entries one round may drop while the store is full; the next round measures again.
_ROUND_ROWS_WHEN_FULL = 16_384


class CompactionTarget(msgspec.Struct, frozen=True):
    """The revision up to which a round compacts: `by_age`, and up to `target` while the log exceeds its bytes."""

    target: int
    by_age: int
    limit_bytes: int


class ExpiryStep(msgspec.Struct, frozen=True):
    """The result of one step: `expiry` rows read, and objects deleted."""

    hints: int
    deleted: int


class Retention:
    """Compaction and expiry of one store. Belongs to the writer's process."""

    def __init__(
        self, options: StoreOptions, records: Records, writer: Writer, space: Space, now_us: Callable[[], int]
    ) -> None:
        self._options, self._records, self._writer, self._space = options, records, writer, space
        self._environment: Environment = records.environment
        self._now_us = now_us

    async def compact(self, alarm: Alarm) -> int:
        """Run one round: drop entries by age, by bytes or for a full disk. Return the number of entries dropped."""
        target = self._target(alarm)
        dropped = 0
        while target is not None:
            step: int = await self._writer.run(lambda transaction, txn: self._drop(transaction, txn, target))
            dropped += step
            if step < _STEP_ROWS or (self._space.full and dropped >= _ROUND_ROWS_WHEN_FULL):
                break
        if dropped:
            self._space.measure()
        return dropped

    def _target(self, alarm: Alarm) -> CompactionTarget | None:
        with self._environment.reading() as txn:
            meta, first = self._environment.all_meta(txn), self._first(txn)
        if not first:
            return None
        self._space.measure()
        published = self._published_floor(meta)
        if self._space.full:
            return self._target_when_full(meta, first, published, alarm)
        by_age = self._now_us() - self._options.log_retention_s * 1_000_000
        return CompactionTarget(min(published, meta.last), min(by_age, published), self._options.log_retention_bytes)

    def _published_floor(self, meta: Meta) -> int:
        """Return the saved published revision, from which a publisher resumes after a crash.

        Before the first save it is the one that will be saved; in a store without a publisher, the last revision.
        """
        if meta.published >= 0:
            return meta.published
        return meta.last if self._writer.published is None else self._writer.published

    def _target_when_full(self, meta: Meta, first: int, published: int, alarm: Alarm) -> CompactionTarget:
        """Prefer room to history; drop unpublished entries last, with an alarm."""
        if first <= published:
            return CompactionTarget(published, published, 0)
        alarm("log compacted past published", published=published, last=meta.last)
        return CompactionTarget(meta.last, meta.last, 0)

    def _first(self, txn: Txn) -> int:
        """Return the lowest revision in the log, 0 if it is empty."""
        with txn.cursor(self._environment.log) as cursor:
            return keys.revision_of_key(cursor.key()) if cursor.first() else 0

    def _drop(self, transaction: SubmitTransaction, txn: Txn, target: CompactionTarget) -> int:
        """Run one step in the writer's transaction. Return the number of entries dropped."""
        excess = self._environment.all_meta(txn).log_bytes - target.limit_bytes
        doomed: list[tuple[int, Head]] = []
        size_bytes = 0
        with txn.cursor(self._environment.log) as cursor:
            for key, value in cursor:
                revision = keys.revision_of_key(key)
                if len(doomed) >= _STEP_ROWS or revision > target.target:
                    break
                if revision > target.by_age and size_bytes >= excess:
                    break
                doomed.append((revision, unpack_head(value)))
                size_bytes += len(value)
        if doomed:
            self._environment.put_meta(txn, "compacted", doomed[-1][0])
            transaction.log_bytes -= size_bytes
        for revision, head in doomed:
            self._drop_entry(transaction, txn, revision, head)
        return len(doomed)

    def _drop_entry(self, transaction: SubmitTransaction, txn: Txn, revision: int, head: Head) -> None:
        """Drop an entry and the version it replaced; of a delete, its own version and empty counters too."""
        txn.delete(keys.revision_key(revision), db=self._environment.log)
        if head.previous:
            txn.delete(head.key + keys.revision_key(head.previous), db=self._environment.versions)
        if head.operation != Operation.DELETED:
            return
        txn.delete(head.key + keys.revision_key(revision), db=self._environment.versions)
        parts = keys.split(head.key)
        for cluster in (parts.cluster, ""):
            transaction.counters.drop(keys.cluster_row_key(cluster, parts.type_number), revision)

    async def expire(self) -> int:
        """Delete expired objects. Return their number."""
        expired = 0
        while True:
            step: ExpiryStep = await self._writer.run(self._expire_step)
            expired += step.deleted
            if step.hints < _STEP_ROWS:
                return expired

    def _expire_step(self, transaction: SubmitTransaction, txn: Txn) -> ExpiryStep:
        now_us, deleted = self._now_us(), 0
        due = self._due(txn, now_us)
        ttl_us = {expiring.type: expiring.ttl_s * 1_000_000 for expiring in self._options.expiring}
        for hint, raw in due:
            txn.delete(hint, db=self._environment.expiry)
            found = self._records.live_version(txn, raw)
            if found is None or not found[1].flags & Flag.EXPIRES or found[1].flags & Flag.FINALIZERS:
                continue
            key = self._records.object_key(txn, raw)
            if found[0] + ttl_us.get(key.type, now_us) <= now_us:
                with suppress(CorruptRecord):  # The alarm is raised; one damaged object must not stop others.
                    transaction.remove(key, LiveObject(raw, *found))
                    deleted += 1
        return ExpiryStep(len(due), deleted)

    def _due(self, txn: Txn, now_us: int) -> list[tuple[bytes, bytes]]:
        due: list[tuple[bytes, bytes]] = []
        with txn.cursor(self._environment.expiry) as cursor:
            for key, _ in cursor:
                if len(due) >= _STEP_ROWS or int.from_bytes(key[:8], "big") > now_us:
                    break
                due.append((key, key[8:]))
        return due
