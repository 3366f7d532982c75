"""Group commit: submits queue, one transaction takes all that wait, one fsync makes them durable.

`LmdbStore.submit` and `workers.submit_server` enqueue; results go to the waiting callers, changes to the hub. Commits
run in the event loop, or in one thread of their own where the disk is slow. Invariant: no caller is answered and
nothing is published before the commit returned; of a submit that failed nothing is committed, of every other all.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import lmdb
import msgspec
import structlog

from atoll.machinery.process import logging
from atoll.machinery.process.durations import Durations
from atoll.machinery.storage.clock import HybridClock
from atoll.machinery.storage.contract import Check, Delete, Guard, Mutation, Put, Replica, StoreFull
from atoll.machinery.storage.environment.recent_rows import NONE
from atoll.machinery.storage.environment.space import Space
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.watching.hub import Hub
from atoll.machinery.storage.writing.commit_batch import CommitBatch
from atoll.machinery.storage.writing.commit_thread import CommitThread
from atoll.machinery.storage.writing.first_counts import Counts
from atoll.machinery.storage.writing.submit_transaction import SubmitTransaction

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


#: Bytes of values after which a transaction takes no further submit: dirty pages stay in memory until the commit.
_MAX_BATCH_BYTES = 16 << 20
EXIT_DISK_FAILED = 74
#: Mutations that carry the value of an object.
_WITH_VALUE = (Put, Replica)

_NO_COUNTS: Counts = {}

Fatal = Callable[[str], None]
#: Maintenance inside a child transaction; `Writer.run` returns its result.
Job: TypeAlias = "Callable[[SubmitTransaction, Txn], Any]"
Apply: TypeAlias = "Callable[[Txn, CommitBatch, QueuedSubmit], None]"


class StoreClosed(Exception):
    """The store was closed, or its disk failed, before the submit was taken or while its outcome was open."""


def exit_process(reason: str) -> None:
    """End the process at once. After a failed fsync nothing in memory can be trusted to be on disk."""
    logging.flush()
    structlog.get_logger().critical("store failed", reason=reason)
    os._exit(EXIT_DISK_FAILED)


class _Torn(Exception):
    """The transaction is given up: a submit failed after it had begun to write, or has to be applied in a child."""


class QueuedSubmit:
    """One queued submit, or a maintenance job."""

    __slots__ = ("counts", "error", "future", "guards", "job", "mutations", "result", "size_bytes")

    def __init__(
        self, mutations: Sequence[Mutation], guards: Sequence[Guard], job: Job | None, future: asyncio.Future[Any]
    ) -> None:
        self.mutations, self.guards, self.job, self.future = mutations, guards, job, future
        self.counts = _NO_COUNTS
        self.size_bytes = 0
        for mutation in mutations:
            if isinstance(mutation, _WITH_VALUE):
                self.size_bytes += len(mutation.value)
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self) -> None:
        """Resolve the caller's future, unless it was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class LazyPositions(msgspec.Struct, frozen=True):
    """Positions written with the next commit: rows of `marks`, and the published revision."""

    marks: dict[str, bytes]
    published: int | None


class Stats(msgspec.Struct):
    """Counters of the writer, for metrics."""

    commits: int = 0
    submits: int = 0
    largest_batch: int = 0
    failed_commits: int = 0
    #: Durable ends of commits: of one a second, as their number makes them no faster.
    syncs: Durations = msgspec.field(default_factory=Durations)


