"""FOLLOW of an identity's resources on other shards: read there as a shard, for an answer of this one.

The shard of the export decides who may have them, and asks every other shard for its part, as `other_parts` does of
subscriptions. `follow` takes what arrived once it has checked the right here, and sends it. A shard that breaks off is
asked again from its last document on; of one that is away nothing comes until it is back. Invariants: the documents of
a shard stay in order and come once; a slow client makes the other shards wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import structlog

from atoll.machinery.apiserver.authorization.groups import LOGICAL_CLUSTER_ADMIN
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.events import Malformed
from atoll.machinery.stream.tenants.structured_events import CLOSED, decode
from atoll.replication.peers import PEER_ERRORS, Peers
from atoll.shard.subscriptions.access_check import AccessDecision, Question
from atoll.shard.subscriptions.follow_request import FollowRequest
from atoll.shard.subscriptions.limits import SKEW_S

log = structlog.get_logger()

#: Documents of all shards that wait for the client.
MAX_DOCUMENTS = 32
#: Three bookmarks.
_SILENCE_S = 30.0
_BACKOFF = Backoff(0.2, 10.0)
_MAX_SECONDS = 999_999


def is_part(question: Question) -> bool:
    """Whether a shard asks for its answer about an identity. Front proxies pass on its group of nobody."""
    return bool(question.identity) and LOGICAL_CLUSTER_ADMIN in question.user.groups


class OtherShardsEvents(NamedTuple):
    """How other shards are asked, and their names."""

    peers: Peers
    names: Callable[[], Collection[str]]

    def parts(self, request: FollowRequest, decision: AccessDecision, news: Callable[[], None]) -> OtherShardsParts:
        """The parts of one answer; `news` is called when there are documents."""
        query = [("resource", each.type.group_resource) for each in decision.selected]
        query.append(("identity", request.question.identity))
        if all(each.full for each in decision.selected):
            query += [("full", "true"), ("previous", "true" if request.previous else "false")]
        return OtherShardsParts(self, request, query, news)


class OtherShardsParts:
    """What other shards send for one answer. `look` begins with those that are new, `close` ends all."""

    def __init__(
        self, shards: OtherShardsEvents, request: FollowRequest, query: list[tuple[str, str]], news: Callable[[], None]
    ) -> None:
        self._shards, self._start, self._query, self._news = shards, request.start, query, news
        self._path = f"/services/events/clusters/{request.question.cluster}/follow"
        self._began_s = time.time()
        self._documents: asyncio.Queue[tuple[str, str, bytes]] = asyncio.Queue(MAX_DOCUMENTS)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: By shard: the `id` of the last document that arrived, and of the last one that was taken.
        self._arrived: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    @property
    def marks(self) -> Collection[str]:
        """Where to go on after what was taken, of each shard that was heard."""
        return self._taken.values()

    def look(self) -> None:
        """Ask the shards that are not asked yet."""
        for shard in self._shards.names():
            if shard not in self._tasks:
                self._tasks[shard] = asyncio.create_task(self._read(shard))

    def take(self) -> Iterator[bytes]:
        """Take the documents that arrived."""
        while not self._documents.empty():
            shard, mark, text = self._documents.get_nowait()
            self._taken[shard] = mark
            yield text

    async def close(self) -> None:
        """End all requests."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _read(self, shard: str) -> None:
        failures = 0
        while True:
            try:
                async with self._shards.peers.client(shard).stream(
                    self._path, [*self._query, ("since", self._since(shard))], idle_timeout_s=_SILENCE_S
                ) as stream:
                    async for line in stream.lines():
                        event = decode(line)
                        if event.atolloperation == CLOSED:
                            break
                        failures = 0
                        await self._documents.put((shard, event.id, line))
                        self._arrived[shard] = event.id
                        self._news()
            except (*PEER_ERRORS, Malformed) as error:
                log.warning("events of another shard not followed", shard=shard, reason=str(error) or "timed out")
            await asyncio.sleep(_BACKOFF.delay_s(failures))
            failures += 1

    def _since(self, shard: str) -> str:
        """Where a shard is to begin: each finds its own among several marks."""
        if shard in self._arrived:
            return self._arrived[shard]
        if self._start.marks:
            return ",".join("-".join(map(str, each)) for each in self._start.marks)
        ago_s = math.ceil(time.time() - self._began_s + self._start.ago_s + SKEW_S)
        return f"{ago_s}s" if ago_s <= _MAX_SECONDS else f"{math.ceil(ago_s / 3600)}h"
