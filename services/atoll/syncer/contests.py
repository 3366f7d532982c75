"""Objects that somebody at the edge changes back as often as they are applied.

`downsync` tells of each apply, and asks how long to wait before the next. A round is an apply of what was applied
already, soon after the apply before. Invariants: what the mailbox wants anew is applied at once; after ROUNDS rounds
the same is applied once in CALM_S, and the contest ends once the object was left alone for that time. Memory: an entry
for each of the last MAX_APPLIES objects.
"""

from __future__ import annotations

import time

import msgspec

from atoll.machinery.edge.names import SYNCER, ObjectRef
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object

ROUNDS, MAX_APPLIES = 5, 4096
#: How soon an apply follows that is a round; how long a contested object is left alone.
QUICK_S, CALM_S = 10.0, 60.0


class _Applies(msgspec.Struct, frozen=True):
    """The last apply: a digest of what, when, and how many rounds there were."""

    attempt: str
    at_s: float
    rounds: int = 0


class Contests:
    """`calm_s` is how long an object has to be left alone."""

    #: Monotonic seconds.
    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.calm_s = CALM_S
        self._applies: LruCache[ObjectRef, _Applies] = LruCache(MAX_APPLIES)

    def applied(self, ref: ObjectRef, attempt: str) -> None:
        """A configuration with this digest was applied."""
        before, now_s = self._applies.get(ref), self.clock()
        rounds = 0
        if before is not None and before.attempt == attempt:
            soon_s = 2 * self.calm_s if before.rounds >= ROUNDS else QUICK_S
            rounds = before.rounds + 1 if now_s - before.at_s < soon_s else 0
        self._applies.put(ref, _Applies(attempt, now_s, rounds))

    def rounds(self, ref: ObjectRef) -> int:
        """Return the rounds of an object that is contested, 0 for another one."""
        found = self._applies.get(ref)
        is_contested = found is not None and found.rounds >= ROUNDS and self._left_s(found) > 0
        return found.rounds if found is not None and is_contested else 0

    def wait_s(self, ref: ObjectRef, attempt: str = "") -> float:
        """Return the seconds until a configuration may be applied again, without one until the contest may be over."""
        found = self._applies.get(ref)
        if found is None or found.rounds < ROUNDS or (attempt and found.attempt != attempt):
            return 0.0
        return self._left_s(found)

    def _left_s(self, applies: _Applies) -> float:
        return max(applies.at_s + self.calm_s - self.clock(), 0.0)


def opponent(live: Object) -> str:
    """Return the field manager who wrote an object last, but for the syncer and statuses; `?` if there is none."""
    entries = [
        each
        for each in live["metadata"].get("managedFields") or ()
        if each.get("manager") != SYNCER and not each.get("subresource")
    ]
    last: Object = max(entries, key=lambda each: str(each.get("time") or ""), default={})
    return str(last.get("manager") or "?")
