"""Two checkouts in short turns: what each takes of the CPU for a create, a merge patch or a GET, and how sure it is.

    PYTHONPATH=services:tests:. python -m loadtest.turns DIR [--turns N] [create] [patch] [get]

Both servers run, and a few hundred requests go to one, then to the other, so that what else runs on the machine meets
both alike within a second. On a busy machine, where rates and `--against` say nothing, the ratio of their CPU holds.
Compare a checkout with itself to see by how much two that are the same differ.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import uvloop

from harness.environment import ROOT
from harness.servers import launch
from loadtest import processes
from loadtest.bench import sound
from loadtest.http import Origin, closed_loop
from loadtest.scenarios import create, get, patch
from loadtest.server import Server

CLIENTS, REQUESTS, TURNS = 16, 250, 24
_LIMIT_S = 120.0
#: An environment of its own, so that servers of both checkouts are executed and none is forked.
_EXECUTED = {"LOADTEST_TURNS": "1"}


class Operation(msgspec.Struct, frozen=True):
    """What is done to a new server first, and the requests that it then gets."""

    prepare: Callable[[Server], Awaitable[None]]
    requests: Callable[[Origin], Iterator[bytes]]


async def _nothing(_: Server) -> None:
    """Prepare nothing."""


OPERATIONS = {
    "create": Operation(_nothing, create.requests),
    "patch": Operation(patch.prepare, patch.requests),
    "get": Operation(get.prepare, get.requests),
}


class Ratio(msgspec.Struct, frozen=True):
    """CPU of one request in each turn, in microseconds, of the other checkout and of this one."""

    before: list[float]
    after: list[float]

    @property
    def times(self) -> float:
        """How many times less this checkout takes, over all turns."""
        return sum(self.before) / sum(self.after)

    @property
    def error(self) -> float:
        """The standard error of `times`, by the ratios of single turns; 0 of one turn."""
        ratios = [before / after for before, after in zip(self.before, self.after, strict=True)]
        return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0


class _Side:
    """One checkout: its server, and the CPU of each of its turns."""

    def __init__(self, checkout: Path, place: Path, operation: Operation) -> None:
        self._services, self._operation = checkout / "services", operation
        self.server = Server(place, processes.cores()[0])
        self.server.environment = _EXECUTED
        self.spent_us: list[float] = []

    async def start(self) -> None:
        """Start the server and give it a turn that does not count."""
        standard, launch.services = launch.services, self._services
        try:
            await asyncio.to_thread(self.server.start)
        finally:
            launch.services = standard
        await self.server.free_children()
        await self._operation.prepare(self.server)
        self._requests = self._operation.requests(self.server.origin)
        await self.turn(REQUESTS)
        self.spent_us.clear()

    async def turn(self, requests: int) -> None:
        """Send so many requests."""
        before_ns = cpu_ns(self.server.pid)
        load = sound(await closed_loop(self.server.origin, islice(self._requests, requests), CLIENTS, _LIMIT_S))
        self.spent_us.append((cpu_ns(self.server.pid) - before_ns) / load.answers / 1000)


def cpu_ns(pid: int) -> int:
    """CPU time of a process with all its threads, also those that ended, to the nanosecond."""
    # The kernel's clock of another process: its number inverted, and the kind of clock.
    return time.clock_gettime_ns((~pid << 3) | 2)


async def compare(other: Path, operation: Operation, place: Path, turns: int, requests: int = REQUESTS) -> Ratio:
    """Measure another checkout and this one, each first in every second turn."""
    sides = [_Side(checkout, place / name, operation) for checkout, name in ((other, "before"), (ROOT, "after"))]
    try:
        for side in sides:
            await side.start()
        for number in range(turns):
            for side in sides if number % 2 == 0 else reversed(sides):
                await side.turn(requests)
    finally:
        for side in sides:
            await asyncio.to_thread(side.server.stop)
    return Ratio(*(side.spent_us for side in sides))


def line(name: str, found: Ratio) -> str:
    """A row of a table in Markdown."""
    before, after = (statistics.mean(each) for each in (found.before, found.after))
    return f"| {name}, CPU | {before:.0f} us | {after:.0f} us | {found.times:.2f} ± {found.error:.2f} |"


async def _run(other: Path, names: Sequence[str], turns: int) -> None:
    sys.stdout.write("| what | before | after | times less |\n|---|---|---|---|\n")
    with tempfile.TemporaryDirectory(prefix="turns-") as place:
        for name in names:
            found = await compare(other, OPERATIONS[name], Path(place) / name, turns)
            sys.stdout.write(f"{line(name, found)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="loadtest.turns", description="Two checkouts in short turns.")
    parser.add_argument("other", type=Path, metavar="DIR", help="the checkout to compare with")
    parser.add_argument("operation", nargs="*", help=f"some of: {' '.join(OPERATIONS)}")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each checkout")
    given = parser.parse_args()
    if unknown := set(given.operation) - set(OPERATIONS):
        parser.error(f"no such operation: {' '.join(sorted(unknown))}")
    os.sched_setaffinity(0, processes.cores()[1])
    uvloop.run(_run(given.other.resolve(), given.operation or list(OPERATIONS), given.turns))


if __name__ == "__main__":
    main()
