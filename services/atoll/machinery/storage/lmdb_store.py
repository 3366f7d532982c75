"""The store in the writer's process: opens the environment, owns the writer, runs maintenance.

The shard opens it once (`open_store`), passes it to request handlers, controllers and publisher as `contract.Store`,
and closes it last. Every change of the file goes through its writer. Invariant: at most one process has a directory
open this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.clock import Clock, HybridClock
from atoll.machinery.storage.contract import Guard, Mutation, Put, StoreFull, SweepReplicas
from atoll.machinery.storage.environment import filesystem, opening
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.space import Space
from atoll.machinery.storage.maintenance.resealing import reseal
from atoll.machinery.storage.maintenance.residency import Residency
from atoll.machinery.storage.maintenance.retention import Retention
from atoll.machinery.storage.maintenance.scrubber import Scrubber
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reader import StoreReader
from atoll.machinery.storage.reading.records import Alarm, log_alarm
from atoll.machinery.storage.writing import first_counts, limit_rows
from atoll.machinery.storage.writing.commit_batch import CommitBatch
from atoll.machinery.storage.writing.replica_sweep import sweep
from atoll.machinery.storage.writing.writer import Fatal, Stats, Writer, exit_process

#: A disk slower than this blocks the event loop for too long; commits then run in a thread.
SLOW_SYNC_S = 0.0005
_LAZY_S = 1.0
_FULL_INTERVAL_S = 1.0


class LmdbStore(StoreReader):
    """`contract.Store` over an environment this process writes."""

    def __init__(self, options: StoreOptions, environment: Environment, clock: Clock, alarm: Alarm) -> None:
        super().__init__(options, environment, alarm, clock.now_us)
        self.clock = clock
        self.revisions = HybridClock(clock, _highest_revision(environment))
        self.space = Space(environment, options, clock.steady_s)
        self._alarm = alarm
        self._writer = Writer(options, self._records, self.revisions, self.hub, self.space)
        self._retention = Retention(options, self._records, self._writer, self.space, clock.now_us)
        self.scrubber = Scrubber(self._records)
        self._residency = Residency(environment.directory / filesystem.DATA_FILE)
        self._lazy: asyncio.TimerHandle | None = None
        self._counting = asyncio.Lock()
        self._closed = False

    @property
    def stats(self) -> Stats:
        """Commits, submits, batches and failures since the store was opened."""
        return self._writer.stats

    @property
    def queued(self) -> int:
        """Submits that wait for a transaction."""
        return self._writer.queued

    async def submit(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> list[int]:
        if not mutations or not isinstance(mutations[0], SweepReplicas):
            counts: first_counts.Counts = {}
            for each in mutations:
                if type(each) is Put and each.key.type == RESOURCE_QUOTAS:
                    counts = await first_counts.counted(self._records, mutations, self._counting)
                    break
            return await self._writer.submit(mutations, guards, counts)
        dropped, rest = await sweep(self._environment, self._writer, mutations[0]), mutations[1:]
        return [dropped, *(await self._writer.submit(rest, guards, {}))] if rest else [dropped]

    def queue(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> asyncio.Future[list[int]]:
        if self._writer.is_full or (mutations and isinstance(mutations[0], SweepReplicas)):
            return asyncio.get_running_loop().create_task(self.submit(mutations, guards))
        for each in mutations:
            if type(each) is Put and each.key.type == RESOURCE_QUOTAS:
                return asyncio.get_running_loop().create_task(self.submit(mutations, guards))
        return self._writer.queue(mutations, guards)

    def get_mark(self, name: str) -> bytes | None:
        waiting = self._writer.marks.get(name)
        return waiting if waiting is not None else super().get_mark(name)

    def set_mark(self, name: str, value: bytes) -> None:
        """Save a position under a name: durable with the next commit, within about a second."""
        self._writer.marks[name] = value
        self._save_lazily()

    @property
    def published(self) -> int:
        """The revision up to which everything was published; -1 in a store that is never published."""
        if self._writer.published is not None:
            return self._writer.published
        with self._environment.reading() as txn:
            return self._environment.all_meta(txn).published

    def set_published(self, revision: int) -> None:
        """Set how far compaction may go. Saved lazily, like a mark."""
        self._writer.published = revision
        self._save_lazily()

    def _save_lazily(self) -> None:
        if self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(_LAZY_S, self._save)

    def _save(self) -> None:
        self._lazy = None
        self._writer.nudge()

    # --- maintenance

    async def maintain(self) -> None:
        """Run one round: clear dead readers, verify some objects, release mapped pages, delete expired objects,
        compact.
        """
        self._environment.env.reader_check()
        self.scrubber.step()
        self._residency.trim()
        await self._retention.expire()
        await self._retention.compact(self._alarm)

    async def run_maintenance(self) -> None:
        """Run rounds forever, more often while the store is full. Cancel it to stop."""
        while True:
            try:
                await self.maintain()
            except StoreFull:
                self._alarm("maintenance found no room", used_bytes=self.space.used_bytes)
            await asyncio.sleep(_FULL_INTERVAL_S if self.space.full else self.options.maintenance_interval_s)

    async def expire(self) -> int:
        """Delete expired objects (Events). Return their number."""
        return await self._retention.expire()

    async def compact(self) -> int:
        """Drop log entries past retention. Return their number."""
        return await self._retention.compact(self._alarm)

    async def reseal(self, pause_s: float = 0.0) -> int:
        """Read the key file and seal objects of sealed types under its primary key, with pauses between the steps.
        Return the number changed. Raises KeyFileInvalid, StoreFull."""
        self.reload_keys()
        return await reseal(self._records, self._writer, self.options.sealed_types, pause_s)

    def _derive_limits(self) -> None:
        """Make the rows of limits where another version made others: once in the life of a file."""
        with self._environment.env.begin(write=True) as txn:
            if self._environment.get_meta(txn, "limits", 0) != limit_rows.VERSION:
                limit_rows.derive(self._records, CommitBatch(self.options, self._records, self.revisions), txn)
                self._environment.put_meta(txn, "limits", limit_rows.VERSION)

    async def close(self) -> None:
        """Finish queued submits, save marks, close the file and release the directory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._lazy is not None:
            self._lazy.cancel()
        await self._writer.close()
        self.hub.close()
        self._environment.close()


