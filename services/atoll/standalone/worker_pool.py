"""API workers beside the writer: started, supervised, replaced when they die, drained at the end.

All listen on one port (SO_REUSEPORT), which this process holds bound so that it stays ours while no worker listens. The
brief goes over a pipe, which doubles as a leash: a worker whose parent is gone sees its end and leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.workers.submit_server import SubmitServer
from atoll.shard.worker import ALL_SERVE, READY, Brief

log = structlog.get_logger()

#: What every system takes; where the root directory is longer, the socket lies in a temporary one.
MAX_SOCKET_PATH_BYTES = 100
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
#: How long a taken port is asked for, and how often.
PATIENCE_S, RETRY_S = 5.0, 0.05
#: How often a worker may fail to come up before the start is given up.
START_ATTEMPTS = 3
BASE_DELAY_S, MAX_DELAY_S = 0.1, 5.0
#: A worker that lived so long did not die of its start.
HEALTHY_S = 30.0


def reserve(host: str, port: int) -> socket.socket:
    """Bind a port that workers will share, without listening on it. Raises OSError if it is taken."""
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


async def reserve_patiently(host: str, port: int, patience_s: float = PATIENCE_S) -> socket.socket:
    """`reserve`, trying again for a while: workers of a start that was killed hold the port until they have noticed.

    Taking another port instead would leave every client of the last start behind. Raises OSError after `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    told = False
    while True:
        try:
            return reserve(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                raise
        if not told:
            log.info("port is held, perhaps by workers of the last start", port=port, patience_s=patience_s)
            told = True
        await asyncio.sleep(RETRY_S)


def _refuse_sharing(family: socket.AddressFamily, host: str, port: int) -> None:
    """Raise OSError if somebody has the port: SO_REUSEPORT would let us in beside workers of another shard, and the
    kernel would deal out requests among both."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


class WorkerFailed(Exception):
    """A worker did not come up."""


class Workers:
    """A fixed number of worker processes. `start` returns when all of them serve."""

    def __init__(self, store: LmdbStore, count: int, root: Path) -> None:
        self.socket = root / "submit"
        self._elsewhere: Path | None = None
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH_BYTES:
            self._elsewhere = Path(tempfile.mkdtemp(prefix="atoll-"))
            self.socket = self._elsewhere / "submit"
        self._seam = SubmitServer(store, self.socket)
        self._count = count
        self._keepers: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False

    async def start(self, brief: Brief) -> None:
        """Open the seam and start every worker. Raises WorkerFailed if one does not come up."""
        await self._seam.start()
        data = msgspec.json.encode(brief) + b"\n"
        await asyncio.gather(*(self._first(number, data) for number in range(self._count)))
        for number in range(self._count):
            self._tell(number)
        self._keepers = [asyncio.create_task(self._keep(number, data)) for number in range(self._count)]

    async def _first(self, number: int, data: bytes) -> None:
        """Start a worker for the first time; one that failed of chance is not the end of the shard."""
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return await self._spawn(number, data)
            except WorkerFailed as error:
                if attempt == START_ATTEMPTS:
                    raise
                log.error("worker did not start", worker=number, attempt=attempt, error=str(error))

    async def _spawn(self, number: int, data: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "atoll.shard.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
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
            await _end(process)
            raise WorkerFailed(f"worker {number} did not start")
        log.info("worker serves", worker=number, pid=process.pid)

    def _tell(self, number: int) -> None:
        """Let a worker call itself ready: the others serve as well."""
        pipe = self._processes[number].stdin
        if pipe is not None and not pipe.is_closing():
            pipe.write(ALL_SERVE)

    async def _keep(self, number: int, data: bytes) -> None:
        """Replace a worker that dies, later each time it dies at once."""
        delay = BASE_DELAY_S
        while not self._stopping:
            since = time.monotonic()
            code = await self._processes[number].wait()
            if self._stopping:
                return
            delay = BASE_DELAY_S if time.monotonic() - since > HEALTHY_S else delay
            log.error("worker died", worker=number, code=code, again_s=delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_DELAY_S)
            try:
                await self._spawn(number, data)
                self._tell(number)
            except (WorkerFailed, OSError) as error:
                log.error("worker did not start", worker=number, error=str(error))

    async def stop(self) -> None:
        """Drain and end every worker, then close the seam."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        processes = [process for process in self._processes.values() if process.returncode is None]
        for process in processes:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.gather(*(process.wait() for process in processes))
        for process in processes:
            await _end(process)
        await self._seam.close()
        if self._elsewhere is not None:
            shutil.rmtree(self._elsewhere, ignore_errors=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that has not ended, and wait until it has."""
    if process.returncode is None:
        process.kill()
    await process.wait()
