"""A subscriber of the changes of a shard that keeps what it was given in a file, as a third party would in a database.

One line an event, the position beside it, so a line is the transaction; a torn last line never was. Runs as a task
inside a test, or as `python -m fault.traffic.subscriber ROOT FILE NAME CLUSTER IDENTITY`, which a test may kill at any
moment. A reread is a list of the traffic's resource in every cluster, through the API.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import msgspec

from atoll.events import OLDEST, Event, changes
from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.wire.client import ClientError
from fault.traffic.shardapi import CONFIGMAPS
from fault.traffic.streamlog import SHARD, StreamMessage, message_of

_RETRY_S = 0.2


class Selection(msgspec.Struct, frozen=True):
    """Changes of one cluster, of one identity, or all."""

    cluster: str = ""
    identity: str = ""

    @property
    def filters(self) -> tuple[str, ...]:
        return subjects.filters(subjects.CHANGES, SHARD, cluster=self.cluster, identity=self.identity)


class Line(msgspec.Struct, omit_defaults=True):
    """One transaction of a subscriber. `gap` marks a reread: `state` maps objects to revisions, at `revision`."""

    position: str = OLDEST
    events: list[StreamMessage] = []
    gap: str = ""
    state: dict[str, int] = {}
    revision: int = 0


class Round(msgspec.Struct):
    """What was received since the start or since one reread."""

    revision: int = 0
    gap: str = ""
    state: dict[str, int] = {}
    events: list[StreamMessage] = msgspec.field(default_factory=list)


_decode = msgspec.json.Decoder(Line).decode


class Notebook:
    """Handles events as lines of a file. Changes that a list already contained are not recorded again."""

    def __init__(self, listing: Callable[[], Awaitable[Object]], file: Path) -> None:
        """`listing` lists the traffic's resource as far as the subscriber may see it."""
        self._list, self._file = listing, file
        self.position, self._listed = OLDEST, 0
        whole = lines(file)
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in whole))
        for line in whole:
            self._note(line)

    async def handle(self, event: Event) -> None:
        if event.key is None:
            self._write(await self._reread(event))
        elif event.revision > self._listed:
            self._write(Line(event.position, [message_of(event.key, event)]))

    async def _reread(self, event: Event) -> Line:
        """The shard may be restarting while the stream is read again: repeat until it answers."""
        while True:
            try:
                found = await self._list()
                break
            except (ClientError, TimeoutError, OSError):
                await asyncio.sleep(_RETRY_S)
        state = {}
        for item in found["items"]:
            metadata = item["metadata"]
            key = f"{metadata['annotations']['kcp.io/cluster']}/{metadata['namespace']}/{metadata['name']}"
            state[key] = int(metadata["resourceVersion"])
        return Line(event.position, [], Gap(event.reason).name, state, int(found["metadata"]["resourceVersion"]))

    def _write(self, line: Line) -> None:
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._note(line)

    def _note(self, line: Line) -> None:
        self.position, self._listed = line.position, max(line.revision, self._listed)


def lines(file: Path) -> list[Line]:
    """The lines that a subscriber kept, without a torn last line."""
    if not file.exists():
        return []
    whole = file.read_bytes().rpartition(b"\n")[0]
    return [_decode(line) for line in whole.splitlines()]


def rounds(file: Path) -> list[Round]:
    """The events that a subscriber received, from one reread to the next."""
    found = [Round()]
    for line in lines(file):
        if line.gap:
            found.append(Round(line.revision, line.gap, line.state))
        found[-1].events.extend(line.events)
    return found


async def everywhere(root: Path) -> Object:
    """The traffic's resource in all clusters."""
    async with Client.from_kubeconfig(str(root / "admin.kubeconfig"), "shard-base", "*") as client:
        return await client.list(CONFIGMAPS)


async def subscribe(root: Path, file: Path, name: str, selection: Selection) -> None:
    """Consume with the operator's credential until cancelled."""
    notebook = Notebook(partial(everywhere, root), file)
    async with aclosing(
        changes(
            root / "stream.json",
            position=notebook.position,
            cluster=selection.cluster,
            identity=selection.identity,
            consumer=name,
        )
    ) as events:
        async for event in events:
            await notebook.handle(event)


if __name__ == "__main__":
    asyncio.run(subscribe(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Selection(*sys.argv[4:])))
