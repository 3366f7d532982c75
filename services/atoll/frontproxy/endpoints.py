"""Endpoints that the proxy answers itself: health for everyone, and metrics for callers with access.

`handler` asks first. Access to metrics is decided by the root shard's RBAC in `root`, by a SelfSubjectAccessReview in
the caller's own name, so that the proxy needs no permission for it. Invariant: while the root shard does not answer,
there are no metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from atoll.frontproxy.authentication import ProxyAuthentication, RequestUser
from atoll.frontproxy.errors import not_synced, shard_unreachable, write_error
from atoll.frontproxy.metrics import PROXY, ProxyMetrics
from atoll.frontproxy.route_table import RouteTable
from atoll.frontproxy.shard_client import ShardClient
from atoll.machinery.apiserver.authentication.assertion import HEADER as ASSERTION
from atoll.machinery.apiserver.authorization.chain import ALWAYS_ALLOWED_PATHS
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.serving import health
from atoll.machinery.apiserver.serving.health import Check
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Forbidden, Unauthorized
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError
from atoll.machinery.wire.exchange import HttpRequest
from atoll.machinery.wire.proxy.streaming import StreamingExchange

METRICS, LIVEZ, READYZ = "/metrics", "livez", "readyz"
_REVIEW = "/clusters/root/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW_BODY = encode_json(
    {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    }
)
#: Prefixes of headers that carry the caller's identity.
_IDENTITY = ("authorization", "impersonate-", ASSERTION)


class _Decision(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Decision = _Decision()


_decoder = msgspec.json.Decoder(_Review)


class _Scraper(NamedTuple):
    """Who asks for metrics: `identity` are the headers of the review at the root shard, at `base_url`."""

    name: str
    base_url: str
    identity: list[tuple[str, str]]


class Endpoints:
    """Serves the endpoints. `checks` are by endpoint: `livez`, `readyz`."""

    def __init__(
        self,
        store: Store,
        authentication: ProxyAuthentication,
        route_table: RouteTable,
        shard_client: ShardClient,
        metrics: ProxyMetrics,
        checks: Mapping[str, Mapping[str, Check]],
    ) -> None:
        self._store, self._authentication, self._route_table, self._shard_client = (
            store,
            authentication,
            route_table,
            shard_client,
        )
        self._metrics, self._checks = metrics, checks

    def serves(self, info: RequestInfo) -> bool:
        """Whether the proxy answers a path itself. `/healthz`, `/version` and the like are the root shard's, as in kcp.

        Health below a workspace is open to everyone, so it is the proxy's: a shard's would tell which workspaces exist.
        """
        if info.workspace:
            return info.path in ALWAYS_ALLOWED_PATHS
        return info.path == METRICS or info.path.split("/", 2)[1] in self._checks

    def serve(self, exchange: StreamingExchange, info: RequestInfo, began_s: float) -> None:
        """Answer a request. Raises ApiError, AuthenticationPending."""
        if info.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if info.path == METRICS:
            exchange.spawn(self._serve_metrics(exchange, info, self._scraper(exchange.request), began_s))
            return
        _, endpoint, *names = info.path.split("/")
        query = exchange.request.target.partition(b"?")[2].decode("latin-1")
        checks = self._checks[endpoint if endpoint in self._checks else LIVEZ]
        name = "/".join(names)
        self._reply(
            exchange, health.one(endpoint, checks, name) if name else health.all_of(endpoint, checks, query), began_s
        )

    async def _serve_metrics(
        self, exchange: StreamingExchange, info: RequestInfo, scraper: _Scraper, began_s: float
    ) -> None:
        try:
            await self._authorize(scraper)
            self._reply(exchange, Reply(200, generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST), began_s)
        except Exception as error:
            self._metrics.count(PROXY, write_error(exchange, info, error), began_s)

    def _scraper(self, request: HttpRequest) -> _Scraper:
        """Raises Unauthorized, ServiceUnavailable, AuthenticationPending."""
        with self._store.snapshot() as snapshot:
            routes = self._route_table.at(snapshot)
            if routes is None:
                raise not_synced()
            base_url = routes.locator.base_url(snapshot, ROOT)
            requester: RequestUser = self._authentication.identify(request, ROOT, snapshot)
        sent = [
            pair
            for pair in self._authentication.headers(request, requester, ROOT)
            if pair[0].lower().startswith(_IDENTITY)
        ]
        if not sent:
            raise Unauthorized
        return _Scraper(requester.user.name, base_url, sent)

    async def _authorize(self, scraper: _Scraper) -> None:
        """Raises Unauthorized, Forbidden, ServiceUnavailable."""
        try:
            headers = [*scraper.identity, ("content-type", "application/json")]
            answer = await self._shard_client.post(scraper.base_url, _REVIEW, headers, _REVIEW_BODY)
        except (ClientError, TimeoutError) as error:
            raise shard_unreachable() from error
        if answer.status == 401:
            raise Unauthorized
        if answer.status != 201 or not _decoder.decode(answer.body).status.allowed:
            raise Forbidden(f'User "{scraper.name}" cannot get path "/metrics"')

    def _reply(self, exchange: StreamingExchange, answer: Reply, began_s: float) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        headers = [("content-type", answer.content_type), ("cache-control", "no-cache, private"), *answer.headers]
        exchange.reply(answer.status, headers, body)
        self._metrics.count(PROXY, answer.status, began_s)
