"""What the store forgets: old log entries with their versions, and objects that expire.

`LmdbStore.maintain` runs this in rounds; each step is a bounded job in the writer's next transaction, so
writers never wait for more than one step. Invariant: compaction drops a prefix of the log and nothing above
it; an expired object leaves through an ordinary delete, with a log entry.
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
from atoll.machinery.storage.writing.submit_transaction import SubmitTransaction
from atoll.machinery.storage.writing.writer import Writer

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Rows one step handles: a few milliseconds of the writer.
_STEP_ROWS = 256
#: Entries one round may drop while the store is full; the next round measures again.
_ROUND_ROWS_WHEN_FULL = 16_384


class CompactionTarget(msgspec.Struct, frozen=True):
    """How far a round compacts: at most to `target`, and past `by_age` only while the log holds too many
    bytes.
    """

    target: int
    by_age: int
    limit_bytes: int


class Retention:
    """Compaction and expiry of one store. Belongs to the writer's process."""

    def __init__(
        self, options: StoreOptions, records: Records, writer: Writer, space: Space, now_us: Callable[[], int]
    ) -> None:
        self._options, self._records, self._writer, self._space = options, records, writer, space
        self._environment: Environment = records.environment
        self._now_us = now_us

    async def compact(self, alarm: Alarm) -> int:
        """One round: drop what age, bytes or a full disk demand; gives the number of entries dropped."""
        goal = self._goal(alarm)
        dropped = 0
        while goal is not None:
            step: int = await self._writer.run(lambda application, txn: self._drop(application, txn, goal))
            dropped += step
            if step < _STEP_ROWS or (self._space.full and dropped >= _ROUND_ROWS_WHEN_FULL):
                break
        if dropped:
            self._space.measure()
        return dropped

    def _goal(self, alarm: Alarm) -> CompactionTarget | None:
        with self._environment.reading() as txn:
            meta, first = self._environment.all_meta(txn), self._first(txn)
        if not first:
            return None
        self._space.measure()
        published = self._published_floor(meta)
        if self._space.full:
            return self._goal_when_full(meta, first, published, alarm)
        by_age = self._now_us() - self._options.log_retention_s * 1_000_000
        return CompactionTarget(min(published, meta.last), min(by_age, published), self._options.log_retention_bytes)

    def _published_floor(self, meta: Meta) -> int:
        """What is saved, as that is what a publisher starts from after a crash; before the first save, what
        is about to be. All of the log where nobody publishes.
        """
        if meta.published >= 0:
            return meta.published
        return meta.last if self._writer.published is None else self._writer.published

    def _goal_when_full(self, meta: Meta, first: int, published: int, alarm: Alarm) -> CompactionTarget:
        """Room matters more than history; entries not yet published go last, and with an alarm."""
        if first <= published:
            return CompactionTarget(published, published, 0)
        alarm("log compacted past published", published=published, last=meta.last)
        return CompactionTarget(meta.last, meta.last, 0)

    def _first(self, txn: Txn) -> int:
        """The lowest revision in the log, 0 if it is empty."""
        with txn.cursor(self._environment.log) as cursor:
            return keys.revision_of_key(cursor.key()) if cursor.first() else 0

    def _drop(self, application: SubmitTransaction, txn: Txn, goal: CompactionTarget) -> int:
        """One step, in the writer's transaction."""
        excess = self._environment.all_meta(txn).log_bytes - goal.limit_bytes
        doomed: list[tuple[int, Head]] = []
        size_bytes = 0
        with txn.cursor(self._environment.log) as cursor:
            for key, value in cursor:
                revision = keys.revision_of_key(key)
                if len(doomed) >= _STEP_ROWS or revision > goal.target:
                    break
                if revision > goal.by_age and size_bytes >= excess:
                    break
                doomed.append((revision, unpack_head(value)))
                size_bytes += len(value)
        if doomed:
            self._environment.put_meta(txn, "compacted", doomed[-1][0])
            application.log_bytes -= size_bytes
        for revision, head in doomed:
            self._forget(application, txn, revision, head)
        return len(doomed)

    def _forget(self, application: SubmitTransaction, txn: Txn, revision: int, head: Head) -> None:
        """Drop an entry, the version it replaced, and the trace of a delete, empty counters."""
        txn.delete(keys.revision_key(revision), db=self._environment.log)
        if head.previous:
            txn.delete(head.key + keys.revision_key(head.previous), db=self._environment.versions)
        if head.operation != Operation.DELETED:
            return
        txn.delete(head.key + keys.revision_key(revision), db=self._environment.versions)
        parts = keys.split(head.key)
        for cluster in (parts.cluster, ""):
            application.counters.drop(keys.cluster_row_key(cluster, parts.type_number), revision)

    async def expire(self) -> int:
        """Delete objects whose time has come; gives how many."""
        expired = 0
        while True:
            step: tuple[int, int] = await self._writer.run(self._expire_step)
            looked_at, removed = step
            expired += removed
            if looked_at < _STEP_ROWS:
                return expired

    def _expire_step(self, application: SubmitTransaction, txn: Txn) -> tuple[int, int]:
        now_us, removed = self._now_us(), 0
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
                    application.remove(key, (raw, *found))
                    removed += 1
        return len(due), removed

    def _due(self, txn: Txn, now_us: int) -> list[tuple[bytes, bytes]]:
        due: list[tuple[bytes, bytes]] = []
        with txn.cursor(self._environment.expiry) as cursor:
            for key, _ in cursor:
                if len(due) >= _STEP_ROWS or int.from_bytes(key[:8], "big") > now_us:
                    break
                due.append((key, key[8:]))
        return due
