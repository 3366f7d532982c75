"""The server under load: `atoll start` in a process of its own on the first core, and its cost while something runs.

Scenarios get one from `Bench.server`, made in a fresh directory. The embedded nats-server may use every core, as
it does outside a benchmark.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from atoll.machinery.client.client import Client
from harness.servers.shard_process import START_TIMEOUT_S, ShardProcess
from loadtest import processes
from loadtest.http import Origin


class Server(ShardProcess):
    """A shard that is measured."""

    def __init__(self, directory: Path, cores: set[int], *flags: str) -> None:
        super().__init__(directory, *flags)
        self._cores = cores

    def spawn(self) -> None:
        """Start it on its core: a child takes the affinity of who starts it."""
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)
        try:
            super().spawn()
        finally:
            os.sched_setaffinity(0, own)

    async def free_children(self) -> None:
        """Wait for what it starts beside itself, and let that run anywhere."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while len(found := processes.tree(self.pid)) < 2:  # noqa: ASYNC110  (another process)
                await asyncio.sleep(0.02)
        for pid in found[1:]:
            os.sched_setaffinity(pid, processes.USABLE)

    @property
    def origin(self) -> Origin:
        parts = urlsplit(self.url)
        return Origin(parts.hostname or "", parts.port or 0, self.tls(), self.token())

    def client(self, cluster: str = "root", context: str = "") -> Client:
        """The documented client, for what is not measured. Close it."""
        return Client.from_kubeconfig(str(self.kubeconfig), context, cluster)

    def memory(self) -> processes.Memory:
        """Of the whole process tree."""
        return processes.memory(processes.tree(self.pid))


class Measured(Protocol):
    """A server that runs."""

    @property
    def pid(self) -> int: ...


class Cost:
    """CPU and wall time of a server and all its processes while the block ran, in seconds.

    `cpu_s` is without nats-server, which has an entry in `by_process` like each process with a share.
    """

    def __init__(self, server: Measured) -> None:
        self._pid = server.pid
        self.cpu_s = self.wall_s = 0.0
        self.by_process: list[tuple[str, float]] = []

    def __enter__(self) -> Cost:
        self._cpu, self._wall = processes.cpu_of_tree(self._pid), time.perf_counter()
        return self

    def note(self, count: int) -> str:
        """The microseconds of each process for one of `count` operations, where there are several."""
        if len(self.by_process) < 2:
            return ""
        return ", ".join(f"{name} {cpu_s / count * 1e6:.0f}" for name, cpu_s in self.by_process)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self._wall
        for pid, cpu_s in processes.cpu_of_tree(self._pid).items():
            spent = cpu_s - self._cpu.get(pid, 0.0)
            if spent > 0.0:
                self.by_process.append((processes.name(pid), spent))
        self.cpu_s = sum(spent for name, spent in self.by_process if name != processes.NATS)


@asynccontextmanager
async def running(directory: Path, server_cores: set[int], *flags: str) -> AsyncIterator[Server]:
    """A started server; stopped at the end."""
    server = Server(directory, server_cores, *flags)
    async with server:
        await server.free_children()
        yield server
