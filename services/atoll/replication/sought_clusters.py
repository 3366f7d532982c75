"""The owners of clusters that a request names and this shard has no row of: a foreign service account's, a new home's.

`Follower.seek` uses it where only needed rows are kept. A cluster that is sought becomes a needed one: what shards say
of it, and of its ancestors, is read from their streams and judged by the rules of ownership, and stays followed for
KEPT_S. So no shard is believed about a cluster that it does not own, and none need run. Invariants: a request waits for
at most DEADLINE_S; at most MAX_WAITING wait; at most MAX_SOUGHT clusters are followed, the last ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

DEADLINE_S, KEPT_S = 1.0, 3600.0
#: A shard's consumer has up to 500 filters of single objects, and with more receives their resources whole.
MAX_SOUGHT, MAX_WAITING = 500, 64


class NeedingRows(Protocol):
    """What is needed, and known: `needed_rows.NeededRows`."""

    def seek(self, cluster: str) -> None: ...

    def release_sought(self, cluster: str) -> None: ...

    def has_owner(self, cluster: str) -> bool: ...

    async def progress(self) -> None: ...


class SoughtClusters:
    """Seeks owners. `unread` returns the shards of which not all that is wanted was read."""

    def __init__(
        self, rows: NeedingRows, unread: Callable[[], Sequence[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows, self._unread, self._clock = rows, unread, clock
        #: By cluster, when it was sought last; in order.
        self._kept: dict[str, float] = {}
        self._waiting = 0

    async def seek(self, cluster: str) -> Sequence[str]:
        """Return when the shard of a cluster is known, or everything that shards say of it was read.

        Return the shards that were not read in time, empty if it is known: then a cluster without a shard has none.
        """
        self._keep(cluster)
        if self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while not self._rows.has_owner(cluster) and self._unread():
                        await self._rows.progress()
            except TimeoutError:
                pass
            finally:
                self._waiting -= 1
        return () if self._rows.has_owner(cluster) else self._unread()

    def _keep(self, cluster: str) -> None:
        now_s = self._clock()
        self._kept.pop(cluster, None)
        self._kept[cluster] = now_s
        for each, sought_s in list(self._kept.items()):
            if len(self._kept) <= MAX_SOUGHT and now_s - sought_s < KEPT_S:
                break
            del self._kept[each]
            self._rows.release_sought(each)
        self._rows.seek(cluster)
