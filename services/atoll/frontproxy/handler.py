"""Each request of the proxy: where it goes, who asks, and on with it.

    own paths → mapping → place → caller → headers → relay

The server calls it once the head of a request is there. What is decided here is decided from the proxy's own store, so
that a request waits for nobody but its backend; only a path that is not known, and a token whose issuer's keys are not
there yet, are asked for elsewhere, for a second at most. Invariants: a request goes to one backend, or is refused; what
says who asks is written by `identity` alone; a mount gets the caller's own credential and nothing of ours.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec
import structlog

from atoll.frontproxy import request_target
from atoll.frontproxy.authentication import ProxyAuthentication, RequestUser
from atoll.frontproxy.endpoints import Endpoints
from atoll.frontproxy.errors import in_circles, no_routes, refuse, shard_down, unavailable
from atoll.frontproxy.mapping import Mapping, MappingTable
from atoll.frontproxy.metrics import OWN, ProxyMetrics
from atoll.frontproxy.route_table import Routes, RouteTable
from atoll.frontproxy.unknown_workspace import UnknownWorkspace
from atoll.frontproxy.workspace_locator import ShardLocation, UnresolvedPath
from atoll.machinery.apiserver.authentication.oidc.keys import Unsettled
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.egress import EgressError
from atoll.machinery.apiserver.egress.forward import Forwarder
from atoll.machinery.apiserver.pathindex import Mounted, Unavailable
from atoll.machinery.apiserver.requestinfo import WILDCARD, RequestInfo, parse
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.status import ApiError, ServiceUnavailable, Unauthorized
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.machinery.wire.exchange import Exchange, Headers
from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.backend import Backend, Backends
from atoll.machinery.wire.proxy.relay import Relay
from atoll.machinery.wire.proxy.streaming import StreamingExchange

log = structlog.get_logger()

#: Issuers whose keys one request may wait for.
MAX_SETTLED = 2


class ProxyParts(msgspec.Struct, frozen=True):
    """What the doors are made of. `shards` is the context that shards are spoken to in."""

    store: Store
    ways: RouteTable
    identity: ProxyAuthentication
    table: MappingTable
    backends: Backends
    shards: ssl.SSLContext
    forwarder: Callable[[], Forwarder]
    own: Endpoints
    metrics: ProxyMetrics


class ProxyRequest(NamedTuple):
    """One request, as far as it is understood: `workspace` is empty where it names none, `at` is where it stands in the
    path of a mapping that is not for shards."""

    exchange: StreamingExchange
    info: RequestInfo
    mapping: Mapping
    workspace: str
    rest: bytes
    at: int
    #: The mapping says which workspace the request is for.
    bound: bool
    began_s: float


class ProxyHandler:
    """The handler of a proxy's server."""

    def __init__(self, parts: ProxyParts) -> None:
        self._parts = parts
        self._closed = UnknownWorkspace()

    def __call__(self, exchange: Exchange) -> None:
        self._serve(cast(StreamingExchange, exchange), MAX_SETTLED)

    def _serve(self, exchange: StreamingExchange, settles: int) -> None:
        began_s = time.monotonic()
        info = _UNPARSED
        try:
            info = parse(exchange.request.method, exchange.request.target)
            if self._parts.own.serves(info):
                self._parts.own.serve(exchange, info, began_s)
                return
            if framing.passes(exchange.request) >= framing.MAX_PASSES:
                raise in_circles()
            asked = self._understood(exchange, info, began_s)
            with self._parts.store.snapshot() as snapshot:
                self._pass_on(asked, snapshot)
        except Unsettled as error:
            if settles:
                exchange.spawn(self._once_settled(exchange, error, settles - 1))
            else:
                self._refuse(exchange, info, Unauthorized(), began_s)
        except Exception as error:
            self._refuse(exchange, info, error, began_s)

    async def _once_settled(self, exchange: StreamingExchange, error: Unsettled, settles: int) -> None:
        """Serve a request whose token could not be judged before keys of its issuer were fetched."""
        await error.settle()
        self._serve(exchange, settles)

    def _understood(self, exchange: StreamingExchange, info: RequestInfo, began_s: float) -> ProxyRequest:
        """Which mapping is for a request, and which workspace it names. Raises ApiError."""
        request = exchange.request
        segments = [part for part in info.path.split("/") if part]
        if info.workspace:
            segments = ["clusters", info.workspace, *segments]
        mapping, held = self._parts.table.choose(segments)
        token = token_cluster(request) if not info.workspace and not info.service else ""
        if token:
            # A service account's token says by itself which cluster it speaks to, as in kcp.
            shards, _ = self._parts.table.choose(("clusters", token))
            if shards is not None and shards.is_shards:
                return ProxyRequest(exchange, info, shards, token, request.target, 0, True, began_s)
        if mapping is None:
            raise ApiError("the server could not find the requested resource", code=404, reason="NotFound")
        if mapping.is_shards and info.workspace:
            rest = request_target.behind_workspace(request.target)
            return ProxyRequest(exchange, info, mapping, info.workspace, rest, 0, True, began_s)
        if held:
            at = mapping.segments.index("{cluster}")
            return ProxyRequest(exchange, info, mapping, held, b"", at, True, began_s)
        at = 1 if info.workspace else request_target.workspace_at(segments)
        workspace = segments[at] if at else ""
        # `*` inside of a service is for the service to judge; without one it is refused as for shards.
        if workspace == WILDCARD and not info.workspace:
            at, workspace = 0, ""
        return ProxyRequest(exchange, info, mapping, workspace, b"", at, bool(info.workspace), began_s)

    def _pass_on(self, asked: ProxyRequest, snapshot: Snapshot) -> None:
        way = self._parts.ways.of(snapshot)
        if way is None:
            raise no_routes()
        place = way.routes.find(snapshot, asked.workspace) if asked.workspace else None
        self._go(asked, way, place, snapshot)

    def _go(
        self,
        asked: ProxyRequest,
        way: Routes,
        place: ShardLocation | Mounted | Unavailable | UnresolvedPath | None,
        snapshot: Snapshot,
    ) -> None:
        if isinstance(place, Mounted):
            self._mounted(asked, place)
            return
        if isinstance(place, Unavailable):
            self._count(asked, OWN, unavailable(asked.exchange))
            return
        request = asked.exchange.request
        cluster = place.cluster if isinstance(place, ShardLocation) and asked.bound else ""
        caller = self._parts.identity.identify(request, cluster, snapshot)
        if isinstance(place, UnresolvedPath):
            self._unknown(asked, way, place, caller, snapshot)
        elif place is None:
            self._to_mapping(asked, way, "", caller, snapshot)
        elif asked.mapping.is_shards:
            self._to_shard(asked, place, request_target.below("", place.cluster, asked.rest), caller)
        else:
            self._to_mapping(asked, way, place.cluster, caller, snapshot)

    # Where requests go

    def _to_shard(self, asked: ProxyRequest, place: ShardLocation, target: str, caller: RequestUser) -> None:
        parts = self._parts
        backend = parts.backends.of(place.base_url, parts.shards)
        headers = parts.identity.headers(asked.exchange.request, caller, place.cluster)
        self._relay(asked, backend, backend.path + target, headers, place.shard)

    def _to_mapping(
        self, asked: ProxyRequest, way: Routes, cluster: str, caller: RequestUser, snapshot: Snapshot
    ) -> None:
        """To the backend of a mapping that is not for shards, or to the root shard where it names none."""
        parts, mapping, request = self._parts, asked.mapping, asked.exchange.request
        target = request_target.elsewhere("", request.target, asked.at, cluster)
        if mapping.backend:
            backend = parts.backends.of(mapping.backend, mapping.tls or parts.shards)
            headers = parts.identity.remote_headers(request, caller, mapping.names)
        else:
            base_url = way.routes.base_url(snapshot, ROOT)
            if not base_url:
                raise shard_down()
            backend = parts.backends.of(base_url, parts.shards)
            headers = parts.identity.headers(request, caller, cluster if asked.bound else "")
        self._relay(asked, backend, backend.path + target, headers, mapping.path)

    def _unknown(
        self, asked: ProxyRequest, way: Routes, unknown: UnresolvedPath, caller: RequestUser, snapshot: Snapshot
    ) -> None:
        """A path that leads nowhere, as far as is known here."""
        if asked.workspace == WILDCARD:
            raise self._refusal(asked, caller, snapshot)
        if caller.vouched:
            asked.exchange.spawn(self._asked_for(asked, way, unknown, caller))
        elif unknown.shard and asked.mapping.is_shards:
            # Of who asks the shard knows more than we do, and refuses in the same words.
            workspace = f"{unknown.cluster}:{unknown.rest}" if unknown.rest else unknown.cluster
            place = ShardLocation(unknown.shard, "", unknown.base_url)
            self._to_shard(asked, place, request_target.below("", workspace, asked.rest), caller)
        else:
            asked.exchange.spawn(self._shut(asked, self._refusal(asked, caller, snapshot)))

    async def _asked_for(self, asked: ProxyRequest, way: Routes, unknown: UnresolvedPath, caller: RequestUser) -> None:
        """Serve a request after the shard that may know its path was asked."""
        try:
            place = await way.misses.find(asked.workspace, unknown, caller.user)
            with self._parts.store.snapshot() as snapshot:
                if place is not None:
                    self._go(asked, way, place, snapshot)
                    return
                refusal = self._refusal(asked, caller, snapshot)
            await self._shut(asked, refusal)
        except Exception as error:
            self._refuse(asked.exchange, asked.info, error, asked.began_s)

    async def _shut(self, asked: ProxyRequest, error: ApiError) -> None:
        """Refuse when the request is there to its end, as a shard does: else the connection would tell what is not."""
        await asked.exchange.whole()
        self._refuse(asked.exchange, asked.info, error, asked.began_s)

    def _refusal(self, asked: ProxyRequest, caller: RequestUser, snapshot: Snapshot) -> ApiError:
        return self._closed.refusal(asked.exchange.request, asked.info, caller, snapshot)

    def _mounted(self, asked: ProxyRequest, place: Mounted) -> None:
        if not asked.mapping.is_shards or not place.ready:
            self._count(asked, OWN, unavailable(asked.exchange))
            return
        asked.exchange.spawn(self._to_mount(asked, place.url))

    async def _to_mount(self, asked: ProxyRequest, url: str) -> None:
        exchange = asked.exchange
        await exchange.whole()
        headers = self._parts.identity.stripped(exchange.request)
        try:
            code = await self._parts.forwarder().forward(exchange, url, asked.rest or b"/", headers)
        except EgressError as error:
            code = refuse(exchange, asked.info, ServiceUnavailable(f"the mounted workspace cannot be reached: {error}"))
        self._count(asked, "mount", code)

    # How they end

    def _relay(self, asked: ProxyRequest, backend: Backend, target: str, headers: Headers, to: str) -> None:
        exchange = asked.exchange
        request = exchange.request
        said = [*headers, ("x-forwarded-for", request.peer.address)]
        head = framing.request_head(request, target, backend.authority, said, exchange.body, old=exchange.old)
        metrics = self._parts.metrics
        metrics.open.inc()

        def done(code: int) -> None:
            metrics.open.dec()
            metrics.count(to, code, asked.began_s)

        Relay(exchange, backend, head, done, asked.info).start()

    def _count(self, asked: ProxyRequest, to: str, code: int) -> None:
        self._parts.metrics.count(to, code, asked.began_s)

    def _refuse(self, exchange: StreamingExchange, info: RequestInfo, error: Exception, began_s: float) -> None:
        if exchange.begun or exchange.closed:
            log.error("request failed", exc_info=error)
            exchange.abort()
        else:
            self._parts.metrics.count(OWN, refuse(exchange, info, error), began_s)


_UNPARSED = parse("GET", b"/")
