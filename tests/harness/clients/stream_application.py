"""An application of a consumer, that keeps what it is given and judges it against the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.changes_consumer import Consumer, ConsumerOptions, Mark
from atoll.machinery.stream.consumer.gap_check import Gap
from atoll.machinery.stream.events import Event, Operation
from harness.models.shard_log import ShardLog


class Projection:
    """Objects as the events leave them, the events themselves, and the mark; rereads from the log's objects."""

    def __init__(self, log: ShardLog, wants: Callable[[ObjectKey], bool] = lambda key: True) -> None:
        self.log, self.wants = log, wants
        self.kept: Mark | None = None
        self.events: list[Event] = []
        self.objects: dict[ObjectKey, bytes] = {}
        self.gaps: list[Gap] = []

    def mark(self) -> Mark | None:
        return self.kept

    async def apply(self, events: list[Event], mark: Mark) -> None:
        for event in events:
            assert event.key is not None
            if event.operation is Operation.DELETED:
                self.objects.pop(event.key)
            else:
                self.objects[event.key] = event.payload
        self.events.extend(events)
        self.kept = mark

    async def repair(self, gap: Gap) -> int:
        self.gaps.append(gap)
        self.objects = self.expected()
        return self.log.last()

    async def repaired(self, mark: Mark) -> None:
        self.kept = mark

    def expected(self) -> dict[ObjectKey, bytes]:
        return {key: entry.value for key, entry in self.log.objects.items() if self.wants(key)}

    def expected_revisions(self) -> list[int]:
        return [entry.revision for entry in self.log.entries if self.wants(entry.key)]

    @property
    def revisions(self) -> list[int]:
        return [event.revision for event in self.events]


class Subscriber:
    """A running consumer over a projection. Stop it and make another over the same projection to resume."""

    def __init__(self, access: Access, subscription: ConsumerOptions, projection: Projection) -> None:
        self.projection = projection
        self.consumer = Consumer(access, subscription, projection)
        self.task = asyncio.ensure_future(self.consumer.run())

    async def __aenter__(self) -> Subscriber:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.task.cancel()
        outcome = (await asyncio.gather(self.task, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome
