"""Bounds on concurrent calls, fair between those on whose behalf they are made.

`guard` takes a slot for each call. A lane is one tenant's calls to one host. Invariants: neither a host nor a tenant
nor a lane has more than its share of slots; a free slot goes to the waiting tenant with the fewest calls under way;
where all places to wait are taken, the tenant with the most loses its newest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TypeVar

import msgspec

_K = TypeVar("_K")
_Lane = tuple[str, str]
_Queue = deque[asyncio.Future[None]]


class TooManyCalls(Exception):
    """Too many calls are waiting already."""


class SlotBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls may be under way: in all, to one host, of one tenant, of one tenant to one host.

    `waiting` more of each tenant may wait, and four times `total` in all.
    """

    total: int
    per_host: int
    per_tenant: int
    per_lane: int
    waiting: int


class CallSlots:
    """Slots for the calls of one process."""

    def __init__(self, bounds: SlotBounds) -> None:
        self._bounds = bounds
        self._max_waiting = bounds.total * 4
        self._running = 0
        self._hosts: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._lanes: dict[_Lane, int] = {}
        self._waiting: dict[str, int] = {}
        self._queues: dict[_Lane, _Queue] = {}

    def slot(self, host: str, tenant: str = "") -> _Slot:
        """Return the context that holds a slot for one call. To enter raises TooManyCalls, at once or after others came
        that waited less."""
        return _Slot(self, (tenant, host))

    async def enter(self, lane: _Lane) -> None:
        """Take a slot, which is given back by `leave`. Raises TooManyCalls."""
        if lane not in self._queues and self._has_room(lane):
            self._enter(lane)
        else:
            await self._wait(lane)

    def _has_room(self, lane: _Lane) -> bool:
        bounds, (tenant, host) = self._bounds, lane
        return (
            self._running < bounds.total
            and self._hosts.get(host, 0) < bounds.per_host
            and self._tenants.get(tenant, 0) < bounds.per_tenant
            and self._lanes.get(lane, 0) < bounds.per_lane
        )

    def _enter(self, lane: _Lane) -> None:
        tenant, host = lane
        self._running += 1
        _increment(self._hosts, host)
        _increment(self._tenants, tenant)
        _increment(self._lanes, lane)

    def leave(self, lane: _Lane) -> None:
        tenant, host = lane
        self._running -= 1
        _decrement(self._hosts, host)
        _decrement(self._tenants, tenant)
        _decrement(self._lanes, lane)
        while self._queues and (found := self._next()) is not None:
            place = self._taken(found, self._queues[found].popleft())
            # The call may have been cancelled and not have run since.
            if not place.done():
                self._enter(found)
                place.set_result(None)

    def _next(self) -> _Lane | None:
        """The lane whose first call starts now, of the tenant with the fewest calls under way."""
        ready = [lane for lane in self._queues if self._has_room(lane)]
        return min(ready, key=lambda lane: self._tenants.get(lane[0], 0), default=None)

    async def _wait(self, lane: _Lane) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting.get(lane[0], 0) >= self._bounds.waiting:
            raise TooManyCalls(lane[1])
        if sum(self._waiting.values()) >= self._max_waiting:
            self._displace(lane)
        self._queues.setdefault(lane, deque()).append(place)
        _increment(self._waiting, lane[0])
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                if place.exception() is None:
                    self.leave(lane)
            elif place in self._queues.get(lane, ()):
                self._queues[lane].remove(place)
                self._taken(lane, place)
            raise

    def _displace(self, lane: _Lane) -> None:
        """End the newest waiting call of the tenant with the most. Raises TooManyCalls where that is no other."""
        tenant = max(self._waiting, key=self._waiting.__getitem__)
        if self._waiting[tenant] <= self._waiting.get(lane[0], 0) + 1:
            raise TooManyCalls(lane[1])
        longest = max((each for each in self._queues if each[0] == tenant), key=lambda each: len(self._queues[each]))
        place = self._taken(longest, self._queues[longest].pop())
        if not place.done():
            place.set_exception(TooManyCalls(longest[1]))

    def _taken(self, lane: _Lane, place: asyncio.Future[None]) -> asyncio.Future[None]:
        """Forget a place that was taken out of its queue."""
        _decrement(self._waiting, lane[0])
        if not self._queues[lane]:
            del self._queues[lane]
        return place


class _Slot:
    """The context of one slot."""

    __slots__ = ("_lane", "_slots")

    def __init__(self, slots: CallSlots, lane: _Lane) -> None:
        self._slots, self._lane = slots, lane

    async def __aenter__(self) -> None:
        await self._slots.enter(self._lane)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.leave(self._lane)


def _increment(counts: dict[_K, int], key: _K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _decrement(counts: dict[_K, int], key: _K) -> None:
    """Count one less; a key without any has no entry."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
