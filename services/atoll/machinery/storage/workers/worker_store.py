"""The store in an API worker: reads from the file, writes through the writer's socket.

A worker opens it with `connect_store` and uses it as `contract.Store`. It reads the same LMDB file in its own short
transactions, so a commit is visible here as soon as it is durable; announcements only wake cursors, which read the log.
Invariant: no submit is answered but by the writer; when the connection ends, open submits fail with StoreClosed, their
outcome unknown, and the worker ends.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atoll.machinery.storage.clock import Clock
from atoll.machinery.storage.contract import CorruptRecord, Guard, Mutation, RevisionCompacted
from atoll.machinery.storage.encoding.rows import unpack_entry
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reader import StoreReader
from atoll.machinery.storage.reading.records import Alarm, log_alarm
from atoll.machinery.storage.workers.frame_protocol import FrameProtocol
from atoll.machinery.storage.workers.frames import (
    Answer,
    CallRequest,
    CallResult,
    Hello,
    InvalidFrame,
    SeekRequest,
    SeekResult,
    SubmitRequest,
    decode_answer,
    error_of,
    pack,
)
from atoll.machinery.storage.writing.writer import StoreClosed

#: Log entries read into the ring before the loop gets a turn.
_FEED_ROWS = 500


class _WriterConnection(FrameProtocol):
    """The worker's end of the socket."""

    def __init__(self, take: Callable[[Answer], None], lost: Callable[[], None]) -> None:
        super().__init__()
        self._take, self._lost = take, lost
        self._leaving: list[bytes] = []

    def send(self, frame: bytes) -> None:
        """Send a frame with the others of this loop turn."""
        self._leaving.append(frame)
        self.send_soon()

    def receive(self, body: memoryview) -> None:
        self._take(decode_answer(body))

    def compose(self) -> list[bytes]:
        leaving, self._leaving = self._leaving, []
        return leaving

    def lost(self) -> None:
        self._lost()


class WorkerStore(StoreReader):
    """`contract.Store` over a file that another process writes."""

    def __init__(self, options: StoreOptions, environment: Environment, clock: Clock, alarm: Alarm) -> None:
        super().__init__(options, environment, alarm, clock.now_us)
        #: Set when the writer is gone; nothing can be written any more.
        self.disconnected = asyncio.Event()
        self._writer: _WriterConnection | None = None
        self._greeted: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._open: dict[int, asyncio.Future[list[int]]] = {}
        self._searches: dict[int, asyncio.Future[list[str]]] = {}
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)
        self._announced = self.hub.last
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def connect(self, socket: Path) -> None:
        """Connect to the writer and start to follow it. Raise OSError, or InvalidFrame for another protocol."""
        make = functools.partial(_WriterConnection, self._take, self._lose)
        _, self._writer = await asyncio.get_running_loop().create_unix_connection(make, str(socket))
        hello = await self._greeted
        self._identity = hello.identity
        self._announce(hello.last)
        self.hub.publish_applied(hello.applied)
        self._following = asyncio.create_task(self._follow())

    async def submit(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> list[int]:
        if self._writer is not None:
            await self._writer.writable.wait()
        return await self.queue(mutations, guards)

    def queue(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> asyncio.Future[list[int]]:
        if self._writer is None or self.disconnected.is_set():
            raise StoreClosed("the writer is gone")
        if not self._writer.writable.is_set():
            return asyncio.get_running_loop().create_task(self.submit(mutations, guards))
        number = next(self._ids)
        self._writer.send(pack(SubmitRequest(number, list(mutations), list(guards))))
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        future.add_done_callback(lambda _: self._open.pop(number, None))
        return future

    async def seek(self, cluster: str) -> Sequence[str]:
        """Have the writer's process find the shard of a cluster; return the shards that it did not read.

        Raises StoreClosed, and WriterError for a search that failed there.
        """
        if self._writer is None or self.disconnected.is_set():
            raise StoreClosed("the writer is gone")
        number = next(self._ids)
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._searches[number] = future
        self._writer.send(pack(SeekRequest(number, cluster)))
        try:
            return await future
        finally:
            del self._searches[number]

    async def call(self, body: bytes) -> bytes:
        """Have the writer's process do what is not the store's; return its answer.

        Raises StoreClosed, and WriterError for a call that failed there.
        """
        if self._writer is None or self.disconnected.is_set():
            raise StoreClosed("the writer is gone")
        number = next(self._ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._writer.send(pack(CallRequest(number, body)))
        try:
            return await future
        finally:
            del self._calls[number]

    async def close(self) -> None:
        """Disconnect from the writer and close the file."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        self._lose()
        self.hub.close()
        self._environment.close()

    # --- what the writer says

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Hello):
            self._greeted.set_result(answer)
            return
        if not self._greeted.done():
            raise InvalidFrame("the first frame is no greeting")
        if isinstance(answer, SeekResult):
            if (search := self._searches.get(answer.id)) is not None and not search.done():
                search.set_result(answer.unread)
            return
        if isinstance(answer, CallResult):
            if (call := self._calls.get(answer.id)) is not None and not call.done():
                call.set_result(answer.body)
            return
        self._announce(answer.last)
        self.hub.publish_applied(answer.applied)
        for number, results in answer.results:
            if (future := self._open.get(number)) is not None and not future.done():
                future.set_result(results)
        for failed in answer.failures:
            # One count numbers submits, searches and calls.
            waiting = self._open.get(failed.id) or self._searches.get(failed.id) or self._calls.get(failed.id)
            if waiting is not None and not waiting.done():
                waiting.set_exception(error_of(failed))

    def _lose(self) -> None:
        self.disconnected.set()
        if not self._greeted.done():
            self._greeted.set_exception(InvalidFrame("no greeting came"))
        for future in self._open.values():
            if not future.done():
                future.set_exception(StoreClosed("outcome unknown: the writer is gone"))
        asked: list[asyncio.Future[Any]] = [*self._searches.values(), *self._calls.values()]
        for search in asked:
            if not search.done():
                search.set_exception(StoreClosed("the writer is gone"))

    # --- the ring

    def _announce(self, last: int) -> None:
        self._announced = max(self._announced, last)
        self._news.set()

    async def _follow(self) -> None:
        """Read announced entries from the log into the ring, and wake cursors."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self.hub.last < self._announced:
                self._feed()
                await asyncio.sleep(0)

    def _feed(self) -> None:
        changes = []
        with self._environment.reading() as txn:
            try:
                self._history.require_retained(txn, self.hub.last)
                for revision, raw in itertools.islice(self._history.rows(txn, self.hub.last), _FEED_ROWS):
                    changes.append(self._history.change(txn, revision, unpack_entry(raw)))
            except (RevisionCompacted, CorruptRecord):
                # Cursors then read the log themselves, so one damaged record stops no other watch.
                self.hub.skip(self._announced)
                return
        self.hub.publish(changes, changes[-1].revision if changes else self._announced)


async def connect_store(
    options: StoreOptions, socket: Path, *, clock: Clock | None = None, alarm: Alarm = log_alarm
) -> WorkerStore:
    """Open the file for reading and connect to its writer.

    Raise OSError if no writer listens, lmdb.Error without a store, UnknownFormat or KeyFileInvalid.
    """
    environment = open_for_reading(options)
    try:
        store = WorkerStore(options, environment, clock or Clock(), alarm)
        await store.connect(socket)
    except BaseException:
        environment.close()
        raise
    return store
