"""Members of the edge controllers: processes that share the work, by a roster in a Lease of the service's workspace.

Each renews an annotation of its own. Who sees that of another unchanged for its life takes it off the roster. A member
that is cut off leaves if another one is not. The epoch of the roster is the fencing token of all that is written.
Invariants: a token is made only for a key that its roster gives to this process, and only while the last renewal is
younger than a life; each roster is written on the state of the one before, so an epoch never names two.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec
import structlog

from atoll.edge.kinds import LEASES
from atoll.edge.roster import WHOLE, Roster
from atoll.machinery.client.client import Client
from atoll.machinery.client.target import Fenced
from atoll.machinery.edge.names import GROUP, LEASE_NAMESPACE
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound
from atoll.machinery.wire.pending_response import ClientError

Clock = Callable[[], float]
log = structlog.get_logger()

#: How long a member that does not renew counts, and how often it renews.
LIFE_S, RENEWAL_S = 12.0, 3.0
#: After how long a member says that it is cut off, and leaves: the others have to have said it before.
CUT_S, LEAVE_S = 5.0, 15.0
#: A process that has not joined says at once that it has not seen everything.
UNJOINED_S = 1e-6
#: Annotations of the Lease: the roster, and one for each member: how often it renewed, and whether it is cut off.
ROSTER, MEMBER = f"{GROUP}/roster", f"member.{GROUP}/"
#: The holder of the Lease, so that a process that works alone waits.
SHARED, CUT = "several", "cut"
#: Why a write was fenced: a shard knows a newer token, or this process has no right to the key.
NEWER, UNOWNED = "newer", "unowned"


class Membership:
    """`run` it as a task. `cut_s` returns for how long this process has been cut off from what it needs.

    `moved` is called with each roster, the one before first. `lost` is called, and has to raise, when this process was
    taken off the roster: what it knows, and is about to write, may be of before.
    """

    def __init__(
        self, client: Client, name: str, identity: str, cut_s: Callable[[], float], clock: Clock = time.monotonic
    ) -> None:
        self._client, self._name, self.identity, self._cut_s = client, name, _name_part(identity), cut_s
        self._clock = clock
        self.moved: Callable[[Roster, Roster], None] = lambda before, after: None
        self.lost: Callable[[], None] = lambda: None
        #: Set once this process has WHOLE.
        self.has_whole = asyncio.Event()
        self.roster = Roster()
        self._has_joined = False
        self._renewals = 0
        self._renewed_s = float("-inf")
        self._looked_s = float("-inf")
        #: Member -> what it said last, and when that was first seen.
        self._seen: dict[str, tuple[str, float]] = {}
        self._nudged, self._turned = asyncio.Event(), asyncio.Event()
        self.failure = "the roster is not read yet"
        #: How many writes were fenced, by reason.
        self.fenced = {NEWER: 0, UNOWNED: 0}

    # --- what this process may do

    def is_owner(self, key: str) -> bool:
        """Whether the roster gives a key to this process."""
        return self.roster.owner(key) == self.identity

    @property
    def is_current(self) -> bool:
        """Whether this process is a member whose last renewal is younger than a life."""
        return self.identity in self.roster.members and self._clock() - self._renewed_s < LIFE_S

    def token(self, key: str) -> int:
        """Return the fencing token of a write for a key, to be sent at once. Raises Fenced."""
        if not key or not self.is_owner(key):
            self.fenced[UNOWNED] += 1
            raise Fenced("another member has this part of the work")
        if not self.is_current:
            self.fenced[UNOWNED] += 1
            raise Fenced("the membership is not renewed")
        return self.roster.epoch

    async def look(self) -> None:
        """Read the roster now: a write was refused."""
        self.fenced[NEWER] += 1
        self._turned.clear()
        self._nudged.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RENEWAL_S):
                await self._turned.wait()

    # --- the roster

    async def run(self) -> None:
        """Renew until cancelled. Raises what `lost` raises."""
        while True:
            self._nudged.clear()
            try:
                await self.turn()
            except (Conflict, AlreadyExists):
                # Somebody wrote it meanwhile.
                continue
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                self.failure = str(error) or type(error).__name__
            self._turned.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEWAL_S):
                    await self._nudged.wait()

    async def release(self) -> None:
        """Leave, so that others need not wait, after all work has ended. Raises ApiError, ClientError."""
        self._renewed_s = float("-inf")
        while self._has_joined:
            lease = await self._client.get(LEASES, self._name, LEASE_NAMESPACE)
            roster = _roster_of(lease)
            if self.identity not in roster.members:
                return
            left = [each for each in roster.members if each != self.identity]
            with contextlib.suppress(Conflict):
                await self._write(lease, roster.changed(left, int(time.time())), {self.identity})
                self._has_joined = False

    async def turn(self) -> None:
        """Renew once, and do what follows. Raises ApiError, ClientError, TimeoutError, and what `lost` raises."""
        now_s, cut_s = self._clock(), self._cut_s()
        lease = await self._renewed(is_cut=cut_s >= (CUT_S if self._has_joined else UNJOINED_S))
        self._see(lease, now_s)
        holder = spec_of(lease).get("holderIdentity") or SHARED
        if holder != SHARED and now_s - self._seen[""][1] < LIFE_S * 3:
            self.failure = f"{holder} has the Lease {self._name} and works alone"
            return
        roster = _roster_of(lease)
        if self._has_joined and self.identity not in roster.members:
            self.lost()
        gone = self._gone(now_s)
        members = self._wanted(roster, cut_s, gone)
        is_joining = self.identity in members and not self._has_joined
        if members != roster.members or is_joining:
            after = roster.changed(members, int(time.time()))
            log.info("roster", epoch=after.epoch, members=len(members), gone=sorted(gone))
            await self._write(lease, after, gone)
            roster = after
        self._adopt(roster, now_s)

    async def _renewed(self, *, is_cut: bool) -> Object:
        """Renew, and return the Lease."""
        said = f"{self._renewals} {CUT}" if is_cut else str(self._renewals)
        self._renewals += 1
        metadata = {"annotations": {MEMBER + self.identity: said}}
        try:
            return await self._client.patch(LEASES, self._name, {"metadata": metadata}, LEASE_NAMESPACE)
        except NotFound:
            head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": SHARED}}
            named = {**metadata, "name": self._name, "namespace": LEASE_NAMESPACE}
            return await self._client.create(LEASES, {**head, "metadata": named})

    def _see(self, lease: Object, now_s: float) -> None:
        """Note what changed of each member, and of who works alone. While this process did not look, silence of others
        says nothing: nobody may have been able to renew."""
        said = {k.removeprefix(MEMBER): v for k, v in annotations_of(lease).items() if k.startswith(MEMBER)}
        said[""] = str(spec_of(lease))
        before = self._seen if now_s - self._looked_s <= LIFE_S / 2 else {}
        self._looked_s = now_s
        self._seen = {
            each: before[each] if each in before and before[each][0] == text else (text, now_s)
            for each, text in said.items()
        }

    def _gone(self, now_s: float) -> set[str]:
        return {each for each, (_, seen_s) in self._seen.items() if each and now_s - seen_s >= LIFE_S}

    def _wanted(self, roster: Roster, cut_s: float, gone: set[str]) -> tuple[str, ...]:
        """Return the members that should be: a process that is cut off joins only if nobody works, and leaves only if
        another one is not."""
        alive = {each for each in self._seen if each and each != self.identity and each not in gone}
        others = alive & set(roster.members)
        if self._has_joined:
            stays = cut_s < LEAVE_S or not any(not self._seen[each][0].endswith(CUT) for each in alive)
        else:
            stays = cut_s <= 0 or not others
        return tuple(sorted({*others, self.identity} if stays else others))

    async def _write(self, lease: Object, roster: Roster, gone: set[str]) -> None:
        annotations = {k: v for k, v in annotations_of(lease).items() if k.removeprefix(MEMBER) not in gone}
        annotations[ROSTER] = msgspec.json.encode(roster).decode()
        spec = {**spec_of(lease), "holderIdentity": SHARED}
        await self._client.update(
            LEASES, {**lease, "metadata": {**lease["metadata"], "annotations": annotations}, "spec": spec}
        )

    def _adopt(self, roster: Roster, now_s: float) -> None:
        before, self.roster = self.roster, roster
        if self.identity in roster.members:
            self._has_joined, self._renewed_s, self.failure = True, now_s, ""
        elif self._has_joined:
            self.lost()
        else:
            self.failure = "not all was seen that a member needs, and others work"
        if self.is_owner(WHOLE):
            self.has_whole.set()
        if roster != before:
            self.moved(before, roster)


class MemberFence:
    """The fence of a client whose writes are for the key that `key` returns at the moment of sending."""

    def __init__(self, membership: Membership, key: Callable[[], str]) -> None:
        self._membership, self._key = membership, key

    def token(self) -> int:
        """Return the token of a write. Raises Fenced."""
        return self._membership.token(self._key())

    async def refused(self) -> None:
        """A newer token was used: read the roster."""
        await self._membership.look()


def _roster_of(lease: Object) -> Roster:
    """Return the roster of a Lease; one that cannot be read is empty."""
    try:
        return msgspec.json.decode(annotations_of(lease).get(ROSTER, "{}"), type=Roster)
    except msgspec.DecodeError:
        return Roster()


def _name_part(identity: str) -> str:
    """Return an identity as the name part of an annotation's key."""
    return identity[-63:].lstrip("-_.")
