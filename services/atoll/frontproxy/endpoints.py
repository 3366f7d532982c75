"""What the proxy answers by itself: whether it lives and is ready, to everybody, and its metrics, to who may see them.

`doors` asks first. Whether somebody may see metrics is for the root shard to say, by RBAC in `root`; it is asked in
the caller's own name, so that the proxy needs no power for it. Invariant: while the root shard does not answer, nobody
sees them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from atoll.frontproxy.authentication import ProxyAuthentication, RequestUser
from atoll.frontproxy.errors import no_routes, refuse, shard_down
from atoll.frontproxy.metrics import OWN, ProxyMetrics
from atoll.frontproxy.route_table import RouteTable
from atoll.frontproxy.shard_client import ShardClient
from atoll.machinery.apiserver import errors, health
from atoll.machinery.apiserver.authentication.assertion import HEADER as ASSERTION
from atoll.machinery.apiserver.authentication.oidc.keys import Unsettled
from atoll.machinery.apiserver.authorization.chain import ALWAYS_ALLOWED_PATHS
from atoll.machinery.apiserver.call import Reply
from atoll.machinery.apiserver.health import Check
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Forbidden, Unauthorized
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.client import ClientError
from atoll.machinery.wire.proxy.streaming import StreamingExchange

METRICS, LIVE, READY = "/metrics", "livez", "readyz"
_REVIEW = "/clusters/root/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_QUESTION = encode_json(
    {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    }
)
#: Of the caller's headers, those that say who asks.
_SAYING = ("authorization", "impersonate-", ASSERTION)


class _Decision(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Decision = _Decision()


_decoder = msgspec.json.Decoder(_Review)


class Endpoints:
    """Serves them. `checks` by endpoint: `livez`, `readyz`."""

    def __init__(
        self,
        store: Store,
        identity: ProxyAuthentication,
        ways: RouteTable,
        asking: ShardClient,
        metrics: ProxyMetrics,
        checks: Mapping[str, Mapping[str, Check]],
    ) -> None:
        self._store, self._identity, self._ways, self._asking = store, identity, ways, asking
        self._metrics, self._checks = metrics, checks

    def serves(self, info: RequestInfo) -> bool:
        """Whether a path is one of ours. `/healthz`, `/version` and the like are the root shard's, as in kcp.

        Below a workspace health is told to everybody, so it is the proxy's, lest it tell which workspaces there are.
        """
        if info.workspace:
            return info.path in ALWAYS_ALLOWED_PATHS
        return info.path == METRICS or info.path.split("/", 2)[1] in self._checks

    def serve(self, exchange: StreamingExchange, info: RequestInfo, began_s: float) -> None:
        """Answer. Raises ApiError, Unsettled."""
        if info.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if info.path == METRICS:
            exchange.spawn(self._show_metrics(exchange, info, began_s))
            return
        _, endpoint, *names = info.path.split("/")
        query = exchange.request.target.partition(b"?")[2].decode("latin-1")
        checks = self._checks[endpoint if endpoint in self._checks else LIVE]
        name = "/".join(names)
        self._reply(
            exchange, health.one(endpoint, checks, name) if name else health.all_of(endpoint, checks, query), began_s
        )

    async def _show_metrics(self, exchange: StreamingExchange, info: RequestInfo, began_s: float) -> None:
        try:
            await self._check(exchange)
            self._reply(exchange, Reply(200, generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST), began_s)
        except Unsettled as error:
            await error.settle()
            self._metrics.count(OWN, refuse(exchange, info, Unauthorized()), began_s)
        except Exception as error:
            self._metrics.count(OWN, refuse(exchange, info, error), began_s)

    async def _check(self, exchange: StreamingExchange) -> None:
        """Raises Unauthorized, Forbidden, ServiceUnavailable."""
        request = exchange.request
        with self._store.snapshot() as snapshot:
            way = self._ways.of(snapshot)
            if way is None:
                raise no_routes()
            base_url = way.routes.base_url(snapshot, ROOT)
            caller: RequestUser = self._identity.identify(request, ROOT, snapshot)
        sent = [pair for pair in self._identity.headers(request, caller, ROOT) if pair[0].lower().startswith(_SAYING)]
        if not sent:
            raise Unauthorized
        try:
            headers = [*sent, ("content-type", "application/json")]
            answer = await self._asking.post(base_url, _REVIEW, headers, _QUESTION)
        except (ClientError, TimeoutError) as error:
            raise shard_down() from error
        if answer.status == 401:
            raise Unauthorized
        if answer.status != 201 or not _decoder.decode(answer.body).status.allowed:
            raise Forbidden(f'User "{caller.user.name}" cannot get path "/metrics"')

    def _reply(self, exchange: StreamingExchange, answer: Reply, began_s: float) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        headers = [("content-type", answer.content_type), ("cache-control", "no-cache, private"), *answer.headers]
        exchange.reply(answer.status, headers, body)
        self._metrics.count(OWN, answer.status, began_s)
