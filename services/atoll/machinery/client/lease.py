"""A Lease as a lock and as a heartbeat: at the edge it says who writes there, in the mailbox that the syncer lives.

Invariants: who holds it stops to count as holder when its last renewal is as old as the Lease lasts; another takes it
over only after seeing it unchanged for that time. Both by a clock that only runs forward, so it does not matter what
time the machines believe it is. With `Renewals` a holder also tells its own renewals from those of a copy of itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import LEASE_NAMESPACE
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

LEASES = Resource("coordination.k8s.io", "v1", "leases")


class Timing(msgspec.Struct, frozen=True):
    """How long a Lease lasts, and how often its holder renews it, a tenth more or less."""

    lasts_s: float
    renewal_s: float

    def pause_s(self) -> float:
        """Return how long to wait for the next renewal."""
        pause_s = self.renewal_s * random.uniform(1 - JITTER, 1 + JITTER)
        return round(pause_s / STEP_S) * STEP_S if self.renewal_s >= SELDOM_S else pause_s


#: Keeps holders that began together from renewing together; small, so that as many tries as before fit into a Lease.
JITTER = 0.1
#: Holders that renew seldom wait a multiple of this. A front proxy answers them at whole seconds, so that a few of them
#: come to it at a time (`frontproxy/renewals`): one alone costs it twice as much.
STEP_S, SELDOM_S = 0.25, 10.0


class Renewals(Protocol):
    """Which renewals are this process's own, also of before it was killed."""

    def is_ours(self, time: str) -> bool:
        """Whether a renewal was written, or tried, under this identity."""

    async def note(self, before: str, time: str) -> None:
        """Keep that what was renewed at one time is about to be at another."""

    def renamed(self) -> str:
        """Return another identity, as a copy of this process has the present one."""


class Lease:
    """One Lease; `taken` is called when this process becomes its holder, also after a moment in which nobody was.

    While `may_hold` is false it does not become one.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        identity: str,
        timing: Timing,
        taken: Callable[[], None],
        may_hold: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._name, self._identity = client, name, identity
        self._timing, self._taken, self._may_hold = timing, taken, may_hold
        #: Called when another turns out to hold what this process held.
        self.lost: Callable[[], None] = lambda: None
        #: Called at each turn with the other that holds it, "" if none does.
        self.seen: Callable[[str], None] = lambda holder: None
        self.renewals: Renewals | None = None
        #: `acquired` before this process wrote it last.
        self.former = ""
        self._had_it = False
        self._nudged = asyncio.Event()
        self._lease: Object = {}
        self._seen_at_s = self._renewed_at_s = float("-inf")
        self.failure = "not read yet"

    @property
    def is_held(self) -> bool:
        """Whether this process is the holder."""
        return time.monotonic() - self._renewed_at_s < self._timing.lasts_s

    @property
    def holder(self) -> str:
        """Who was seen to hold it; empty if nobody was."""
        return str(spec_of(self._lease).get("holderIdentity") or "") if self._lease else ""

    @property
    def acquired(self) -> str:
        """When the last holder became it; each has another time. Empty if nobody did."""
        return str(spec_of(self._lease).get("acquireTime") or "") if self._lease else ""

    async def run(self) -> None:
        """Renew or wait for it until cancelled."""
        while True:
            before_s = self._renewed_at_s
            try:
                await self._turn(time.monotonic())
                self.failure = ""
            except (Conflict, AlreadyExists):
                # Somebody wrote it meanwhile: look at it again at once.
                self._lease = {}
                continue
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                self.failure = str(error) or type(error).__name__
                self._lease = {}
            # It may have run out while its renewal was under way: what was refused then has to be looked at again.
            if self.is_held and time.monotonic() - before_s >= self._timing.lasts_s:
                log.info("lease taken", lease=self._name)
                self._taken()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.pause_s()):
                    await self._nudged.wait()
            self._nudged.clear()

    def nudge(self) -> None:
        """Look at it now: whether this process may hold it changed."""
        self._nudged.set()

    async def release(self) -> None:
        """Give it up, so that another need not wait."""
        if not self.is_held:
            return
        # The answer to the last renewal may have been lost.
        await self._look(time.monotonic())
        await self._give_up()

    async def _give_up(self) -> None:
        self._renewed_at_s = float("-inf")
        if self._lease and spec_of(self._lease).get("holderIdentity") == self._identity:
            free = {**self._lease, "spec": {**spec_of(self._lease), "holderIdentity": ""}}
            self._lease = await self._client.update(LEASES, free)

    async def _turn(self, now_s: float) -> None:
        if not (self.is_held and self._lease):
            await self._look(now_s)
        renewals, holder = self.renewals, self.holder
        if renewals is not None and holder == self._identity and not renewals.is_ours(self._renewed_at()):
            log.warning("lease held by a copy of this process", lease=self._name)
            self._identity = renewals.renamed()
        is_free = not holder or holder == self._identity or now_s - self._seen_at_s > self._timing.lasts_s
        self.seen("" if is_free else holder)
        if not is_free:
            self._renewed_at_s = float("-inf")
            if self._had_it:
                self._had_it = False
                self.lost()
            return
        if not self._may_hold():
            await self._give_up()
            return
        now = _now()
        if renewals is not None:
            await renewals.note(self._renewed_at(), now)
        self.former = self.acquired
        if self._had_it and holder == self._identity:
            await self._renew(now)
        elif self._lease:
            self._lease = await self._client.update(LEASES, self._claimed(self._lease, now))
        else:
            head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            new = {**head, "metadata": {"name": self._name, "namespace": LEASE_NAMESPACE}, "spec": {}}
            self._lease = await self._client.create(LEASES, self._claimed(new, now))
        self._renewed_at_s, self._had_it = now_s, True

    def _renewed_at(self) -> str:
        return str(spec_of(self._lease).get("renewTime") or "") if self._lease else ""

    async def _renew(self, now: str) -> None:
        """Write what changes alone, and read the metadata alone: a bad link carries this every half minute."""
        spec = {"renewTime": now}
        patch = {"metadata": {"resourceVersion": self._lease["metadata"]["resourceVersion"]}, "spec": spec}
        metadata = await self._client.patch_for_metadata(LEASES, self._name, patch, LEASE_NAMESPACE)
        self._lease = {**self._lease, "metadata": metadata, "spec": {**spec_of(self._lease), **spec}}

    async def _look(self, now_s: float) -> None:
        """Read it; note when it was seen to change."""
        before = self._lease
        try:
            self._lease = await self._client.get(LEASES, self._name, LEASE_NAMESPACE)
        except NotFound:
            self._lease = {}
        version = (self._lease.get("metadata") or {}).get("resourceVersion")
        if version != (before.get("metadata") or {}).get("resourceVersion"):
            self._seen_at_s = now_s

    def _claimed(self, lease: Object, now: str) -> Object:
        spec = spec_of(lease)
        if spec.get("holderIdentity") != self._identity:
            transitions = int(spec.get("leaseTransitions") or 0) + (1 if spec.get("holderIdentity") else 0)
            spec = {**spec, "acquireTime": now, "leaseTransitions": transitions}
        lasts_s = max(1, round(self._timing.lasts_s))
        spec = {**spec, "holderIdentity": self._identity, "renewTime": now, "leaseDurationSeconds": lasts_s}
        return {**lease, "spec": spec}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
