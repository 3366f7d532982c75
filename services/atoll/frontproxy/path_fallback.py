"""A path that the proxy does not know: the shard of the deepest ancestor that it does know is asked, once.

The handler of the proxy comes here for callers that it vouches for; of everybody else a shard knows more than the proxy
(`ProxyAuthentication`). It is how a workspace is found in the moment after it was made, and while the stream stands still. Each
name costs one question: answers are kept for a while, good ones and bad, questions to the same end share one, and there
are so many at a time for each shard and each user, so that who makes up paths holds up nobody but himself. Invariant:
nobody waits longer than DEADLINE_S, and what is not known by then is as good as not there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
import structlog

from atoll.frontproxy.workspace_locator import Location, ShardLocation, UnresolvedPath, WorkspaceLocator
from atoll.machinery.apiserver.authorization.groups import EXTERNAL_LOGICAL_CLUSTER_ADMIN
from atoll.machinery.apiserver.federation.pathindex import MAX_DEPTH, Mounted, Unavailable
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.meta.wellknown import SHARD, SINGLETON
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError, ClientResponse
from atoll.machinery.wire.exchange import Headers

log = structlog.get_logger()

DEADLINE_S = 1.0
#: How long a name that was not there is not asked for again, and how long one that was is not.
ABSENT_S, PRESENT_S = 1.0, 10.0
#: How long a cluster's name may take to arrive: there is no ancestor to be asked about it.
ARRIVAL_S = 0.25
MAX_ANSWERS, MAX_BODY = 4096, 1 << 20
#: Questions under way to one shard, and requests of one user that wait for answers.
MAX_ASKING, MAX_WAITING = 8, 64
#: As whom the proxy asks: kcp's role of components may get Workspaces and LogicalClusters, and nothing that is secret.
ASKER = User("system:kcp:front-proxy", (EXTERNAL_LOGICAL_CLUSTER_ADMIN, AUTHENTICATED))

#: GET a target of the shard at a base URL, with these headers. Raises ClientError, TimeoutError.
ShardGet: TypeAlias = Callable[[str, str, Headers], Awaitable[ClientResponse]]
#: The headers that say as whom is asked, for a cluster.
IdentityHeaders: TypeAlias = Callable[[User, str], Headers]
_WORKSPACE = "/clusters/{}/apis/tenancy.kcp.io/v1alpha1/workspaces/{}"
_CLUSTER = "/clusters/{}/apis/core.kcp.io/v1alpha1/logicalclusters/" + SINGLETON


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    cluster: str = ""
    url: str = msgspec.field(default="", name="URL")
    mount: msgspec.Raw = msgspec.Raw()


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """A Workspace or LogicalCluster, as far as it says where something lies."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(_Answer)


