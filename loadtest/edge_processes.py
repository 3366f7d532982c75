"""Simulated edges in several processes, and what they need: servers of their clusters, and proxies of the center.

A process may have 20,000 files on the machines that this ran on, of which a server uses two thirds for connections. An
edge that starts takes 15 in its own process, where the relay is, seven at the server of its cluster, three in a proxy;
later ten, four and two.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from atoll.machinery.client.kubeconfig import Target
from harness.waits import pause_s
from loadtest import processes
from loadtest.bench import Bench
from loadtest.edge_fleet import cluster_of
from loadtest.edge_proxy import proxies
from loadtest.edge_site import EdgeServer, Mailbox
from loadtest.edge_worker import LINE_BYTES, Command, Plan, Start

#: How many edges a process carries, a proxy serves, and a server has clusters of; few are faster.
EDGES_A_PROCESS, EDGES_A_PROXY, EDGES_A_SERVER = 1700, 6000, 3400
#: How many edges start together, and of how many something may be missing while more start.
AT_ONCE, STARTING = 40, 40
#: Seconds until those that started have all objects; an edge that has not is left behind.
PART_S = 300.0


class EdgeProcess:
    """One process, with one command at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def ask(self, command: Plan | Command) -> int:
        """Its answer. Raises RuntimeError if it ended."""
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None and writer is not None
        async with self._turn:
            writer.write(msgspec.json.encode(command) + b"\n")
            await writer.drain()
            if not (line := await reader.readline()):
                raise RuntimeError("a process of simulated edges ended")
        return int(line)


class Fleet:
    """All edges, of which some are started, and of these some had all objects in time.

    `last` is the cluster of one that does not flap where there are several.
    """

    def __init__(self, edges: int, last: Target, workers: list[EdgeProcess]) -> None:
        self.edges, self.last, self._workers = edges, last, workers
        self.started = self.full = 0

    async def ask(self, command: Command) -> int:
        """The sum of the answers of all processes."""
        return sum(await asyncio.gather(*(each.ask(command) for each in self._workers)))

    async def start(self, half: int, full: Command) -> None:
        """Start the first half or the second, some at a time, while few of those before lack something.

        Then wait for those, but for edges that had their time.
        """
        parts, left_behind = math.ceil(self.edges / 2 / AT_ONCE), self.started - self.full
        for part in range(parts * half, parts * (half + 1)):
            self.started += await self.ask(Start(part, 2 * parts))
            if self.full < (most := self.started - left_behind - STARTING):
                self.full = await self.until(full, most, PART_S)
                left_behind = max(left_behind, self.started - STARTING - self.full)
        self.full = await self.until(full, self.started - left_behind, PART_S)

    async def until(self, question: Command, count: int, limit_s: float) -> int:
        """Ask until so many edges are as wanted, for so long at most; return how many are."""
        began = time.monotonic()
        while True:
            found, passed_s = await self.ask(question), time.monotonic() - began
            if found >= count or passed_s > limit_s:
                return found
            # To look at thousands of edges costs them as much as what they do.
            await asyncio.sleep(pause_s(passed_s) * max(self.edges / 2000, 1.0))


@asynccontextmanager
async def fleet(bench: Bench, server: EdgeServer, mailboxes: list[Mailbox]) -> AsyncIterator[Fleet]:
    """Edges for these mailboxes, which are not started, in as many processes as they need."""
    count = len(mailboxes)
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(proxies(server, bench.place(), math.ceil(count / EDGES_A_PROXY)))
        clusters = [
            (await stack.enter_async_context(bench.server(cores=set(processes.USABLE)))).kubeconfig
            for _ in range(math.ceil(count / EDGES_A_SERVER))
        ]
        plans = _plans(server.kubeconfig, clusters, ports, mailboxes)
        workers = [EdgeProcess(await stack.enter_async_context(_process())) for _ in plans]
        await asyncio.gather(*(worker.ask(plan) for worker, plan in zip(workers, plans, strict=True)))
        yield Fleet(count, cluster_of(Path(plans[-1].clusters), mailboxes[-1]), workers)


def _plans(center: Path, clusters: list[Path], ports: list[int], mailboxes: list[Mailbox]) -> list[Plan]:
    """Neighbours share a server of clusters, and proxies take turns."""
    count = math.ceil(len(mailboxes) / EDGES_A_PROCESS)
    return [
        Plan(
            str(center),
            str(clusters[number * len(clusters) // count]),
            ports[number % len(ports)],
            mailboxes[len(mailboxes) * number // count : len(mailboxes) * (number + 1) // count],
        )
        for number in range(count)
    ]


@asynccontextmanager
async def _process() -> AsyncIterator[Process]:
    """A process of edges, which may run on any core; killed at the end, as its servers go too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = sys.executable, "-m", "loadtest.edge_worker"
    found = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment, limit=LINE_BYTES)
    os.sched_setaffinity(found.pid, processes.USABLE)
    try:
        yield found
    finally:
        with suppress(ProcessLookupError):
            found.kill()
        await found.wait()
