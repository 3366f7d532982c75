"""Virtual workspaces of other shards: requests for rows of another shard, forwarded to that shard.

A virtual workspace puts a `RemoteView` into the scope of a request. The request is forwarded over TLS with the shard's
client certificate, with the user in X-Remote-* headers; the other shard authorizes it again. Invariants: a forwarding
loop ends after MAX_HOPS; a forwarded watch ends, like a local one, when this shard no longer authorizes it.
"""

from __future__ import annotations

import asyncio

import structlog

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, passed_on, spoken_for
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.apiserver.serving.watches import still_authorized
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.forwarding.forwarded_watches import tracked
from atoll.shard.forwarding.virtual_resources import HOPS, MAX_HOPS

log = structlog.get_logger()


class RemoteShards:
    """Implements `replication.Shards`. `forwarder` is None without a client certificate."""

    def __init__(self, shards: ResourceType, forwarder: Forwarder | None, watches: OpenWatches) -> None:
        self.type, self.forwarder, self.watches = shards, forwarder, watches

    def of(self, shard: str, path: str) -> RemoteShard:
        """Return the view of a shard at a path of its virtual workspaces."""
        return RemoteShard(self, shard, path)


class RemoteShard:
    """Implements `request.RemoteView`: one virtual workspace of one shard."""

    def __init__(self, shards: RemoteShards, shard: str, path: str) -> None:
        self._shards, self._shard, self._path = shards, shard, path

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Forward the request. Raises ServiceUnavailable if the shard's URL is unknown, Unauthorized."""
        record = federated(snapshot).get(ObjectKey(self._shards.type, ROOT, "", self._shard))
        base = virtual_workspace_url(decode(record.value)) if record is not None else ""
        if self._shards.forwarder is None or not base:
            raise _unavailable()
        hops = max(request.hops, _hops(request)) + 1
        if hops > MAX_HOPS:
            raise _unavailable()
        headers = [
            *passed_on(request.http.headers, (*IDENTITY, *CREDENTIALS)),
            *spoken_for(request.user, keeps=(KCP_ADMIN,)),
            (HOPS, str(hops)),
        ]
        request.exchange.spawn(self._forward(self._shards.forwarder, request, base + self._path, headers))

    async def _forward(self, forwarder: Forwarder, request: Request, url: str, headers: list[tuple[str, str]]) -> None:
        catalog, info = request.scope.catalog, request.info
        kind = catalog.find(info.group, info.version, info.resource) if catalog is not None else None
        still = StillAllowed(still_authorized(request), request.scope.depends_on, True)
        work = forwarder.forward(request.exchange, url, request.target, headers, upgrades=False)
        self._finish(request, await tracked(self._shards.watches, request, kind, still, work))

    def _finish(self, request: Request, work: asyncio.Future[int]) -> None:
        """Complete the request with the outcome. A response that has started can only be aborted."""
        if work.cancelled():
            request.exchange.abort()
        elif isinstance(error := work.exception(), EgressError):
            log.warning("forwarding to shard failed", shard=self._shard, error=str(error))
            fail(request, _unavailable())
            return
        elif error is not None:
            log.debug("response from shard not forwarded", shard=self._shard, error=repr(error))
        else:
            request.code = work.result()
        request.done()


def _hops(request: Request) -> int:
    values = request.http.headers.get(HOPS, ["0"])
    return int(values[0]) if len(values) == 1 and values[0].isdecimal() and len(values[0]) < 3 else MAX_HOPS


def _unavailable() -> ApiError:
    return ServiceUnavailable("the shard that has these objects cannot be reached", Details(retry_after_s=1))
