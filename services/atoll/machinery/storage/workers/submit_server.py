"""The writer's end of the worker socket: submits from API workers, commits announced to them.

The shard starts it beside its store when it runs workers; `worker_store` is the other end. Requests of one connection
run concurrently, bounded, so that they join the same group commits as all others. Invariant: an answer leaves only
after the store's own submit returned; a commit is announced only after it can be read from the file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.workers.frames import (
    CommitNotice,
    Hello,
    InvalidFrame,
    ReplicaNotice,
    SubmitRequest,
    SubmitResults,
    failure,
    pack,
    read_request,
)

#: Requests of one worker that may be in the writer at once; the socket is not read beyond.
_MAX_IN_FLIGHT = 512


class SubmitServer:
    """Serves one store on one socket."""

    def __init__(self, store: LmdbStore, socket: Path) -> None:
        self._store, self._socket = store, socket
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Replace the socket of a dead process; holding the directory lock proves that it is dead."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, str(self._socket))
        self._socket.chmod(0o600)

    async def close(self) -> None:
        """Stop listening and end every connection; submits queued in the store still commit."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._socket.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await _Connection(self._store, reader, writer).run()
        except asyncio.CancelledError:
            # Only `close` cancels; asyncio would report it as an error of the callback.
            pass
        finally:
            self._connections.discard(task)
            writer.close()


class _Connection:
    """One worker."""

    def __init__(self, store: LmdbStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._store, self._reader, self._writer = store, reader, writer
        self._room = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the worker disconnects."""
        last, applied = self._store.hub.last, self._store.hub.applied
        self._writer.write(pack(Hello(self._store.identity, last, applied)))
        announcing = [asyncio.create_task(self._announce(last)), asyncio.create_task(self._announce_replicas(applied))]
        try:
            while True:
                await self._room.acquire()
                self._take(await read_request(self._reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except InvalidFrame as error:
            structlog.get_logger().warning("worker connection refused", reason=str(error))
        finally:
            for task in announcing:
                task.cancel()
            await asyncio.gather(*announcing, return_exceptions=True)

    def _take(self, request: SubmitRequest) -> None:
        task = asyncio.create_task(self._serve(request))
        self._requests.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._room.release()

    async def _serve(self, request: SubmitRequest) -> None:
        try:
            results = await self._store.submit(request.mutations, request.guards)
        except Exception as error:
            self._writer.write(pack(failure(request.id, error)))
        else:
            self._writer.write(pack(SubmitResults(request.id, results)))

    async def _announce(self, sent: int) -> None:
        """Announce commits; a worker that does not read gets one frame for many."""
        while True:
            sent = await self._store.committed(sent)
            self._writer.write(pack(CommitNotice(sent)))
            await self._writer.drain()

    async def _announce_replicas(self, sent: int) -> None:
        """Announce changes of replicas and routes in the same way."""
        while True:
            sent = await self._store.replicated(sent)
            self._writer.write(pack(ReplicaNotice(sent)))
            await self._writer.drain()