def open_store(
    options: StoreOptions, *, clock: Clock | None = None, alarm: Alarm = log_alarm, fatal: Fatal = exit_process
) -> LmdbStore:
    """Open or create the store of a shard for writing.

    Raise StoreInUse, UnsupportedFileSystem, UnknownFormat, WrongShard or KeyFileInvalid; then nothing was changed.
    `fatal` is called when a commit failed for another reason than space, and must not return control to writers.
    """
    clock = clock or Clock(alarm=lambda step_s: alarm("wall clock step refused until restart", step_s=round(step_s, 3)))
    environment = opening.open_for_writing(options, clock.now_us())
    try:
        store = LmdbStore(options, environment, clock, alarm)
        store._derive_limits()
        store._writer.fatal = fatal
        store._writer.threaded = _slow(options, environment)
    except BaseException:
        environment.close()
        raise
    return store


def _slow(options: StoreOptions, environment: Environment) -> bool:
    if options.commit_in_thread is not None:
        return options.commit_in_thread
    try:
        sync_s = filesystem.measure_sync_s(environment.directory)
    except OSError as error:
        # A store without any room serves what it has, and deletions make room.
        structlog.get_logger().warning("disk not measured", reason=str(error))
        return True
    structlog.get_logger().info("disk measured", sync_s=round(sync_s, 6))
    return sync_s > SLOW_SYNC_S


def _highest_revision(environment: Environment) -> int:
    """Return the revision that every new one must exceed: the last one, or the end of a void."""
    with environment.reading() as txn:
        ends = [void.first_new - 1 for void in environment.voids(txn)]
        return max(environment.last(txn), *ends) if ends else environment.last(txn)
