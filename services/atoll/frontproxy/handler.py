"""The front proxy's request handler: find the backend, authenticate, rewrite identity headers, relay.

    own endpoints → mapping → workspace location → user → headers → relay

The server calls it at the end of each request's head. Decisions are made from the proxy's own store, so that a request
waits for its backend alone; only an unknown path and a token whose issuer's keys are missing cause another request, for
a second at most. Invariants: a request goes to one backend, or is refused; identity headers are written by
`authentication` alone; a mount gets the caller's own credential and nothing of the proxy's.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from urllib.parse import quote

import msgspec
import structlog

from atoll.frontproxy import request_target
from atoll.frontproxy.authentication import ProxyAuthentication, RequestUser
from atoll.frontproxy.endpoints import Endpoints
from atoll.frontproxy.errors import (
    loop_detected,
    not_synced,
    reply_unavailable,
    response_lost,
    response_timeout,
    shard_unreachable,
    write_error,
)
from atoll.frontproxy.mapping import Mapping, MappingTable
from atoll.frontproxy.metrics import PROXY, ProxyMetrics
from atoll.frontproxy.renewals import Renewals, is_renewal
from atoll.frontproxy.route_table import Routes, RouteTable
from atoll.frontproxy.shard_heads import PSEUDONYM, ShardHeads, fields
from atoll.frontproxy.unknown_workspace import UnknownWorkspace
from atoll.frontproxy.workspace_locator import Location, MountLoop, ShardLocation, UnresolvedPath
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.retry import MAX_KEY_FETCHES, retry_when_authenticated
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.requestinfo import WILDCARD, RequestInfo, parse
from atoll.machinery.apiserver.federation.pathindex import Mounted, Unavailable
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.meta.hashes import home_cluster_name
from atoll.machinery.meta.names import ROOT, is_cluster_name
from atoll.machinery.meta.status import ApiError, ServiceUnavailable, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.machinery.wire.exchange import Exchange, HttpRequest
from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.backend import Backend, Backends, BackendUnreachable
from atoll.machinery.wire.proxy.backend_connection import ResponseHead
from atoll.machinery.wire.proxy.relay import Relay
from atoll.machinery.wire.proxy.streaming import StreamingExchange

log = structlog.get_logger()

#: How often a request may pass the proxy, whose name `Via` has: mappings can form a loop.
MAX_PASSES = 4
#: The name of a Workspace that stands for the caller's home.
HOME_NAME = "~"
_IMPERSONATION = "impersonate-"
#: The service whose paths name clusters of other shards.
_REPLICATED = "cache"
#: The service whose requests are of the workspace that they name, and authenticated in it.
_EVENTS, _EVENTS_AT = "events", 3


class ProxyParts(msgspec.Struct, frozen=True):
    """The collaborators of a ProxyHandler. `shards` is the TLS context of connections to shards."""

    store: Store
    route_table: RouteTable
    authentication: ProxyAuthentication
    mappings: MappingTable
    backends: Backends
    shards: ssl.SSLContext
    #: Makes the forwarder for mounts when the first request needs it.
    forwarder: Callable[[], Forwarder]
    endpoints: Endpoints
    metrics: ProxyMetrics
    #: Where new homes of users who come in here are placed; "" for no region.
    region: str = ""


class ProxyRequest(msgspec.Struct, frozen=True):
    """A request after its mapping was chosen."""

    exchange: StreamingExchange
    info: RequestInfo
    mapping: Mapping
    #: The workspace that the path names; empty for none.
    workspace: str
    #: The target after the workspace, for mappings to shards.
    rest: bytes
    #: The index of the workspace's segment in the path, for mappings to other backends.
    at: int
    #: The mapping defines which workspace the request is for.
    bound: bool
    began_s: float


class ProxyHandler:
    """The handler of a proxy's server, and its `BodyPolicy`: every body is streamed, those of mounts without limit."""

    min_bytes = 0

    def __init__(self, parts: ProxyParts) -> None:
        self._parts = parts
        self._shard_heads = ShardHeads(parts.authentication)
        self._unknown_workspace = UnknownWorkspace()
        self._renewals = Renewals()

    # BodyPolicy

    def streams(self, request: HttpRequest) -> bool:
        return True

    def unlimited(self, request: HttpRequest) -> bool:
        """Whether the request is for a mount: a shard would refuse a body of this size."""
        info = parse(request.method, request.target)
        if not info.workspace:
            return False
        with self._parts.store.snapshot() as snapshot:
            routes = self._parts.route_table.at(snapshot)
            return routes is not None and isinstance(routes.locator.find(snapshot, info.workspace), Mounted)

    def __call__(self, exchange: Exchange, key_fetches: int = MAX_KEY_FETCHES) -> None:
        assert isinstance(exchange, StreamingExchange)
        began_s = time.monotonic()
        info = _UNPARSED
        parts = self._parts
        try:
            info = parse(exchange.request.method, exchange.request.target)
            if not info.is_resource and parts.endpoints.serves(info):
                parts.endpoints.serve(exchange, info, began_s)
                return
            if "via" in exchange.request.headers and _passes(exchange.request) >= MAX_PASSES:
                raise loop_detected()
            request = self._mapped(exchange, info, began_s)
            with parts.store.snapshot() as snapshot:
                routes = parts.route_table.at(snapshot)
                if routes is None:
                    raise not_synced()
                location = routes.locator.find(snapshot, request.workspace) if request.workspace else None
                self._route(request, routes, location, snapshot)
        except AuthenticationPending as error:
            if not retry_when_authenticated(exchange, error, key_fetches, self):
                self._fail(exchange, info, Unauthorized(), began_s)
        except Exception as error:
            self._fail(exchange, info, error, began_s)

    def _mapped(self, exchange: StreamingExchange, info: RequestInfo, began_s: float) -> ProxyRequest:
        """Choose the mapping of a request, and find the workspace it names. Raises ApiError."""
        request, mappings = exchange.request, self._parts.mappings
        if info.workspace and mappings.only_shards is not None:
            rest = request_target.after_workspace(request.target)
            bound = not info.service
            return ProxyRequest(exchange, info, mappings.only_shards, info.workspace, rest, 0, bound, began_s)
        segments = [part for part in info.path.split("/") if part]
        if info.workspace:
            segments = ["clusters", info.workspace, *segments]
        mapping, cluster = mappings.match(segments)
        token = token_cluster(request) if not info.workspace and not info.service else ""
        if token:
            # A service account's token names the cluster it is for, as in kcp.
            shards, _ = mappings.match(("clusters", token))
            if shards is not None and shards.is_shards:
                return ProxyRequest(exchange, info, shards, token, request.target, 0, True, began_s)
        if mapping is None:
            raise ApiError("the server could not find the requested resource", code=404, reason="NotFound")
        if mapping.is_shards and info.workspace:
            rest = request_target.after_workspace(request.target)
            return ProxyRequest(exchange, info, mapping, info.workspace, rest, 0, not info.service, began_s)
        if cluster:
            at = mapping.segments.index("{cluster}")
            return ProxyRequest(exchange, info, mapping, cluster, b"", at, True, began_s)
        at = 1 if info.workspace else request_target.workspace_index(segments)
        workspace = segments[at] if at else ""
        # The service handles `*` in its own paths; elsewhere it is refused as at a shard.
        if workspace == WILDCARD and not info.workspace:
            at, workspace = 0, ""
        bound = bool(info.workspace) or (info.service == _EVENTS and at == _EVENTS_AT and not mapping.backend)
        return ProxyRequest(exchange, info, mapping, workspace, b"", at, bound, began_s)

    def _route(self, request: ProxyRequest, routes: Routes, location: Location | None, snapshot: Snapshot) -> None:
        if isinstance(location, Mounted):
            self._serve_mount(request, location)
            return
        if isinstance(location, MountLoop):
            raise errors.mount_loop()
        if isinstance(location, Unavailable):
            self._count(request, PROXY, reply_unavailable(request.exchange))
            return
        cluster = location.cluster if isinstance(location, ShardLocation) and request.bound else ""
        vouch = bool(request.mapping.backend and cluster and not request.mapping.is_shards)
        user = self._parts.authentication.identify(request.exchange.request, cluster, snapshot, vouch=vouch)
        if isinstance(location, UnresolvedPath):
            self._serve_unresolved(request, routes, location, user, snapshot)
        elif location is None:
            self._relay_to_mapping(request, routes, "", user, snapshot)
        elif request.info.service and _is_at_shard(request):
            self._relay_to_view(request, location, user)
        elif request.info.name == HOME_NAME and location.cluster == ROOT and request.mapping.is_shards:
            self._relay_to_home(request, routes, location, user, snapshot)
        elif request.mapping.is_shards:
            self._relay_to_shard(request, location, request_target.in_cluster(location.cluster, request.rest), user)
        else:
            self._relay_to_mapping(request, routes, location.cluster, user, snapshot)

    # By kind of backend

    def _relay_to_shard(self, request: ProxyRequest, location: ShardLocation, target: str, user: RequestUser) -> None:
        parts = self._parts
        backend = parts.backends.at_url(location.base_url, parts.shards)
        exchange, target = request.exchange, backend.path + target
        head = self._shard_heads.head(exchange, target, backend.authority, user, location.cluster)
        self._relay(request, backend, head, location.shard)

    def _relay_to_home(
        self, request: ProxyRequest, routes: Routes, root: ShardLocation, user: RequestUser, snapshot: Snapshot
    ) -> None:
        """Relay `~` to the shard of the user's home, which needs no other; the first use goes to root.

        The home's own cluster decides there, so a caller who is not simply this user asks root as well.
        """
        target = request_target.in_cluster(ROOT, request.rest)
        plain = user.verified and request.exchange.request.method == "GET"
        plain = plain and not any(RESERVED_EXTRA in key for key in user.user.extra)
        if plain and not any(name.startswith(_IMPERSONATION) for name in request.exchange.request.headers):
            home = routes.locator.find(snapshot, home_cluster_name(user.user.name))
            if isinstance(home, ShardLocation) and home.shard != root.shard:
                self._relay_to_shard(request, home, request_target.in_cluster(home.cluster, request.rest), user)
                return
            if self._parts.region:
                target += f"{'&' if '?' in target else '?'}region={quote(self._parts.region, safe='')}"
        self._relay_to_shard(request, root, target, user)

    def _relay_to_view(self, request: ProxyRequest, location: ShardLocation, user: RequestUser) -> None:
        """Relay a request below `/services/` to the shard that has its cluster; the view there decides about it."""
        if request.mapping.is_shards:
            target = request.rest.decode("latin-1")
        else:
            target = request_target.with_cluster(request.exchange.request.target, request.at, location.cluster)
        # Most views are outside of clusters, and the assertion names none then.
        cluster = location.cluster if request.bound else ""
        self._relay_to_shard(request, ShardLocation(location.shard, cluster, location.base_url), target, user)

    def _relay_to_mapping(
        self, request: ProxyRequest, routes: Routes, cluster: str, user: RequestUser, snapshot: Snapshot
    ) -> None:
        """Relay to the backend of a mapping other than `/clusters/`, or to the root shard if it names none."""
        parts, mapping, http = self._parts, request.mapping, request.exchange.request
        exchange = request.exchange
        target = request_target.with_cluster(http.target, request.at, cluster)
        if mapping.backend:
            backend = parts.backends.at_url(mapping.backend, mapping.tls or parts.shards)
            headers = parts.authentication.remote_headers(http, user, mapping.names)
        else:
            base_url = routes.locator.base_url(snapshot, ROOT)
            if not base_url:
                raise shard_unreachable()
            backend = parts.backends.at_url(base_url, parts.shards)
            headers = parts.authentication.headers(http, user, cluster if request.bound else "")
        line = framing.request_line(http.method, backend.path + target, old=exchange.old)
        self._relay(request, backend, line + fields(exchange, backend.authority, headers), mapping.path)

    def _serve_unresolved(
        self, request: ProxyRequest, routes: Routes, path: UnresolvedPath, user: RequestUser, snapshot: Snapshot
    ) -> None:
        """Serve a path that does not resolve in the proxy's store."""
        if request.workspace == WILDCARD:
            raise self._unknown_error(request, user, snapshot)
        if user.verified or _may_be_gone(request, user):
            request.exchange.spawn(self._look_up(request, routes, path, user))
        elif path.shard and request.mapping.is_shards and not request.info.service:
            # The shard knows more of this caller than the proxy, and refuses in the same words.
            workspace = f"{path.cluster}:{path.rest}" if path.rest else path.cluster
            location = ShardLocation(path.shard, "", path.base_url)
            self._relay_to_shard(request, location, request_target.in_cluster(workspace, request.rest), user)
        else:
            request.exchange.spawn(self._fail_after_body(request, self._unknown_error(request, user, snapshot)))

    async def _look_up(self, request: ProxyRequest, routes: Routes, path: UnresolvedPath, user: RequestUser) -> None:
        """Serve a request after a look-up of its path at the shard that may have it."""
        try:
            found = await routes.fallback.find(request.workspace, path, user.user) if user.verified else None
            location = found or await self._gone(request, routes, user)
            with self._parts.store.snapshot() as snapshot:
                if location is not None:
                    self._route(request, routes, location, snapshot)
                    return
                error = self._unknown_error(request, user, snapshot)
            await self._fail_after_body(request, error)
        except Exception as error:
            self._fail(request.exchange, request.info, error, request.began_s)

    async def _gone(self, request: ProxyRequest, routes: Routes, user: RequestUser) -> ShardLocation | None:
        """The location of a deleted workspace to which the caller has subscriptions."""
        if not _may_be_gone(request, user):
            return None
        headers = self._parts.authentication.headers(request.exchange.request, user, request.workspace)
        return await routes.gone.find(request.workspace, headers)

    async def _fail_after_body(self, request: ProxyRequest, error: ApiError) -> None:
        """Refuse once the whole request arrived, as a shard does: otherwise the connection would tell that the
        workspace does not exist."""
        await request.exchange.read_body()
        self._fail(request.exchange, request.info, error, request.began_s)

    def _unknown_error(self, request: ProxyRequest, user: RequestUser, snapshot: Snapshot) -> ApiError:
        return self._unknown_workspace.error(request.exchange.request, request.info, user, snapshot)

    def _serve_mount(self, request: ProxyRequest, mount: Mounted) -> None:
        if not request.mapping.is_shards or not mount.ready:
            self._count(request, PROXY, reply_unavailable(request.exchange))
            return
        request.exchange.spawn(self._forward_to_mount(request, mount.url))

    async def _forward_to_mount(self, request: ProxyRequest, url: str) -> None:
        exchange = request.exchange
        headers = self._parts.authentication.stripped(exchange.request)
        try:
            code = await self._parts.forwarder().forward(exchange, url, request.rest or b"/", headers)
        except EgressError as error:
            unreachable = ServiceUnavailable(f"the mounted workspace cannot be reached: {error}")
            code = write_error(exchange, request.info, unreachable)
        self._count(request, "mount", code)

    # Responses

    def _relay(self, request: ProxyRequest, backend: Backend, head: bytes, to: str, *, is_due: bool = False) -> None:
        info = request.info
        if info.service and not is_due and is_renewal(info):
            request.exchange.spawn(self._relay_with_others(request, backend, head, to))
            return
        endless = info.verb == "watch" or (bool(info.query) and _asks_for_watch(info))
        self._parts.metrics.open += 1
        owner = _RelayedRequest(request, self._parts.metrics, to)
        Relay(request.exchange, backend, head, owner, endless=endless).start()

    async def _relay_with_others(self, request: ProxyRequest, backend: Backend, head: bytes, to: str) -> None:
        """Relay a renewal when it is due; the time until then is not counted as its duration."""
        try:
            await self._renewals.turn()
        except asyncio.CancelledError:
            self._count(request, to, 0)  # The client is gone, or its request was refused.
            raise
        self._relay(msgspec.structs.replace(request, began_s=time.monotonic()), backend, head, to, is_due=True)

    def _count(self, request: ProxyRequest, to: str, code: int) -> None:
        self._parts.metrics.count(to, code, request.began_s)

    def _fail(self, exchange: StreamingExchange, info: RequestInfo, error: Exception, began_s: float) -> None:
        if exchange.begun or exchange.closed:
            log.error("request failed", exc_info=error)
            exchange.abort()
        else:
            self._parts.metrics.count(PROXY, write_error(exchange, info, error), began_s)


