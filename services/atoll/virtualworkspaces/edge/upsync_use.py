"""How much came up into a mailbox, so that what an edge cluster sends there is bounded whatever its syncer does.

`mailbox_rules` takes from it for each object of the edge that is made or grows. It is counted once, then what is
written through this process is added; it is counted anew after a while, which shows what others wrote and what went.
Invariant: between two counts the use is never taken for less than it is by what this process wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.edge.categories import comes_up
from atoll.machinery.edge.names import UPSYNCED
from atoll.machinery.edge.upsync import BOUNDS, Bounds
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record
from atoll.virtualworkspaces.edge.carried import Mailbox, came_up, ref_of

#: Twice what a syncer keeps to, as stored objects also have the owners of their fields, and Namespaces come up too.
MOST = Bounds(2 * BOUNDS.objects, 2 * BOUNDS.size_bytes)
#: Seconds between two counts, and how many times longer than a count that is at least.
COUNT_AGAIN_S, _REST = 10.0, 100
_MAX_MAILBOXES = 10_000
_MARK = UPSYNCED.encode()
_NAMESPACES = ("", "namespaces")


class _Use(msgspec.Struct):
    objects: int
    size_bytes: int
    count_again_at_s: float


class UpsyncUse:
    """The use of all mailboxes, as one process knows it. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: LruCache[str, _Use] = LruCache(_MAX_MAILBOXES)

    def take(self, view: View, mailbox: Mailbox, objects: int, size_bytes: int) -> bool:
        """Count more objects and bytes; False, and nothing counted, if there is no room for them."""
        use = self._kept.get(mailbox.cluster)
        if use is None or self._clock() >= use.count_again_at_s:
            use = self._count(view, mailbox)
            self._kept.put(mailbox.cluster, use)
        if use.objects + objects > MOST.objects or use.size_bytes + size_bytes > MOST.size_bytes:
            return False
        use.objects, use.size_bytes = use.objects + objects, use.size_bytes + size_bytes
        return True

    def _count(self, view: View, mailbox: Mailbox) -> _Use:
        began_s, objects, size_bytes = self._clock(), 0, 0
        kinds = [each for each in mailbox.catalog.kinds.values() if each.virtual is None]
        types = {each.type for each in kinds if comes_up(each.group, each.plural)}
        types |= {each.type for each in kinds if (each.group, each.plural) == _NAMESPACES}
        for type in types:
            for record in each_record(view, Scope(type, mailbox.cluster)):
                checkpoint()
                # Most objects go down; looking for the mark is a hundredth of decoding it.
                if _MARK in record.value and came_up(ref_of(type, record.value), record.value):
                    objects, size_bytes = objects + 1, size_bytes + len(record.value)
        ended_s = self._clock()
        return _Use(objects, size_bytes, ended_s + max(COUNT_AGAIN_S, _REST * (ended_s - began_s)))
