"""Planted bugs: a shard that breaks one of its promises, which the checkers must detect.

`python -m fault.mutants start ...` is `atoll start` with the bug named by FAULT_MUTANT patched into the product's
modules before anything runs. The product knows nothing of this. Each bug is small and likely: a line in the wrong
place, a forgotten check, a number off by one. Where a bug would keep a shard from starting it touches only the traffic.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec

from fault.validators.durability import OWN_PREFIXES
from harness.servers.shard_process import ShardProcess

VARIABLE = "FAULT_MUTANT"
#: How long a commit comes too late: long against a request, short against a run.
LATE_S = 0.03


class MutantProcess(ShardProcess):
    """A shard with one bug planted in it."""

    module, forked = "fault.mutants", True

    def __init__(self, directory: Path, mutant: str) -> None:
        super().__init__(directory, environment={VARIABLE: mutant})


def _of_traffic(taken: Sequence[Any]) -> bool:
    names = (mutation.key.name for submit in taken for mutation in submit.mutations if hasattr(mutation, "key"))
    return any(name.startswith(OWN_PREFIXES) for name in names)


def _commit_late(early: Callable[[Any, list[Any], Any], None], late: Callable[[Any, list[Any], Any], None]) -> None:
    """Apply a batch as usual, run `early`, then commit, then run `late`."""
    from atoll.machinery.storage import lmdb_store
    from atoll.machinery.storage.contract import Put
    from atoll.machinery.storage.writing.commit_batch import CommitBatch
    from atoll.machinery.storage.writing.writer import LazyPositions, Writer

    straight = Writer._start

    def start(writer: Any, loop: asyncio.AbstractEventLoop) -> None:
        if not _of_traffic(writer._queue):
            straight(writer, loop)
            return
        taken, lazy = writer._take(), LazyPositions(dict(writer.marks), writer.published)
        batch = CommitBatch(writer._options, writer._records, writer._clock)
        writer._clock.sync()
        txn = writer._records.environment.env.begin(write=True)
        batch.limited = writer._records.environment.has_limits(txn)
        for submit in taken:
            for mutation in submit.mutations:
                if isinstance(mutation, Put):
                    batch.intern(txn, mutation.key.type)
            writer._apply(txn, batch, submit)
        writer._write_meta(txn, batch, lazy)
        early(writer, taken, batch)

        def finish() -> None:
            txn.commit()
            batch.finish(committed=True)
            writer._busy = False
            writer._forget(lazy)
            late(writer, taken, batch)
            writer._kick(loop)

        loop.call_later(LATE_S, finish)

    Writer._start = start  # type: ignore[assignment, method-assign]
    lmdb_store._slow = lambda *_: False


def _answer(_writer: Any, taken: list[Any], _batch: Any) -> None:
    for submit in taken:
        submit.answer()


def _publish(writer: Any, _taken: list[Any], batch: Any) -> None:
    if batch.changes:
        writer._hub.publish(batch.changes, batch.changes[-1].revision)


def acknowledge_before_commit() -> None:
    """Clients get success before the transaction is on disk."""

    def late(writer: Any, taken: list[Any], batch: Any) -> None:
        _publish(writer, taken, batch)

    _commit_late(_answer, late)


def publish_before_commit() -> None:
    """Watches get changes before the transaction is on disk."""

    def show(writer: Any, _taken: list[Any], batch: Any) -> None:
        hub = writer._hub
        hub.ring.extend(batch.changes)
        for watcher in hub.registrations:
            watcher.wake(hub.last)

    def finish(writer: Any, taken: list[Any], batch: Any) -> None:
        hub = writer._hub
        hub.last = batch.changes[-1].revision if batch.changes else hub.last
        hub._published.wake()
        _answer(writer, taken, batch)

    _commit_late(show, finish)


def lost_cursor() -> None:
    """After a restart the publisher takes everything up to the log's end for published."""
    from atoll.machinery.stream.publisher.resume import ResumePlan
    from atoll.machinery.stream.publisher.stream_writer import StreamWriter

    planned = StreamWriter._plan

    def plan(lane: Any, tip: Any) -> ResumePlan:
        found = planned(lane, tip)
        if lane._cursor is None:
            return found
        return msgspec.structs.replace(found, after=lane._log.last())

    StreamWriter._plan = plan  # type: ignore[assignment, method-assign]


def early_bookmark() -> None:
    """A bookmark is written before the events that it covers."""
    from atoll.machinery.apiserver.rest import frames
    from atoll.machinery.apiserver.rest.watch import Watch

    sent = Watch._send_changes

    async def send(watch: Any, exchange: Any, changes: list[Any]) -> None:
        if len(changes) > 1:
            watch._write(exchange, frames.bookmark(watch._call.kind, watch._form, changes[-1].revision))
        await sent(watch, exchange, changes)

    Watch._send_changes = send  # type: ignore[assignment, method-assign]


