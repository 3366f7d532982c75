"""Another shard beside a cell, without a stream between them: the test delivers its rows.

    async with neighbours(tmp_path) as (here, there):
        await there.cell.export("provider", "things", crd("things"))
        await there.flow()                       # rows, routes, and what the controllers here are told
        await here.settle()

Follows what the follower of a shard does with rows: kinds by the publisher's policy, levels by region.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.storage.contract import ClusterRoute, LogEntry, Mutation, Operation, Replica
from harness.servers.in_process.minimal_shard import Cell, cell


class Neighbour:
    """A cell that lies on shard `name`, of whose rows those that replicate reach `here`."""

    def __init__(self, source: Cell, here: Cell, name: str = "east") -> None:
        self.cell, self.here, self.name = source, here, name
        #: Region labels of its Shard, and of the one that it reaches.
        self.region = self.region_here = ""
        self._position, self._policy = 0, KcpStreamPolicy()

    async def flow(self) -> None:
        """Deliver everything written since, and notify the controllers."""
        for entry in self.cell.store.tail(self._position, 10_000):
            self._position = entry.revision
            key = entry.key
            if not self._policy.may_replicate(key.type):
                continue
            if self._policy.replicated(key, entry.value) or entry.operation is Operation.DELETED:
                await self._arrive(entry)

    async def _arrive(self, entry: LogEntry) -> None:
        key, gone = entry.key, entry.operation is Operation.DELETED
        withheld = not gone and not replication_level.may_hold(entry.value, self.region, self.region_here)
        value = b"" if gone or withheld else entry.value
        mutations: list[Mutation] = [
            ClusterRoute(key.cluster, self.name),
            Replica(self.name, key, value, entry.revision, 1),
        ]
        counts = await self.here.store.submit(mutations)
        if counts[1]:
            self.here.deliver_replica(entry if value else _lost(entry, withheld))


def _lost(entry: LogEntry, withheld: bool) -> LogEntry:
    return LogEntry(
        entry.revision,
        Operation.MODIFIED if withheld else Operation.DELETED,
        entry.key,
        entry.value,
        entry.sealed,
        entry.crc,
        entry.previous,
        entry.previous_of_type,
    )


@asynccontextmanager
async def neighbours(directory: Path) -> AsyncIterator[tuple[Cell, Neighbour]]:
    """Two cells: one here, and one whose rows reach it."""
    async with cell(directory / "here") as here, cell(directory / "there") as source:
        yield here, Neighbour(source, here)
