"""The writer's end of the worker socket: submits from API workers, commits announced to them.

The shard starts it beside its store when it runs workers; `worker_store` is the other end. Submits that arrive together
join one group commit, and one frame carries its answers and its revision to each worker. Invariant: an answer leaves
only after the store's own submit returned; a commit is announced only after it can be read from the file.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.workers.frame_protocol import FrameProtocol
from atoll.machinery.storage.workers.frames import (
    CallRequest,
    CallResult,
    Hello,
    News,
    SeekRequest,
    SeekResult,
    SubmitFailure,
    decode_request,
    failure,
    pack,
)

#: Requests of one worker that may be in the writer at once; the socket is not read beyond.
_MAX_IN_FLIGHT = 512

#: Finds the shard of a cluster; returns the shards that were not read. It ends in bounded time.
Seek: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: What the writer's process does for workers beside the store.
Call: TypeAlias = Callable[[bytes], Awaitable[bytes]]


async def _seek_nothing(cluster: str) -> Sequence[str]:
    return ()


async def _refuse_call(body: bytes) -> bytes:
    raise NotImplementedError("this process takes no calls")


class SubmitServer:
    """Serves one store on one socket. `seek` and `call` are what this process does for workers beside the store."""

    def __init__(self, store: LmdbStore, socket: Path, seek: Seek = _seek_nothing, call: Call = _refuse_call) -> None:
        self._store, self._socket, self._seek, self._call = store, socket, seek, call
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._announcing: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen. Replace the socket of a dead process; holding the directory lock proves that it is dead."""
        self._socket.unlink(missing_ok=True)
        make = functools.partial(_Connection, self._store, self._connections, self._seek, self._call)
        self._server = await asyncio.get_running_loop().create_unix_server(make, str(self._socket))
        self._socket.chmod(0o600)
        self._announcing = [asyncio.create_task(self._announce()), asyncio.create_task(self._announce_replicas())]

    async def close(self) -> None:
        """Stop listening and end every connection; submits queued in the store still commit."""
        if self._server is not None:
            self._server.close()
        for task in self._announcing:
            task.cancel()
        await asyncio.gather(*self._announcing, return_exceptions=True)
        for connection in tuple(self._connections):
            connection.close()
        self._socket.unlink(missing_ok=True)

    async def _announce(self) -> None:
        """Announce commits; a worker that does not read gets one frame for many."""
        sent = 0
        while True:
            sent = await self._store.committed(sent)
            self._send()

    async def _announce_replicas(self) -> None:
        """Announce changes of replicas and routes in the same way."""
        sent = 0
        while True:
            sent = await self._store.replicated(sent)
            self._send()

    def _send(self) -> None:
        for connection in self._connections:
            connection.send_soon()


class _Connection(FrameProtocol):
    """One worker."""

    def __init__(self, store: LmdbStore, connections: set[_Connection], seek: Seek, call: Call) -> None:
        super().__init__()
        self._store, self._connections, self._seek, self._call = store, connections, seek, call
        self._searches: set[asyncio.Task[None]] = set()
        self._sought: list[SeekResult | CallResult] = []
        self._in_flight = 0
        self._is_greeted = False
        #: The last revision and apply count that were sent.
        self._sent = (0, 0)
        self._results: list[tuple[int, list[int]]] = []
        self._failures: list[SubmitFailure] = []
        connections.add(self)

    def receive(self, body: memoryview) -> None:
        request = decode_request(body)
        if isinstance(request, SeekRequest | CallRequest):
            task = asyncio.create_task(self._search(request))
            self._searches.add(task)
            task.add_done_callback(self._searches.discard)
            return
        self._in_flight += 1
        if self._in_flight >= _MAX_IN_FLIGHT:
            self.hold()
        try:
            submit = self._store.queue(request.mutations, request.guards)
        except Exception as error:
            self._answer(failure(request.id, error))
        else:
            submit.add_done_callback(functools.partial(self._done, request.id))

    def compose(self) -> list[bytes]:
        sent, self._sent = self._sent, (self._store.hub.last, self._store.hub.applied)
        if not self._is_greeted:
            self._is_greeted = True
            return [pack(Hello(self._store.identity, *self._sent))]
        frames: list[bytes] = []
        if self._sought:
            frames += map(pack, self._sought)
            self._sought = []
        if sent == self._sent and not self._results and not self._failures:
            return frames
        news = News(*self._sent, self._results, self._failures)
        self._results, self._failures = [], []
        # What is sought is read after what was applied.
        return [pack(news), *frames]

    def lost(self) -> None:
        self._connections.discard(self)
        for task in self._searches:
            task.cancel()

    async def _search(self, request: SeekRequest | CallRequest) -> None:
        try:
            if isinstance(request, CallRequest):
                self._sought.append(CallResult(request.id, await self._call(request.body)))
            else:
                self._sought.append(SeekResult(request.id, list(await self._seek(request.cluster))))
        except Exception as error:
            self._failures.append(failure(request.id, error))
        self.send_soon()

    def _done(self, number: int, submit: asyncio.Future[list[int]]) -> None:
        if (error := submit.exception()) is not None:
            self._answer(failure(number, error))
        else:
            self._answer((number, submit.result()))

    def _answer(self, answer: SubmitFailure | tuple[int, list[int]]) -> None:
        if isinstance(answer, SubmitFailure):
            self._failures.append(answer)
        else:
            self._results.append(answer)
        self._in_flight -= 1
        self.send_soon()
        self.release()