def no_fence() -> None:
    """A second process may open the store for writing."""
    from atoll.machinery.storage.environment import filesystem

    def own(directory: Path) -> int:
        return os.open(directory / filesystem.OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    filesystem.own = own


def split_batch() -> None:
    """The mutations of one submit are committed one by one."""
    from atoll.machinery.storage.writing.writer import Writer

    async def submit(writer: Any, mutations: Sequence[Any], *_more: Any) -> list[int]:
        results: list[int] = []
        for mutation in mutations:
            results += await writer.queue([mutation], ())
        return results

    Writer.submit = submit  # type: ignore[assignment, method-assign]


def unverified_crc() -> None:
    """Records are served without a check of their checksum."""
    from atoll.machinery.storage.reading import snapshot

    # Equal to the checksum of every row.
    snapshot.crc32c = lambda _: ANY  # type: ignore[attr-defined]


def uncharged_delete() -> None:
    """Deletes give nothing back to quotas and to the limit of all objects."""
    from atoll.machinery.storage.writing.limit_rows import LimitRows

    straight = LimitRows.charge

    def charge(rows: Any, key: Any, before: bytes | None, after: bytes | None) -> None:
        if after is not None:
            straight(rows, key, before, after)

    LimitRows.charge = charge  # type: ignore[assignment, method-assign]


def off_by_one_resume() -> None:
    """A watch resumes at the given revision instead of after it."""
    from atoll.machinery.storage.watching.cursors import Cursors

    opened = Cursors.open
    Cursors.open = lambda cursors, scope, revision, *more: opened(  # type: ignore[method-assign]
        cursors, scope, revision - 1, *more
    )


def forgotten_cluster() -> None:
    """A watch of one cluster also gets events of the others."""
    from atoll.machinery.storage.watching.cursors import LmdbCursor

    read = LmdbCursor._read_ring

    def read_ring(cursor: Any, limit: int) -> Any:
        scope = cursor._scope
        cursor._scope = msgspec.structs.replace(scope, cluster="")
        try:
            return read(cursor, limit)
        finally:
            cursor._scope = scope

    LmdbCursor._read_ring = read_ring  # type: ignore[assignment, method-assign]


#: How often a silent watch is woken before it falls silent.
_WAKES = 40


def silent_watch() -> None:
    """A watch that was woken some forty times sends nothing more, without an error."""
    from atoll.machinery.storage.watching.cursors import LmdbCursor

    read, mark, wake, close = LmdbCursor.read, LmdbCursor.mark, LmdbCursor.wake, LmdbCursor.close
    wakes: dict[int, int] = {}

    def marked(cursor: Any, nothing_before: int) -> None:
        wakes[id(cursor)] = wakes.get(id(cursor), 0) + 1
        mark(cursor, nothing_before)

    def woken(cursor: Any, nothing_before: int) -> None:
        wakes[id(cursor)] = wakes.get(id(cursor), 0) + 1
        wake(cursor, nothing_before)

    def read_until_silent(cursor: Any, limit: int = 500) -> Any:
        if wakes.get(id(cursor), 0) <= _WAKES:
            return read(cursor, limit)
        cursor._pending = False
        return []

    def closed(cursor: Any) -> None:
        wakes.pop(id(cursor), None)
        close(cursor)

    LmdbCursor.mark = marked  # type: ignore[assignment, method-assign]
    LmdbCursor.wake = woken  # type: ignore[assignment, method-assign]
    LmdbCursor.read = read_until_silent  # type: ignore[assignment, method-assign]
    LmdbCursor.close = closed  # type: ignore[assignment, method-assign]


def high_bookmark() -> None:
    """A bookmark is one too high."""
    from atoll.machinery.apiserver.rest import frames

    made = frames.bookmark

    def bookmark(kind: Any, form: Any, revision: int, **more: Any) -> bytes:
        return made(kind, form, revision + 1, **more)

    frames.bookmark = bookmark


def moving_pages() -> None:
    """Later pages of the initial state of a watch have the revision at which they are read."""
    from atoll.machinery.storage.reader import StoreReader

    paged = StoreReader.page

    def page(store: Any, scope: Any, *, at: int = 0, after: Any = None, **more: Any) -> Any:
        return paged(store, scope, at=0 if after is not None else at, after=after, **more)

    StoreReader.page = page  # type: ignore[assignment, method-assign]


def tired_publisher() -> None:
    """The publisher rests three seconds between two wake-ups."""
    from atoll.machinery.stream.publisher import stream_writer

    stream_writer._PACE_S = 3.0


def lost_precondition() -> None:
    """The writer does not check that the object is unchanged since it was read."""
    from atoll.machinery.storage.writing.submit_transaction import SubmitTransaction

    def expect(transaction: Any, key: Any, found: Any, expected: int) -> Any:
        return found

    SubmitTransaction._expect = expect  # type: ignore[assignment, method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    planted.__name__: planted
    for planted in (
        acknowledge_before_commit,
        publish_before_commit,
        lost_cursor,
        early_bookmark,
        no_fence,
        split_batch,
        unverified_crc,
        uncharged_delete,
        off_by_one_resume,
        forgotten_cluster,
        lost_precondition,
        silent_watch,
        high_bookmark,
        moving_pages,
        tired_publisher,
    )
}


def main() -> None:
    """Plant the bug, then run `atoll`."""
    MUTANTS[os.environ.pop(VARIABLE)]()
    from atoll.cli.atoll.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