class _RelayedRequest:
    """The `RelayOwner` of a request: it writes the error of a failed one, and counts it."""

    __slots__ = ("_metrics", "_request", "_to")

    def __init__(self, request: ProxyRequest, metrics: ProxyMetrics, to: str) -> None:
        self._request, self._metrics, self._to = request, metrics, to

    def check(self, head: ResponseHead) -> None:
        """Shards and mapped backends are the operator's: any response goes on."""

    def failed(self, error: Exception) -> None:
        if isinstance(error, BackendUnreachable):
            shown = shard_unreachable()
        else:
            shown = response_timeout() if isinstance(error, TimeoutError) else response_lost()
        self.done(write_error(self._request.exchange, self._request.info, shown))

    def done(self, status: int) -> None:
        self._metrics.open -= 1
        self._metrics.count(self._to, status, self._request.began_s)


def _passes(request: HttpRequest) -> int:
    """How often a request passed a front proxy already."""
    return sum(value.count(PSEUDONYM) for value in request.headers["via"])


def _is_at_shard(request: ProxyRequest) -> bool:
    """Whether a view is served by the shard of its cluster; root has the replicated objects of all shards."""
    mapping = request.mapping
    return mapping.is_shards or not (mapping.backend or request.info.service == _REPLICATED)


def _may_be_gone(request: ProxyRequest, user: RequestUser) -> bool:
    """Whether a request without a location is about events of what may be a deleted workspace. Who shows no credential
    that the proxy has checked has no subscriptions."""
    is_events = request.info.service == _EVENTS and request.bound
    return is_events and is_cluster_name(request.workspace) and user.user is not ANONYMOUS_USER


def _asks_for_watch(info: RequestInfo) -> bool:
    """Whether a backend may take the request for a watch, whose response has no end of its own."""
    if info.service == _EVENTS and info.path.endswith("/follow"):
        return True
    return info.query.get("watch", "false").lower() not in {"false", "0"}


_UNPARSED = parse("GET", b"/")
