"""Find the shard that has a caller's subscriptions to the events of a workspace that is deleted.

No row says where such a workspace was, so every shard is asked for the caller's own subscriptions, as the caller.
`handler` asks for requests about events whose cluster has no location, of callers whose credential the proxy has
checked, as each costs a request to every shard. Invariants: a location depends on the answer to the caller alone, so
whoever has no subscription there learns nothing; no request waits longer than DEADLINE_S.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from atoll.frontproxy.path_fallback import ShardGet
from atoll.frontproxy.workspace_locator import ShardLocation, WorkspaceLocator
from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError
from atoll.machinery.wire.exchange import Headers

log = structlog.get_logger()

DEADLINE_S = 1.0
#: Callers for whom shards are asked at the same time; others wait, as a part of their deadline.
MAX_SEARCHES = 8
_TARGET = "/services/events/clusters/{}/subscriptions"
_CREDENTIALS = ("authorization", assertion.HEADER)


class _Subscriptions(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


_decoder = msgspec.json.Decoder(_Subscriptions)


class GoneWorkspaces:
    """Asks shards. One for each event loop."""

    def __init__(self, locator: WorkspaceLocator, store: Store, get: ShardGet) -> None:
        self._locator, self._store, self._get = locator, store, get
        self._room = asyncio.Semaphore(MAX_SEARCHES)

    async def find(self, cluster: str, headers: Headers) -> ShardLocation | None:
        """The location of a cluster on the shard that has subscriptions of the caller to it; None if none says so in
        time. `headers` are those of the caller's request to a shard."""
        with self._store.snapshot() as view:
            places = self._locator.places(view, cluster)
        credentials = [each for each in headers if each[0] in _CREDENTIALS or each[0].startswith("impersonate-")]
        try:
            async with asyncio.timeout(DEADLINE_S), self._room, asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(each, credentials)) for each in places]
                for answered in asyncio.as_completed(tasks):
                    if (found := await answered) is not None:
                        for task in tasks:
                            task.cancel()
                        return found
        except TimeoutError:
            pass
        return None

    async def _ask(self, place: ShardLocation, headers: Headers) -> ShardLocation | None:
        try:
            answer = await self._get(place.base_url, _TARGET.format(place.cluster), headers)
            return place if answer.status == 200 and _decoder.decode(answer.body).items else None
        except (ClientError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("shard not asked for subscriptions", shard=place.shard, reason=str(error) or "timed out")
            return None
