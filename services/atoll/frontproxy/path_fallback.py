"""Look up a path that the proxy's store does not know at the shard of its deepest known ancestor.

`handler` calls it for users that the proxy authenticated itself; of others a shard knows more (`authentication`). It
finds a workspace in the moment after its creation, and while the state stream stands still. Each name costs one
request: positive and negative results are cached, and concurrent look-ups of one name share a request. Limits are per
shard and per user, so a client that probes random paths slows down only itself. Invariants: no request waits longer
than DEADLINE_S; a path below a known workspace is taken to be nobody's only if that workspace's shard said so. While
that shard says nothing, the answer is the 503 of a known path there, whether the path exists or not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import msgspec
import structlog

from atoll.frontproxy.errors import shard_unreachable
from atoll.frontproxy.workspace_locator import Location, MountLoop, ShardLocation, UnresolvedPath, WorkspaceLocator
from atoll.machinery.apiserver.authorization.groups import EXTERNAL_LOGICAL_CLUSTER_ADMIN
from atoll.machinery.apiserver.federation.pathindex import MAX_DEPTH, Mounted, Unavailable, WorkspaceTarget
from atoll.machinery.meta.labels import SUBDOMAIN_SIZE
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.partial import Annotations
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.meta.wellknown import SHARD, SINGLETON
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError, ClientResponse
from atoll.machinery.wire.exchange import Headers

log = structlog.get_logger()

DEADLINE_S = 1.0
#: How long a negative and a positive result are cached.
ABSENT_S, PRESENT_S = 1.0, 10.0
#: How long a cluster's name is waited for: it has no ancestor to look it up at.
ARRIVAL_S = 0.25
MAX_RESULTS, MAX_BODY = 4096, 1 << 20
#: Concurrent look-ups at one shard, and waiting requests of one user.
MAX_LOOKUPS, MAX_WAITING = 8, 64
#: The proxy's own user: kcp's role of components may get Workspaces and LogicalClusters, and no secrets.
PROXY_USER = User("system:kcp:front-proxy", (EXTERNAL_LOGICAL_CLUSTER_ADMIN, AUTHENTICATED))

#: GET a target of the shard at a base URL, with these headers. Raises ClientError, TimeoutError.
ShardGet: TypeAlias = Callable[[str, str, Headers], Awaitable[ClientResponse]]
#: The identity headers of a user, for requests about a cluster. Raises ApiError.
IdentityHeaders: TypeAlias = Callable[[User, str], Headers]
_WORKSPACE = "/clusters/{}/apis/tenancy.kcp.io/v1alpha1/workspaces/{}"
_CLUSTER = "/clusters/{}/apis/core.kcp.io/v1alpha1/logicalclusters/" + SINGLETON


class _Object(WorkspaceTarget, frozen=True):
    """The fields of a Workspace or LogicalCluster that tell a location."""

    metadata: Annotations = Annotations()


_decoder = msgspec.json.Decoder(_Object)


class _Result(NamedTuple):
    """Until when it counts, the object (None: the shard does not return it), and whether the shard could say so."""

    until_s: float
    obj: _Object | None
    was_read: bool = True


class PathFallback:
    """Looks up paths. One for each event loop."""

    def __init__(
        self, locator: WorkspaceLocator, store: Store, get: ShardGet, identity_headers: IdentityHeaders
    ) -> None:
        self._locator, self._store, self._get, self._identity_headers = locator, store, get, identity_headers
        #: By base URL and target.
        self._results: LruCache[tuple[str, str], _Result] = LruCache(MAX_RESULTS)
        self._lookups: dict[tuple[str, str], asyncio.Task[_Result]] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    async def find(
        self, workspace: str, unknown: UnresolvedPath, user: User
    ) -> ShardLocation | Mounted | Unavailable | MountLoop | None:
        """The location of a path, for a user; None if it does not exist.

        Raises ServiceUnavailable if the shard that could tell does not, or not in time.
        """
        if self._waiting[user.name] >= MAX_WAITING:
            raise shard_unreachable()
        self._waiting[user.name] += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                if not unknown.shard:
                    return await self._arriving(workspace)
                return await self._follow(unknown)
        except TimeoutError:
            raise shard_unreachable() from None
        finally:
            self._waiting[user.name] -= 1
            if not self._waiting[user.name]:
                del self._waiting[user.name]

    async def _follow(self, unknown: UnresolvedPath) -> ShardLocation | Mounted | Unavailable | MountLoop | None:
        """Resolve name by name, until one does not exist."""
        location: Location | None = unknown
        for _ in range(MAX_DEPTH):
            if not isinstance(location, UnresolvedPath):
                return location
            if not location.shard:
                return None
            location = await (self._home(location) if location.home else self._below(location))
        return None

    async def _below(self, location: UnresolvedPath) -> Location | None:
        name, _, rest = location.rest.partition(":")
        if len(name) > SUBDOMAIN_SIZE:
            return None
        found = await self._object(location.base_url, _WORKSPACE.format(location.cluster, name), location.cluster)
        if found is None or found.status.phase == "Scheduling":
            return None
        if not found.spec.cluster:
            mounted = found.mounted() if not rest else None
            if mounted is None:
                return None
            with self._store.snapshot() as view:
                return self._locator.beyond(view, mounted)
        if found.status.phase == "Unavailable" and not rest:
            return Unavailable()
        return self._at(found.metadata.annotations.get(SHARD, ""), found.spec.cluster, rest)

    async def _home(self, location: UnresolvedPath) -> Location | None:
        found = await self._object(location.base_url, _CLUSTER.format(location.cluster), location.cluster)
        if found is None:
            # Its marker or its LogicalCluster may be on its way here.
            arrived = await self._arriving(location.cluster)
            if not isinstance(arrived, ShardLocation):
                return None
            return self._at(arrived.shard, arrived.cluster, location.rest)
        return self._at(location.shard, location.cluster, location.rest)

    def _at(self, shard: str, cluster: str, rest: str) -> Location | None:
        """Go on from a cluster that an object placed on a shard."""
        with self._store.snapshot() as view:
            found = self._locator.at(view, shard, cluster)
            if found is None or not rest:
                return found
            further = self._locator.find(view, f"{cluster}:{rest}")
        if isinstance(further, UnresolvedPath) and not further.shard:
            return UnresolvedPath(shard, cluster, found.base_url, rest)
        return further

    async def _arriving(self, name: str) -> ShardLocation | Mounted | Unavailable | MountLoop | None:
        """A cluster given by its name, whose row may be on its way to this store."""
        if not is_cluster_name(name) or name.startswith("system:") or self._is_cached_absent("", name):
            return None
        with self._store.snapshot() as view:
            count, location = view.replicas.count, self._locator.find(view, name)
        try:
            async with asyncio.timeout(ARRIVAL_S):
                while isinstance(location, UnresolvedPath):
                    count = await self._store.replicated(count)
                    with self._store.snapshot() as view:
                        location = self._locator.find(view, name)
        except TimeoutError:
            self._results.put(("", name), _Result(time.monotonic() + ABSENT_S, None))
            return None
        return location

    def _is_cached_absent(self, base_url: str, target: str) -> bool:
        known = self._results.get((base_url, target))
        return known is not None and known.until_s > time.monotonic() and known.obj is None

    async def _object(self, base_url: str, target: str, cluster: str) -> _Object | None:
        """An object of a shard, perhaps cached; None if the shard does not return it. Raises ServiceUnavailable."""
        found = self._results.get((base_url, target))
        if found is None or found.until_s <= time.monotonic():
            task = self._lookups.get((base_url, target))
            if task is None:
                task = self._lookups[base_url, target] = asyncio.create_task(self._request(base_url, target, cluster))
            # A request that is cancelled or timed out does not cancel the look-up of the others.
            found = await asyncio.shield(task)
        if not found.was_read:
            raise shard_unreachable()
        return found.obj

    async def _request(self, base_url: str, target: str, cluster: str) -> _Result:
        obj, was_read = None, False
        try:
            async with asyncio.timeout(DEADLINE_S), self._slot(base_url):
                response = await self._get(base_url, target, self._identity_headers(PROXY_USER, cluster))
            was_read = response.status < 500 and response.status != 429
            if response.status == 200 and len(response.body) <= MAX_BODY:
                obj = _decoder.decode(response.body)
        except (ClientError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("path lookup at shard failed", shard=base_url, reason=str(error) or "timed out")
        finally:
            del self._lookups[base_url, target]
        result = _Result(time.monotonic() + (ABSENT_S if obj is None else PRESENT_S), obj, was_read)
        self._results.put((base_url, target), result)
        return result

    def _slot(self, base_url: str) -> asyncio.Semaphore:
        found = self._slots.get(base_url)
        if found is None:
            if len(self._slots) >= MAX_RESULTS:
                self._slots.clear()
            found = self._slots[base_url] = asyncio.Semaphore(MAX_LOOKUPS)
        return found