class PathFallback:
    """Finds what `WorkspaceLocator` does not know. One an event loop."""

    def __init__(self, routes: WorkspaceLocator, store: Store, ask: ShardGet, says: IdentityHeaders) -> None:
        self._routes, self._store, self._ask, self._says = routes, store, ask, says
        #: By target: until when an answer counts, and the answer (None: it is not there).
        self._answers: LruCache[tuple[str, str], tuple[float, _Answer | None]] = LruCache(MAX_ANSWERS)
        self._under_way: dict[tuple[str, str], asyncio.Task[_Answer | None]] = {}
        self._places: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    async def find(
        self, workspace: str, unknown: UnresolvedPath, user: User
    ) -> ShardLocation | Mounted | Unavailable | None:
        """Where a path leads after all, for a user; None if it leads nowhere, or nobody says so in time."""
        if self._waiting[user.name] >= MAX_WAITING:
            return None
        self._waiting[user.name] += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                if not unknown.shard:
                    return await self._arriving(workspace)
                return await self._follow(unknown)
        except TimeoutError:
            return None
        finally:
            self._waiting[user.name] -= 1
            if not self._waiting[user.name]:
                del self._waiting[user.name]

    async def _follow(self, unknown: UnresolvedPath) -> ShardLocation | Mounted | Unavailable | None:
        """ShardGet name by name: one that is not there ends it."""
        place: Location | None = unknown
        for _ in range(MAX_DEPTH):
            if not isinstance(place, UnresolvedPath):
                return place
            if not place.shard:
                return None
            place = await (self._home(place) if place.home else self._below(place))
        return None

    async def _below(self, place: UnresolvedPath) -> Location | None:
        name, _, rest = place.rest.partition(":")
        found = await self._answer(place.base_url, _WORKSPACE.format(place.cluster, name), place.cluster)
        if found is None or found.status.phase == "Scheduling":
            return None
        spec, phase = found.spec, found.status.phase
        if not spec.cluster:
            return Mounted(spec.url, bool(spec.url) and phase == "Ready") if spec.mount and not rest else None
        if phase == "Unavailable" and not rest:
            return Unavailable()
        return self._at(found.metadata.annotations.get(SHARD, ""), spec.cluster, rest)

    async def _home(self, place: UnresolvedPath) -> Location | None:
        found = await self._answer(place.base_url, _CLUSTER.format(place.cluster), place.cluster)
        return self._at(place.shard, place.cluster, place.rest) if found is not None else None

    def _at(self, shard: str, cluster: str, rest: str) -> Location | None:
        """Go on from a cluster that a shard was said to hold."""
        with self._store.snapshot() as view:
            found = self._routes.at(view, shard, cluster)
            if found is None or not rest:
                return found
            further = self._routes.find(view, f"{cluster}:{rest}")
        if isinstance(further, UnresolvedPath) and not further.shard:
            return UnresolvedPath(shard, cluster, found.base_url, rest)
        return further

    async def _arriving(self, name: str) -> ShardLocation | Mounted | Unavailable | None:
        """A cluster by its name alone, which may be on its way here: somebody was told it, if it exists."""
        if not is_cluster_name(name) or name.startswith("system:") or self._is_absent("", name):
            return None
        with self._store.snapshot() as view:
            count, place = view.replicas.count, self._routes.find(view, name)
        try:
            async with asyncio.timeout(ARRIVAL_S):
                while isinstance(place, UnresolvedPath):
                    count = await self._store.replicated(count)
                    with self._store.snapshot() as view:
                        place = self._routes.find(view, name)
        except TimeoutError:
            self._answers.put(("", name), (time.monotonic() + ABSENT_S, None))
            return None
        return place

    def _is_absent(self, base_url: str, target: str) -> bool:
        known = self._answers.get((base_url, target))
        return known is not None and known[0] > time.monotonic() and known[1] is None

    async def _answer(self, base_url: str, target: str, cluster: str) -> _Answer | None:
        """What a shard answers, or answered; None for what it does not show."""
        known = self._answers.get((base_url, target))
        if known is not None and known[0] > time.monotonic():
            return known[1]
        task = self._under_way.get((base_url, target))
        if task is None:
            task = self._under_way[base_url, target] = asyncio.create_task(self._asked(base_url, target, cluster))
        # One who leaves, or whose time is over, does not take the answer away from the others.
        return await asyncio.shield(task)

    async def _asked(self, base_url: str, target: str, cluster: str) -> _Answer | None:
        answer: _Answer | None = None
        try:
            async with asyncio.timeout(DEADLINE_S), self._place(base_url):
                response = await self._ask(base_url, target, self._says(ASKER, cluster))
            if response.status == 200 and len(response.body) <= MAX_BODY:
                answer = _decoder.decode(response.body)
        except (ClientError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("shard was not heard of a path", shard=base_url, reason=str(error) or "no answer in time")
        finally:
            del self._under_way[base_url, target]
        until_s = time.monotonic() + (ABSENT_S if answer is None else PRESENT_S)
        self._answers.put((base_url, target), (until_s, answer))
        return answer

    def _place(self, base_url: str) -> asyncio.Semaphore:
        found = self._places.get(base_url)
        if found is None:
            if len(self._places) >= MAX_ANSWERS:
                self._places.clear()
            found = self._places[base_url] = asyncio.Semaphore(MAX_ASKING)
        return found
