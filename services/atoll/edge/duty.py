"""What of the work a process does: all of it while it holds the service's Lease, or its share as one of the members.

`process` has one of both. Invariant: what a process may not do it does not begin, and what it may not do any more ends
the process, as all that it knows may be of before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from atoll.edge.membership import MemberFence, Membership
from atoll.edge.reach import Reach
from atoll.edge.roster import WHOLE
from atoll.edge.roster_metrics import RosterMetrics
from atoll.edge.shares import Shares, SplitController, share_of
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.lease import Lease, Timing
from atoll.machinery.client.target import Fence
from atoll.machinery.control.worker import Reconcile
from atoll.machinery.meta.objects import Object

#: In the workspace of the service.
LEASE, LEASE_TIMING = "edge-controllers", Timing(30.0, 10.0)


class DutyLost(Exception):
    """Another process has what this one had."""


class Source(Protocol):
    """What a process watches."""

    @property
    def interruption(self) -> str:
        """Why it is not reached now; empty if it is."""


class Duty(Protocol):
    """`split_begun` and `whole_begun` are set when controllers begin: those whose keys are split, and the others."""

    split_begun: asyncio.Event
    whole_begun: asyncio.Event
    #: Whether nobody else worked since this process did last, once it begins.
    is_resumed: bool
    #: Of the clients of the former, and of the latter.
    fences: tuple[Fence | None, Fence | None]

    async def run(self) -> None:
        """Keep it until cancelled. Raises DutyLost."""

    async def release(self) -> None:
        """Leave it to others, after all work has ended."""

    def failure(self) -> str:
        """Why this process does not work; empty if it does."""

    def needs(self, sources: Collection[Source]) -> None:
        """Set what has to be reached."""

    def measure(self, registry: CollectorRegistry) -> None:
        """Show what it has."""

    def share(self, controller: SplitController, reconcile: Reconcile[Any]) -> Reconcile[Any]:
        """Return the reconcile of a controller whose keys are split, for the keys of this process alone."""

    def own(self, controller: str, objects: Mapping[str, Object]) -> Collection[Object]:
        """Return the objects, by key of a controller, that this process has."""


class LoneDuty:
    """The duty of a process that works while the others wait."""

    fences: tuple[Fence | None, Fence | None] = (None, None)

    def __init__(self, client: Client, identity: str, store: EdgeStore) -> None:
        self.split_begun = self.whole_begun = asyncio.Event()
        self.is_resumed, self._store = False, store
        self._lease = Lease(client, LEASE, identity, LEASE_TIMING, self._taken)
        self._lease.lost = self._lost

    async def run(self) -> None:
        """Renew the Lease."""
        await self._lease.run()

    async def release(self) -> None:
        """Give the Lease up."""
        await self._lease.release()

    def failure(self) -> str:
        """Return who has it."""
        if self.split_begun.is_set():
            return ""
        return self._lease.failure or f"{self._lease.holder} has the Lease {LEASE} and works"

    def needs(self, sources: Collection[Source]) -> None:
        """It works with what is reached."""

    def measure(self, registry: CollectorRegistry) -> None:
        """Its readiness says all."""

    def share(self, controller: SplitController, reconcile: Reconcile[Any]) -> Reconcile[Any]:
        """Every key is its own."""
        return reconcile

    def own(self, controller: str, objects: Mapping[str, Object]) -> Collection[Object]:
        """Every object is its own."""
        return objects.values()

    def _taken(self) -> None:
        if not self.split_begun.is_set():
            self.is_resumed = self._store.begin(self._lease.former, self._lease.acquired)
            self.split_begun.set()

    def _lost(self) -> None:
        raise DutyLost(f"{self._lease.holder} took the Lease {LEASE}")


class SharedDuty:
    """The duty of a member. It watches for what is split from the start, so that it can take any key."""

    is_resumed = False

    def __init__(self, client: Client, identity: str, store: EdgeStore) -> None:
        store.begin("", "")
        self._sources: list[Callable[[], str]] = []
        self._reach = Reach(self._sources)
        self._membership = Membership(client, LEASE, identity, self._reach.cut_s)
        self._membership.lost = self._lost
        self._shares = Shares(self._membership)
        self.split_begun, self.whole_begun = asyncio.Event(), self._membership.has_whole
        self.split_begun.set()
        self.fences: tuple[Fence | None, Fence | None] = (
            self._shares.fence,
            MemberFence(self._membership, lambda: WHOLE),
        )

    async def run(self) -> None:
        """Keep the membership."""
        await self._membership.run()

    async def release(self) -> None:
        """Leave the roster."""
        await self._membership.release()

    def failure(self) -> str:
        """Return why it is no member."""
        failure = self._membership.failure
        return f"{failure}: {self._reach.reason}" if failure and self._reach.reason else failure

    def needs(self, sources: Collection[Source]) -> None:
        """Set what has to be reached."""
        self._sources.extend(lambda each=each: each.interruption for each in sources)  # type: ignore[misc]

    def measure(self, registry: CollectorRegistry) -> None:
        """Show the roster, and its keys."""
        RosterMetrics(self._membership, self._shares.count, registry)

    def share(self, controller: SplitController, reconcile: Reconcile[Any]) -> Reconcile[Any]:
        """Its keys are those that the roster gives it."""
        return self._shares.split(controller, reconcile)

    def own(self, controller: str, objects: Mapping[str, Object]) -> Collection[Object]:
        """Return what the roster gives it."""
        return [each for key, each in objects.items() if self._membership.is_owner(share_of(controller, key))]

    def _lost(self) -> None:
        raise DutyLost("this process was taken off the roster")
