"""The shards that a new home must not be placed on: those that claim its cluster, though nobody placed it there.

`homes` calls it before it chooses a shard; what is in such a cluster is not its user's. Where this shard keeps only
rows that it needs, what shards say of the cluster is read first. Invariant: a shard whose rows were not read is not
chosen; for PATIENCE_S the user is sent away instead, so that a busy moment does not decide where a home lies.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.status import Details, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import CorruptRecord, Snapshot, Store
from atoll.tenancy.placement import ShardPlacement

PATIENCE_S = 10.0
MAX_HOMES = 4096


class HomeClaims:
    """`seek` reads what shards say of a cluster, and returns those that were not read in time."""

    def __init__(
        self,
        store: Store,
        placement: ShardPlacement,
        seek: Callable[[str], Awaitable[Sequence[str]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._placement, self._seek, self._clock = store, placement, seek, clock
        #: By cluster, when a shard was first not read.
        self._began: LruCache[str, float] = LruCache(MAX_HOMES)

    async def shards(self, cluster: str) -> set[str]:
        """Return the shards that claim a cluster, or that may. Raises TooManyRequests."""
        unread = await self._seek(cluster)
        if unread:
            began_s = self._began.get(cluster)
            if began_s is None:
                self._began.put(cluster, began_s := self._clock())
            if self._clock() - began_s < PATIENCE_S:
                raise TooManyRequests("Creating the home workspace", Details(retry_after_s=1))
        with self._store.snapshot() as snapshot:
            return {*unread, *self._claiming(snapshot, cluster)}

    def _claiming(self, snapshot: Snapshot, cluster: str) -> Iterator[str]:
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        for shard in self._placement.shards(snapshot):
            try:
                if snapshot.replicas.row_of(shard.name, key) is not None:
                    yield shard.name
            except CorruptRecord:
                yield shard.name
