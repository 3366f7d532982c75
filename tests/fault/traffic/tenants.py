"""Subscribers of tenants, several in a process that a test may kill at any moment.

`python -m fault.traffic.tenants FILE` reads a list of `Tenant`. Each keeps what it was given in a file of its own, as
`subscriber` does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from atoll.events import Event, subscribe
from atoll.machinery.client.client import Client
from atoll.machinery.client.target import Entry, make_target
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from fault.recorder.history import Scope
from fault.traffic.shardapi import CONFIGMAPS
from fault.traffic.streamlog import SHARD, StreamMessage
from fault.traffic.subscriber import Line, Notebook


class Tenant(msgspec.Struct, frozen=True):
    """One subscription to the traffic of a cluster, and where its events are kept."""

    url: str
    ca_file: str
    cluster: str
    token: str
    name: str
    full: bool
    file: str

    @property
    def filters(self) -> tuple[str, ...]:
        return (subjects.changes_subject(SHARD, ResourceType("", CONFIGMAPS.plural, CORE), self.cluster),)

    @property
    def scope(self) -> Scope:
        return Scope(self.cluster)

    def seen(self, message: StreamMessage) -> StreamMessage:
        """A message as this subscriber gets it: a thin event has no payload."""
        return message if self.full else msgspec.structs.replace(message, checksum=0)

    async def listed(self) -> Object:
        server = Entry("server", {"server": self.url, "certificate-authority": self.ca_file}, Path())
        async with Client(make_target(server, Entry("user", {"token": self.token}, Path())), self.cluster) as client:
            return await client.list(CONFIGMAPS)


class _Notebook(Notebook):
    """Events come at least once: what was noted before a kill comes again, and is not noted again."""

    last = 0

    async def handle(self, event: Event) -> None:
        if event.key is None or event.revision > self.last:
            await super().handle(event)

    def _note(self, line: Line) -> None:
        super()._note(line)
        self.last = max(self.last, line.revision, *(event.revision for event in line.events))


async def follow(tenant: Tenant) -> None:
    """Subscribe from the oldest event on, until cancelled."""
    notebook = _Notebook(tenant.listed, Path(tenant.file))
    async with subscribe(
        tenant.url,
        cluster=tenant.cluster,
        resources=["configmaps"],
        name=tenant.name,
        token=tenant.token,
        ca_file=tenant.ca_file,
        since="1h",
        full=tenant.full,
    ) as events:
        async for event in events:
            await notebook.handle(event)


async def follow_all(tenants: list[Tenant]) -> None:
    async with asyncio.TaskGroup() as group:
        for tenant in tenants:
            group.create_task(follow(tenant))


if __name__ == "__main__":
    asyncio.run(follow_all(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Tenant])))
