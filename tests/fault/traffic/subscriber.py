"""A subscriber of the changes stream that keeps what it was given in a file, as a third party would in a database.

One line a batch, the mark beside the events, so a line is the transaction; a torn last line never was. Runs as a task
inside a test, or as `python -m fault.traffic.subscriber ROOT FILE NAME FILTER...`, which a test may kill at any moment.
A reread is a list of the traffic's resource in every cluster, through the API.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.changes_consumer import Consumer, ConsumerOptions, Mark
from atoll.machinery.stream.consumer.gap_check import Gap
from atoll.machinery.stream.events import Event
from atoll.machinery.wire.client import ClientError
from fault.traffic.shardapi import CONFIGMAPS
from fault.traffic.streamlog import SHARD, Told, told_by

_RETRY_S = 0.2


class Line(msgspec.Struct, omit_defaults=True):
    """One transaction of a subscriber. `gap` marks a reread: `state` maps objects to revisions, at `revision`."""

    mark: Mark | None = None
    events: list[Told] = []
    gap: str = ""
    state: dict[str, int] = {}
    revision: int = 0


class Round(msgspec.Struct):
    """What was received since the start or since one reread."""

    revision: int = 0
    gap: str = ""
    state: dict[str, int] = {}
    events: list[Told] = msgspec.field(default_factory=list)


_decode = msgspec.json.Decoder(Line).decode


class Notebook:
    """`stream.consumer.Application` over a file."""

    def __init__(self, root: Path, file: Path) -> None:
        self._root, self._file = root, file
        self._mark: Mark | None = None
        whole = lines(file)
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in whole))
        for line in whole:
            self._mark = line.mark or self._mark

    def mark(self) -> Mark | None:
        return self._mark

    async def apply(self, events: list[Event], mark: Mark) -> None:
        self._write(Line(mark, [told_by(event.subject, event) for event in events]))

    async def repair(self, gap: Gap) -> int:
        """The shard may be restarting while the stream is read again: ask until it answers."""
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
        revision = int(found["metadata"]["resourceVersion"])
        self._write(Line(gap=str(gap.name), state=state, revision=revision))
        return revision

    async def _list(self) -> dict[str, object]:
        async with Client.from_kubeconfig(str(self._root / "admin.kubeconfig"), "shard-base", "*") as client:
            return await client.list(CONFIGMAPS)

    async def repaired(self, mark: Mark) -> None:
        self._write(Line(mark))

    def _write(self, line: Line) -> None:
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._mark = line.mark or self._mark


def lines(file: Path) -> list[Line]:
    """What a subscriber kept, a torn last line left out."""
    if not file.exists():
        return []
    whole = file.read_bytes().rpartition(b"\n")[0]
    return [_decode(line) for line in whole.splitlines()]


def rounds(file: Path) -> list[Round]:
    """What a subscriber received, from one reread to the next."""
    found = [Round()]
    for line in lines(file):
        if line.gap:
            found.append(Round(line.revision, line.gap, line.state))
        found[-1].events.extend(line.events)
    return found


async def subscribe(root: Path, file: Path, name: str, filters: tuple[str, ...]) -> None:
    """Consume with the operator's credential until cancelled."""
    document = msgspec.json.decode((root / "stream.json").read_bytes())
    subscription = ConsumerOptions(SHARD, filters, name, from_start=True)
    await Consumer(Access(**document["connect"]), subscription, Notebook(root, file)).run()


if __name__ == "__main__":
    asyncio.run(subscribe(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], tuple(sys.argv[4:])))
