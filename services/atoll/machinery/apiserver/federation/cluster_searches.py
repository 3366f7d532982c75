"""Searches for clusters of other shards that this shard keeps no rows of, by cluster name or workspace path.

A request that names one ends with `SearchPending` and is served again once the search has ended: then the store has the
rows that say where the cluster lies, or no shard has it. `PathIndex` and the authenticator of foreign service accounts
keep one each. Invariants: a cluster is taken to be nobody's only for ABSENT_S after everything that shards say of it
was read, and while it was not read the answer is a 503, never a refusal; searches at a time and results are bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.status import Details, ServiceUnavailable

log = structlog.get_logger()

ABSENT_S = 1.0
#: Bytes of results, with what an entry takes beside its name.
MAX_RESULT_BYTES, _ENTRY_BYTES = 2 << 20, 256
#: Searches at a time; what is named beyond them is answered 503.
MAX_SEARCHES = 64

#: Returns within a second or so, when the shard of a cluster or path can be read from the store, or no shard has it;
#: the shards that were not read in time.
Seek = Callable[[str], Awaitable[Sequence[str]]]


class SearchPending(MissingAnswer):
    """A computation needs to know whose a cluster is: it is made again when the search has ended."""

    def __init__(self, workspace: str, search: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"it is not known yet which shard has {workspace}")
        self._search = search

    async def fetch(self) -> None:
        await self._search()


class _Result(NamedTuple):
    """Until when it counts, whether every shard was read, and its weight."""

    until_s: float
    is_complete: bool
    size: int


class ClusterSearches:
    """Searches of one event loop; those of one name are one. `refusal` is said while shards were not read."""

    def __init__(self, seek: Seek, refusal: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._seek, self._refusal, self._clock = seek, refusal, clock
        self._results: LruCache[str, _Result] = LruCache(MAX_RESULT_BYTES, lambda result: result.size)
        self._searches: dict[str, asyncio.Task[None]] = {}

    def was_read(self, workspace: str) -> bool:
        """Return whether everything that shards say of a cluster, which the store does not know, was read.

        Raises SearchPending if it was not sought yet.
        """
        result = self._results.get(workspace)
        if result is not None and self._clock() < result.until_s:
            return result.is_complete
        if workspace not in self._searches and len(self._searches) >= MAX_SEARCHES:
            return False
        raise SearchPending(workspace, lambda: self._await_search(workspace))

    def require_none(self, workspace: str) -> None:
        """Return if no shard has a cluster, which the store does not know. Raises SearchPending, ServiceUnavailable."""
        if not self.was_read(workspace):
            raise ServiceUnavailable(self._refusal, Details(retry_after_s=1))

    async def _await_search(self, workspace: str) -> None:
        task = self._searches.get(workspace)
        if task is None:
            task = self._searches[workspace] = asyncio.create_task(self._search(workspace))
        await asyncio.shield(task)

    async def _search(self, workspace: str) -> None:
        is_complete = False
        try:
            is_complete = not await self._seek(workspace)
        except Exception as error:
            log.warning("search for a cluster failed", workspace=workspace, error=repr(error))
        finally:
            result = _Result(self._clock() + ABSENT_S, is_complete, _ENTRY_BYTES + len(workspace))
            self._results.put(workspace, result)
            del self._searches[workspace]
