"""API worker processes of a shard: started, supervised, replaced when they exit, drained at the end.

`listener` starts the pool. This process accepts and passes each connection to the worker with the fewest. The port is
bound from the start and listened on once a worker serves. Settings are sent over a pipe; a worker that reads its end
has lost its parent and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from atoll.machinery.apiserver.serving.health import CheckResult
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.workers.submit_server import Call, Seek, SubmitServer
from atoll.machinery.wire.connection_spread import ConnectionSpreader
from atoll.shard.parent_health import encode
from atoll.shard.worker import READY, WorkerSettings

log = structlog.get_logger()

#: The name of the socket to the writer, in the root directory.
SOCKET = "submit"
#: Longest path of a Unix socket on every system; below a longer root directory the socket is in a temporary one.
MAX_SOCKET_PATH_BYTES = 100
#: A worker that ends says so at once; one that is slow on a busy machine is not begun anew.
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
#: Seconds between two looks at the checks whose results the workers report.
CHECK_S = 0.5
#: Failures of one worker to start before the start of the shard fails.
START_ATTEMPTS = 3
BACKOFF = Backoff(0.1, 5.0, least=1.0)
#: A worker that ran for this long did start.
HEALTHY_S = 30.0


def reserve(host: str, port: int) -> socket.socket:
    """Bind a port without listening on it. Raises OSError if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if port:
        _refuse_sharing(family, host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _refuse_sharing(family: socket.AddressFamily, host: str, port: int) -> None:
    """Raise OSError if the port is in use: with SO_REUSEPORT the kernel would share it with another shard and give each
    of them some of the connections."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


class WorkerStartFailure(Exception):
    """A worker did not start."""


class WorkerPlace(NamedTuple):
    """The root directory of the shard, and its port, which is bound."""

    root: Path
    bound: socket.socket


class Does(NamedTuple):
    """What this process does for workers beside the store."""

    seek: Seek
    call: Call


class WorkerPool:
    """A fixed number of worker processes. `start` returns once all of them serve."""

    def __init__(
        self, store: LmdbStore, count: int, place: WorkerPlace, checks: Callable[[], dict[str, CheckResult]], does: Does
    ) -> None:
        self._checks, self._sent, root = checks, b"", place.root
        self._spreader = ConnectionSpreader(place.bound)
        self.socket = root / SOCKET
        self._temporary: Path | None = None
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH_BYTES:
            self._temporary = Path(tempfile.mkdtemp(prefix="atoll-"))
            self.socket = self._temporary / SOCKET
        self._submit_server = SubmitServer(store, self.socket, does.seek, does.call)
        self._count = count
        self._supervisors: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        #: Called when a worker exited that nobody stopped.
        self.restarted: Callable[[], None] = lambda: None

    async def start(self, brief: WorkerSettings) -> None:
        """Accept submits and start every worker. Raises WorkerStartFailure if one does not start."""
        await self._submit_server.start()
        data = msgspec.json.encode(brief) + b"\n"
        await asyncio.gather(*(self._start_first(number, data) for number in range(self._count)))
        self._send_checks()
        self._supervisors = [asyncio.create_task(self._supervise(number, data)) for number in range(self._count)]
        self._supervisors.append(asyncio.create_task(self._follow_checks()))

    async def _start_first(self, number: int, data: bytes) -> None:
        """Start a worker for the first time, with retries."""
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return await self._spawn(number, data)
            except WorkerStartFailure as error:
                if attempt == START_ATTEMPTS:
                    raise
                log.error("worker did not start", worker=number, attempt=attempt, error=str(error))

    async def _spawn(self, number: int, data: bytes) -> None:
        channel, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "atoll.shard.worker", str(theirs.fileno()), str(number + 1)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                )
        except OSError:
            channel.close()
            raise
        self._processes[number] = process
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(START_TIMEOUT_S):
                process.stdin.write(data)
                await process.stdin.drain()
                line = await process.stdout.readline()
        if line.strip() != READY.encode():
            channel.close()
            await _end(process)
            raise WorkerStartFailure(f"worker {number} did not start")
        self._spreader.add(number, channel)
        log.info("worker started", worker=number, pid=process.pid)

    async def _follow_checks(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self._send_checks()

    def _send_checks(self) -> None:
        """Send the results of this process's checks to each worker, if they changed."""
        line = encode(self._checks())
        if line != self._sent:
            self._sent = line
            for number in self._processes:
                self._send(number)

    def _send(self, number: int) -> None:
        pipe = self._processes[number].stdin
        # A worker that reads nothing is stopped: what it did not read is not kept.
        if pipe is not None and not pipe.is_closing() and not pipe.transport.get_write_buffer_size():
            pipe.write(self._sent)

    async def _supervise(self, number: int, data: bytes) -> None:
        """Replace a worker that exits; the delay grows while it exits soon after its start."""
        failures = 0
        while not self._stopping:
            since = time.monotonic()
            code = await self._processes[number].wait()
            self._spreader.remove(number)
            if self._stopping:
                return
            self.restarted()
            failures = 0 if time.monotonic() - since > HEALTHY_S else failures
            delay_s = BACKOFF.delay_s(failures)
            log.error("worker exited", worker=number, code=code, again_s=delay_s)
            await asyncio.sleep(delay_s)
            failures += 1
            try:
                await self._spawn(number, data)
                self._send(number)
            except (WorkerStartFailure, OSError) as error:
                log.error("worker did not start", worker=number, error=str(error))

    async def stop(self) -> None:
        """Drain and stop every worker, then stop accepting submits."""
        self._stopping = True
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        self._spreader.close()
        processes = [process for process in self._processes.values() if process.returncode is None]
        for process in processes:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.gather(*(process.wait() for process in processes))
        for process in processes:
            await _end(process)
        await self._submit_server.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that still runs, and wait for it."""
    if process.returncode is None:
        process.kill()
    await process.wait()