class Writer:
    """Opens every write transaction. Lives in one event loop."""

    def __init__(self, options: StoreOptions, records: Records, clock: HybridClock, hub: Hub, space: Space) -> None:
        self._options, self._records, self._clock, self._hub, self._space = (options, records, clock, hub, space)
        self.stats = Stats()
        self.fatal: Fatal = exit_process
        self.threaded = False
        self.marks: dict[str, bytes] = {}
        self.published: int | None = None
        self._queue: deque[QueuedSubmit] = deque()
        self._queued_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._busy = False
        self._closed = False
        self._thread: CommitThread[CommitBatch | None] = CommitThread()

    @property
    def queued(self) -> int:
        """Submits that wait for a transaction."""
        return len(self._queue)

    async def submit(self, mutations: Sequence[Mutation], guards: Sequence[Guard], counts: Counts) -> list[int]:
        """Queue a submit and wait until it is durable. Waits for room in the queue first.

        `counts` are those that its quotas would otherwise make in their transaction.
        """
        while self.is_full:
            await self._room_made()
        results: list[int] = await self.queue(mutations, guards, counts=counts)
        return results

    async def run(self, job: Job) -> Any:
        """Run maintenance in a child transaction of the next commit. Return its result."""
        while self.is_full:
            await self._room_made()
        return await self.queue((), (), job)

    def nudge(self) -> None:
        """Commit lazy positions now, if there are any."""
        if self.marks or self.published is not None:
            loop = asyncio.get_running_loop()
            self._queue.append(QueuedSubmit((), (), _nothing, loop.create_future()))
            self._kick(loop)

    async def close(self) -> None:
        """Finish queued submits, write lazy positions, stop the thread."""
        if not self._closed:
            await self.run(_nothing)
            self._closed = True
        self._thread.stop()

    def queue(
        self,
        mutations: Sequence[Mutation],
        guards: Sequence[Guard],
        job: Job | None = None,
        counts: Counts = _NO_COUNTS,
    ) -> asyncio.Future[Any]:
        """Queue a submit without a look at the room in the queue. Raise StoreClosed, ValueError."""
        if len(mutations) > 1:
            _require_distinct_keys(mutations)
        if self._closed:
            raise StoreClosed
        loop = asyncio.get_running_loop()
        submit = QueuedSubmit(mutations, guards, job, loop.create_future())
        submit.counts = counts
        self._queue.append(submit)
        self._queued_bytes += submit.size_bytes
        self._kick(loop)
        return submit.future

    async def _room_made(self) -> None:
        """Wait until a round took submits from the queue."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(waiter)
        await waiter

    @property
    def is_full(self) -> bool:
        """Whether a submit has to wait for room in the queue."""
        options = self._options
        return len(self._queue) >= options.max_queued_submits or self._queued_bytes >= options.max_queued_bytes

    def _kick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a round behind all callbacks that are ready now, so that their submits join the batch."""
        if not self._busy and self._queue:
            self._busy = True
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        taken, lazy = self._take(), LazyPositions(dict(self.marks), self.published)
        if not self.threaded:
            self._finish(loop, taken, lazy, self._commit(taken, lazy))
            return
        self._thread.run(loop, partial(self._commit, taken, lazy), partial(self._finish, loop, taken, lazy))

    def _take(self) -> list[QueuedSubmit]:
        taken: list[QueuedSubmit] = []
        size_bytes = 0
        while self._queue and len(taken) < self._options.max_batch_submits and size_bytes < _MAX_BATCH_BYTES:
            taken.append(self._queue.popleft())
            size_bytes += taken[-1].size_bytes
        self._queued_bytes -= size_bytes
        return taken

    def _commit(self, taken: list[QueuedSubmit], lazy: LazyPositions) -> CommitBatch | None:
        """Run one transaction, or a second one if a submit tore the first. Return the batch, or None if it failed as a
        whole. May run in the thread."""
        batch = CommitBatch(self._options, self._records, self._clock)
        try:
            batch.full = full = self._space.check()
            self._clock.sync()
            try:
                self._transact(batch, taken, lazy, self._apply_in_place)
            except _Torn:
                batch.finish(committed=False)
                batch = CommitBatch(self._options, self._records, self._clock)
                batch.full = full
                self._transact(batch, taken, lazy, self._apply)
        except Exception as error:
            if isinstance(error, lmdb.Error) and self._space.has_refused(error):
                # Pages are written before the meta page, so a transaction that finds no space never happened.
                batch.finish(committed=False)
                self._space.refuse()
                self._fail(taken, StoreFull(str(error)))
                return None
            self._fail(taken, StoreClosed(f"outcome unknown: {error}"))
            self._closed = True
            self.fatal(f"commit failed: {error!r}")
            return None
        if batch.fresh_types:
            batch.finish(committed=True)
        return batch

    def _transact(self, batch: CommitBatch, taken: list[QueuedSubmit], lazy: LazyPositions, apply: Apply) -> None:
        environment = self._records.environment
        with environment.env.begin(write=True) as txn:
            batch.limited = batch.limited or environment.has_limits(txn)
            numbers = environment.type_table.numbers
            for submit in taken:
                for mutation in submit.mutations:
                    if isinstance(mutation, _WITH_VALUE) and mutation.key.type not in numbers:
                        batch.intern(txn, mutation.key.type)
                apply(txn, batch, submit)
            self._write_meta(txn, batch, lazy)
            transaction = txn.id()
            began_s = time.perf_counter() if self._space.measured else 0.0
        if began_s:
            self.stats.syncs.add(time.perf_counter() - began_s)
        # LMDB gives a transaction that wrote nothing no number: the next one has it.
        if batch.changes or environment.env.info()["last_txnid"] == transaction:
            batch.transaction = transaction

    def _fail(self, taken: list[QueuedSubmit], error: Exception) -> None:
        self.stats.failed_commits += 1
        for submit in taken:
            submit.error = error

    def _apply_in_place(self, txn: Txn, batch: CommitBatch, submit: QueuedSubmit) -> None:
        """Apply a submit in the batch's own transaction. Raise _Torn if rows of one that failed would stay, and for
        what is not applied twice: a job, and a submit with counts."""
        if submit.job is not None or submit.counts:
            raise _Torn
        transaction = SubmitTransaction(batch, txn, submit.counts)
        try:
            submit.result = transaction.run(submit.mutations, submit.guards)
        except Exception as error:
            if transaction.writes or isinstance(error, lmdb.Error):
                raise _Torn from error
            submit.error = error
        else:
            transaction.join()

    def _apply(self, txn: Txn, batch: CommitBatch, submit: QueuedSubmit) -> None:
        """Apply a submit, or a job, in a child transaction: if it fails, nothing of it remains."""
        submit.error = None
        child = self._records.environment.env.begin(write=True, parent=txn)
        transaction = SubmitTransaction(batch, child, submit.counts)
        try:
            if submit.job is not None:
                batch.has_jobs = True
                submit.result = submit.job(transaction, child)
            else:
                submit.result = transaction.run(submit.mutations, submit.guards)
            child.commit()
        except (lmdb.MapFullError, lmdb.TxnFullError) as error:
            child.abort()
            submit.error = StoreFull(str(error))
        except Exception as error:
            child.abort()
            submit.error = error
        else:
            transaction.join()

    def _write_meta(self, txn: Txn, batch: CommitBatch, lazy: LazyPositions) -> None:
        environment = self._records.environment
        batch.write_counters(txn)
        if batch.changes or batch.log_bytes:
            environment.note_commit(txn, batch.changes[-1].revision if batch.changes else None, batch.log_bytes)
        for name, value in lazy.marks.items():
            txn.put(name.encode(), value, db=environment.marks)
        if batch.applied is not None:
            environment.put_meta(txn, "applied", batch.applied)
        if lazy.published is not None:
            environment.put_meta(txn, "published", lazy.published)

    def _finish(
        self, loop: asyncio.AbstractEventLoop, taken: list[QueuedSubmit], lazy: LazyPositions, batch: CommitBatch | None
    ) -> None:
        """Answer callers, publish changes, schedule the next round. In the event loop.

        Callers go on first, so that a client has its answer before controllers, watches and the publisher work on the
        change; none of them runs before this returns, so all find it published.
        """
        self._busy = False
        self._report(batch)
        for submit in taken:
            submit.answer()
        if batch is not None:
            stats = self.stats
            stats.commits += 1
            stats.submits += len(taken)
            stats.largest_batch = max(stats.largest_batch, len(taken))
            if lazy.marks or lazy.published is not None:
                self._forget(lazy)
            if batch.changes:
                self._hub.publish(batch.changes, batch.changes[-1].revision)
            if batch.applied is not None:
                self._hub.publish_applied(batch.applied)
        room, self._room = self._room, deque()
        for waiter in room:
            if not waiter.done():
                waiter.set_result(None)
        if self._queue:
            self._kick(loop)

    def _report(self, batch: CommitBatch | None) -> None:
        """Tell the rows that are kept in memory what was committed. Jobs may change any row."""
        recent = self._records.environment.recent
        if batch is None or batch.transaction == NONE:
            recent.forget()
        elif batch.fresh_types or batch.gated or batch.applied is not None or batch.has_jobs:
            recent.forget(batch.transaction)
        else:
            recent.follow(batch.transaction, batch.changes, batch.counters)

    def _forget(self, lazy: LazyPositions) -> None:
        """Drop the positions that were written, unless a newer value was set during the commit."""
        for name, value in lazy.marks.items():
            if self.marks.get(name) is value:
                del self.marks[name]
        if self.published == lazy.published:
            self.published = None


def _nothing(_transaction: SubmitTransaction, _txn: Txn) -> None:
    return None


def _require_distinct_keys(mutations: Sequence[Mutation]) -> None:
    found = [mutation.key for mutation in mutations if isinstance(mutation, Put | Check | Delete)]
    if len(set(found)) < len(found):
        raise ValueError("a submit names each key at most once")
