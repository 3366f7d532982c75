"""What one user may ask of one mailbox in a time: requests by what they cost, Events and renewals of the Lease apart.

The mailbox view takes from it before it reads anything. A syncer's token is in foreign hands when its edge cluster is;
what it can cost the others of the shard is bounded here. Invariant: over any time, no more than the burst of a rate and
its share of that time, in each process of a shard; what is refused takes nothing, and is answered late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.call.options import integer
from atoll.machinery.apiserver.request import Request
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Details, TooManyRequests
from atoll.virtualworkspaces.edge.mailbox_rules import EVENTS, LEASES


class Rate(msgspec.Struct, frozen=True):
    """Units a second, and how many at once."""

    per_s: float
    burst: float


#: A read is 1, a list or watch 10, a list one more for each 32 objects of its mailbox that it may have, a write 2 and
#: one more for each 16 KiB.
REQUESTS = Rate(300.0, 3000.0)
#: An Event is 1 and one more for each KiB: they count for no limit of objects, and stay an hour.
EVENT_WRITES = Rate(2.0, 1000.0)
#: Apart, so that a syncer with much to report is not taken for a silent one.
RENEWALS = Rate(1.0, 30.0)
#: A refusal costs what authentication does, so a flood of them is slowed too: a connection gets one in so many seconds.
HOLD_S = 1.0
#: Users whose use is kept; one that is forgotten has its burst again.
_MAX_USERS = 20_000
_LISTS = ("list", "watch")


class Allowances:
    """The use of all mailboxes of one process. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When all that was taken is paid for, by mailbox, user and rate.
        self._paid_at: LruCache[tuple[str, str, Rate], float] = LruCache(_MAX_USERS)

    def take(self, cluster: str, user: str, rate: Rate, cost: float) -> None:
        """Take units. Raises TooManyRequests, with the seconds until there are as many."""
        key, now = (cluster, user, rate), self._clock()
        full_at = now - rate.burst / rate.per_s
        # What costs more than there ever is takes all of it.
        paid_at = max(self._paid_at.get(key) or full_at, full_at) + min(cost, rate.burst) / rate.per_s
        if paid_at > now:
            text = f"user {user} asks too much of mailbox {cluster}"
            refusal = TooManyRequests(text, Details(retry_after_s=math.ceil(paid_at - now)))
            refusal.hold_s = HOLD_S
            raise refusal
        self._paid_at.put(key, paid_at)


def cost_of(request: Request, objects: Callable[[], int]) -> tuple[Rate, float]:
    """Return what a request takes, and of which rate. `objects` counts those of its mailbox, of all kinds."""
    info, size_bytes = request.info, len(request.http.body)
    resource = info.group, info.resource
    if resource == LEASES:
        return RENEWALS, 1 + size_bytes / 4096
    if resource in EVENTS:
        return EVENT_WRITES, 1 + size_bytes / 1024
    if not info.is_resource or info.verb == "get":
        return REQUESTS, 1
    if info.verb not in _LISTS:
        return REQUESTS, 2 + size_bytes / (16 * 1024)
    return REQUESTS, 10 + (_listed(request, objects()) / 32 if info.verb == "list" else 0)


def _listed(request: Request, objects: int) -> int:
    """Return how many of so many objects a list may have. Raises BadRequest."""
    limit = integer(request.info.query, "limit")
    return min(objects, limit) if limit > 0 else objects
