"""How many Events one user may write into one mailbox in a time, and how often its Lease.

The mailbox view takes from it for each such request; for everything else a user takes the time of the event loop
(`loop_time`). A syncer's token is in foreign hands when its edge cluster is; what it can cost the others of the shard
is bounded here. Invariant: over any time, no more than the burst of a rate and its share of that time, in each process
of a shard; what is refused takes nothing, and is answered late.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.request import Request
from atoll.machinery.meta.lru import LruCache
from atoll.virtualworkspaces.edge.mailbox_rules import EVENTS, LEASES
from atoll.virtualworkspaces.edge.refusals import Refusals


class Rate(msgspec.Struct, frozen=True):
    """Units a second, and how many at once."""

    per_s: float
    burst: float


#: An Event is 1 and one more for each KiB: they count for no limit of objects, and stay an hour.
EVENT_WRITES = Rate(2.0, 1000.0)
#: Apart, so that a syncer with much to report is not taken for a silent one.
RENEWALS = Rate(1.0, 30.0)
#: Users whose use is kept; one that is forgotten has its burst again.
_MAX_USERS = 20_000


class Allowances:
    """The use of all mailboxes of one process. `clock` returns monotonic seconds."""

    def __init__(self, refusals: Refusals, clock: Callable[[], float] = time.monotonic) -> None:
        self._refusals, self._clock = refusals, clock
        #: When all that was taken is paid for, by mailbox, user and rate.
        self._paid_at: LruCache[tuple[str, str, Rate], float] = LruCache(_MAX_USERS)
        #: How often something was refused.
        self.refused = 0

    def take(self, cluster: str, user: str, rate: Rate, cost: float) -> None:
        """Take units. Raises TooManyRequests, with the seconds until there are as many."""
        key, now = (cluster, user, rate), self._clock()
        full_at = now - rate.burst / rate.per_s
        # What costs more than there ever is takes all of it.
        paid_at = max(self._paid_at.get(key) or full_at, full_at) + min(cost, rate.burst) / rate.per_s
        if paid_at > now:
            self.refused += 1
            text = f"user {user} asks too much of mailbox {cluster}"
            raise self._refusals.refusal((cluster, user), text, paid_at - now)
        self._paid_at.put(key, paid_at)


def cost_of(request: Request) -> tuple[Rate, float] | None:
    """Return what a request takes, and of which rate; None if it takes of none."""
    info, size_bytes = request.info, len(request.http.body)
    resource = info.group, info.resource
    if resource == LEASES:
        return RENEWALS, 1 + size_bytes / 4096
    return (EVENT_WRITES, 1 + size_bytes / 1024) if resource in EVENTS else None
