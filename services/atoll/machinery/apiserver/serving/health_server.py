"""What a process without an API serves: health for everyone, metrics for system:masters. Nothing else.

The controllers of edge clusters and event gateways listen with it. Invariant: a path that is not listed is a 404.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.serving import health
from atoll.machinery.apiserver.serving.health import Check, ping
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.wire.exchange import Exchange, Peer

METRICS, LIVEZ, READYZ = "metrics", "livez", "readyz"


class HealthServer:
    """The handler; `ready` are the checks of /readyz beside those of /livez."""

    def __init__(self, registry: CollectorRegistry, ready: Mapping[str, Check]) -> None:
        live = {"ping": ping}
        self._registry, self._checks = registry, {LIVEZ: live, READYZ: {**live, **ready}}

    def __call__(self, exchange: Exchange) -> None:
        """Answer a request."""
        request = exchange.request
        path, _, query = request.target.decode("latin-1").partition("?")
        try:
            reply = self._answer(request.method, path, query, request.peer)
        except ApiError as error:
            reply = Reply(error.code, f"{error.message}\n".encode(), health.TEXT)
        body = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        exchange.reply(reply.status, [("content-type", reply.content_type), *reply.headers], body)

    def _answer(self, method: str, path: str, query: str, peer: Peer) -> Reply:
        endpoint, _, name = path.removeprefix("/").partition("/")
        if method not in {"GET", "HEAD"}:
            return Reply(405, b"method not allowed\n", health.TEXT)
        if endpoint in self._checks:
            checks = self._checks[endpoint]
            return health.one(endpoint, checks, name) if name else health.all_of(endpoint, checks, query)
        if endpoint != METRICS or name:
            return Reply(404, b"not found\n", health.TEXT)
        if not _is_master(peer):
            return Reply(403, b"forbidden\n", health.TEXT)
        return Reply(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)


def _is_master(peer: Peer) -> bool:
    """Whether a verified client certificate is of an administrator; the connection was verified by TLS."""
    if peer.certificate is None:
        return False
    # It loads X.509, which a process does not need whose metrics nobody reads.
    from atoll.machinery.process.client_identity import client_identity

    try:
        return MASTERS in client_identity(peer.certificate).organizations
    except ValueError:
        return False
