"""The shards of clusters that this shard keeps no rows of: they are sought when an account of one calls.

`ServiceAccountTokens` calls `require_none` for a verified token of a cluster without a known shard. Authentication
does not wait: it raises `AuthenticationPending`, and the pipeline authenticates again when the search has ended. While
shards were not read, requests with such tokens are a 503: on a 401 clients forget their token. Invariant: a cluster is
taken to be nobody's only for ABSENT_S after everything that shards say of it was read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Details, ServiceUnavailable

ABSENT_S = 1.0
MAX_RESULTS = 8192
#: Clusters that are sought at a time; a token beyond them is answered 503.
MAX_SEARCHES = 64

#: Returns within a second or so, when the shard of a cluster can be read from the store, or no shard has it; the shards
#: that were not read in time.
SeekOwner = Callable[[str], Awaitable[Sequence[str]]]


class RemoteOwners:
    """Searches of one event loop; those of one cluster are one."""

    def __init__(self, seek: SeekOwner, clock: Callable[[], float] = time.monotonic) -> None:
        self._seek, self._clock = seek, clock
        #: By cluster, until when the result is valid, and whether every shard was read.
        self._results: LruCache[str, tuple[float, bool]] = LruCache(MAX_RESULTS)
        self._searches: dict[str, asyncio.Task[None]] = {}

    def require_none(self, cluster: str) -> None:
        """Return if no shard has a cluster, whose shard is not known. Raises AuthenticationPending and
        ServiceUnavailable."""
        until_s, is_complete = self._results.get(cluster) or (0.0, False)
        if self._clock() >= until_s:
            if cluster not in self._searches and len(self._searches) >= MAX_SEARCHES:
                raise _unavailable()
            raise AuthenticationPending(partial(self._await_search, cluster))
        if not is_complete:
            raise _unavailable()

    async def _await_search(self, cluster: str) -> None:
        task = self._searches.get(cluster)
        if task is None:
            task = self._searches[cluster] = asyncio.create_task(self._search(cluster))
        await asyncio.shield(task)

    async def _search(self, cluster: str) -> None:
        is_complete = False
        try:
            is_complete = not await self._seek(cluster)
        finally:
            self._results.put(cluster, (self._clock() + ABSENT_S, is_complete))
            del self._searches[cluster]


def _unavailable() -> ServiceUnavailable:
    return ServiceUnavailable("the shard of the service account is not known yet", Details(retry_after_s=1))
