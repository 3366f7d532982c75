"""A projection of a shard's state in memory, as consumers of state keep one."""

from __future__ import annotations

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import StateMark
from atoll.machinery.stream.events import Event, Operation


class StateRows:
    """Rows with revision, value and generation."""

    def __init__(self) -> None:
        self.kept: StateMark | None = None
        self.rows: dict[ObjectKey, tuple[int, bytes, int]] = {}
        self.generation = 0
        self.gaps: list[Gap] = []
        self.sweeps = 0

    def mark(self) -> StateMark | None:
        return self.kept

    async def begin(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self.generation += 1
        self.kept = None

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        for event in events:
            assert event.key is not None
            if event.operation is Operation.DELETED:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = (event.revision, event.payload, self.generation)
        self.kept = mark

    async def sweep(self, mark: StateMark) -> None:
        self.rows = {key: row for key, row in self.rows.items() if row[2] == self.generation}
        self.sweeps += 1
        self.kept = mark

    @property
    def values(self) -> dict[ObjectKey, bytes]:
        return {key: row[1] for key, row in self.rows.items()}
