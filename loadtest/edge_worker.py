"""A process of simulated edges: `python -m loadtest.edge_worker`.

The first line of its standard input is a Plan, each other a command, as JSON; for each it prints a number once that is
done. It ends with its input. `edge_processes` is the other side.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
import uvloop

from atoll.machinery.process.tasks import stop
from loadtest.edge_fleet import Edge, fleet
from loadtest.edge_site import Mailbox
from loadtest.edge_syncer import CountingRelay

#: Seconds for which an edge that flaps is there.
FLAP_S = 3.0
#: Longest line of input, in bytes.
LINE_BYTES = 1 << 24


class Plan(msgspec.Struct, frozen=True):
    """The mailboxes of the edges, kubeconfigs of the center and of their clusters' server, and a port of the center."""

    center: str
    clusters: str
    port: int
    mailboxes: list[Mailbox]


class Edges:
    """The edges of this process, and the relay that all of them use."""

    def __init__(self, edges: list[Edge], relay: CountingRelay) -> None:
        self.all, self.relay = edges, relay
        #: Those that were not full when they were looked at last.
        self.lacking = edges
        self._flapping: list[asyncio.Task[None]] = []

    async def flap(self, count: int) -> None:
        """Let the first ones go and come again and again; those that did before stay."""
        for task in self._flapping:
            # Its own error is that of a center which does not answer.
            with suppress(Exception):
                await stop(task)
        self._flapping = [asyncio.create_task(_flap(edge)) for edge in self.all[:count]]


async def _flap(edge: Edge) -> None:
    while True:
        await edge.stop()
        await edge.start()
        await asyncio.sleep(FLAP_S)


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start one of so many parts of the edges, 0 the first; say how many that are."""

    part: int
    parts: int

    async def run(self, edges: Edges) -> int:
        count = len(edges.all)
        chosen = edges.all[count * self.part // self.parts : count * (self.part + 1) // self.parts]
        await asyncio.gather(*(edge.start() for edge in chosen))
        # Else garbage is looked for in all edges that run, with each quarter of them anew.
        gc.freeze()
        return len(chosen)


class Full(msgspec.Struct, frozen=True, tag=True):
    """How many edges have, or had when this was asked before, so many objects and nothing left to do."""

    objects: int

    async def run(self, edges: Edges) -> int:
        edges.lacking = [edge for edge in edges.lacking if not edge.has(self.objects)]
        return len(edges.all) - len(edges.lacking)


class Edited(msgspec.Struct, frozen=True, tag=True):
    """How many edges have a value in an object."""

    name: str
    key: str
    value: str

    async def run(self, edges: Edges) -> int:
        return sum(edge.data(self.name).get(self.key) == self.value for edge in edges.all)


class CutOff(msgspec.Struct, frozen=True, tag=True):
    """How many edges do not follow their mailboxes."""

    async def run(self, edges: Edges) -> int:
        return sum(bool(edge.failure) for edge in edges.all)


class Passed(msgspec.Struct, frozen=True, tag=True):
    """How many bytes went to and from the center."""

    async def run(self, edges: Edges) -> int:
        return edges.relay.passed


class Cut(msgspec.Struct, frozen=True, tag=True):
    """End all connections to the center and refuse new ones."""

    async def run(self, edges: Edges) -> int:
        await edges.relay.cut()
        return 0


class Join(msgspec.Struct, frozen=True, tag=True):
    """Let connections to the center be made again."""

    async def run(self, edges: Edges) -> int:
        edges.relay.is_cut = False
        return 0


class Flap(msgspec.Struct, frozen=True, tag=True):
    """Let one edge of so many flap, at least one; 0: none."""

    of: int

    async def run(self, edges: Edges) -> int:
        count = max(len(edges.all) // self.of, 1) if self.of else 0
        await edges.flap(count)
        return count


Command: TypeAlias = Start | Full | Edited | CutOff | Passed | Cut | Join | Flap


async def serve(lines: asyncio.StreamReader) -> None:
    """Do what the lines say, until they end."""
    plan = msgspec.json.decode(await lines.readline(), type=Plan)
    decode = msgspec.json.Decoder(Command).decode
    async with (
        CountingRelay(plan.port) as relay,
        fleet(Path(plan.center), Path(plan.clusters), plan.mailboxes, relay.port) as found,
    ):
        edges, answer = Edges(found, relay), len(found)
        while True:
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
            if not (line := await lines.readline()):
                break
            answer = await decode(line).run(edges)
        await edges.flap(0)


async def _main() -> None:
    lines = asyncio.StreamReader(LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await serve(lines)


if __name__ == "__main__":
    uvloop.run(_main())
