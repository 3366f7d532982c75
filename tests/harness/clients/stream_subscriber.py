"""A subscriber of a shard's changes, which keeps its events and compares them with the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from atoll.events import OLDEST, Event, changes
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer.gaps import Gap
from harness.models.shard_log import ShardLog


class Copy:
    """Objects as the events leave them, the events themselves, and the position; lists from the log's objects."""

    def __init__(
        self, log: ShardLog, wants: Callable[[ObjectKey], bool] = lambda key: True, position: str = OLDEST
    ) -> None:
        self.log, self.wants, self.position = log, wants, position
        self.listed = 0
        self.events: list[Event] = []
        self.objects: dict[ObjectKey, bytes] = {}
        self.gaps: list[Gap] = []

    def handle(self, event: Event) -> None:
        if event.key is None:
            self.gaps.append(Gap(event.reason))
            self.objects, self.listed = self.expected(), self.log.last()
        elif event.revision > self.listed:
            self._apply(event.key, event)
        self.position = event.position

    def _apply(self, key: ObjectKey, event: Event) -> None:
        if event.operation == "DELETED":
            self.objects.pop(key)
        else:
            self.objects[key] = event.payload
        self.events.append(event)

    def expected(self) -> dict[ObjectKey, bytes]:
        return {key: entry.value for key, entry in self.log.objects.items() if self.wants(key)}

    def expected_revisions(self) -> list[int]:
        return [entry.revision for entry in self.log.entries if self.wants(entry.key)]

    @property
    def revisions(self) -> list[int]:
        return [event.revision for event in self.events]


class Subscriber:
    """Changes applied to a copy, in a task. Stop it and make another over the same copy to resume."""

    def __init__(self, stream_file: Path, copy: Copy, **selection: Any) -> None:
        self.task = asyncio.ensure_future(_apply_all(stream_file, copy, selection))

    async def __aenter__(self) -> Subscriber:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.task.cancel()
        outcome = (await asyncio.gather(self.task, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome


async def _apply_all(stream_file: Path, copy: Copy, selection: dict[str, Any]) -> None:
    async with aclosing(changes(stream_file, position=copy.position, **selection)) as events:
        async for event in events:
            copy.handle(event)
