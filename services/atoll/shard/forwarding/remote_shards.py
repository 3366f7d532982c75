"""Views on other shards: a request for rows of another shard, answered by the same view on that shard.

A virtual workspace puts a `RemoteView` into the scope of a request. The request is forwarded as those for virtual
resources are: over TLS with the shard's client certificate, the user in X-Remote-* headers; the other shard authorizes
it again. Invariants: a circle of forwards ends after MAX_HOPS; a forwarded watch ends, like a local one, when this
shard would no longer allow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, passed_on, spoken_for
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.forwarding.virtual_resources import HOPS, MAX_HOPS

log = structlog.get_logger()


class RemoteShards:
    """`replication.Shards`. `forwarder` None: there is no certificate to ask them with."""

    def __init__(self, shards: ResourceType, forwarder: Forwarder | None, watches: OpenWatches) -> None:
        self.type, self.forwarder, self.watches = shards, forwarder, watches

    def of(self, shard: str, path: str) -> RemoteShard:
        """A shard's view at a path of its virtual workspaces."""
        return RemoteShard(self, shard, path)


class RemoteShard:
    """`request.RemoteView`."""

    def __init__(self, shards: RemoteShards, shard: str, path: str) -> None:
        self._shards, self._shard, self._path = shards, shard, path

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Pass it on. Raises ServiceUnavailable where that shard is not known here, Unauthorized."""
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
        work = asyncio.ensure_future(forwarder.forward(request.exchange, url, request.target, headers, upgrades=False))
        watch = _ForwardedRequest(work)
        catalog, info = request.scope.catalog, request.info
        kind = catalog.find(info.group, info.version, info.resource) if catalog is not None else None
        if kind is not None and info.verb == "watch":
            self._shards.watches.add(
                request.cluster, kind, watch, StillAllowed(_still(request), request.scope.depends_on, True)
            )
        try:
            await asyncio.wait({work})
            self._tell(request, work)
        finally:
            work.cancel()
            self._shards.watches.drop(request.cluster, watch)

    def _tell(self, request: Request, work: asyncio.Future[int]) -> None:
        """Say how it ended. An answer that was begun can only be cut."""
        if work.cancelled():
            request.exchange.abort()
        elif isinstance(error := work.exception(), EgressError):
            log.warning("another shard cannot be reached", shard=self._shard, error=str(error))
            fail(request, _unavailable())
            return
        elif error is not None:
            log.debug("an answer was not passed on", shard=self._shard, error=repr(error))
        else:
            request.code = work.result()
        request.done()


class _ForwardedRequest:
    """A watch that another shard serves. Cutting it is the only end that its client can be told."""

    def __init__(self, work: asyncio.Future[int]) -> None:
        self._work = work

    def end(self) -> None:
        self._work.cancel()


def _still(request: Request) -> Callable[[View], bool]:
    def still(view: View) -> bool:
        try:
            return request.scope.judge(view, "watch").allowed
        except ApiError:
            return False

    return still


def _hops(request: Request) -> int:
    values = request.http.headers.get(HOPS, ["0"])
    return int(values[0]) if len(values) == 1 and values[0].isdecimal() and len(values[0]) < 3 else MAX_HOPS


def _unavailable() -> ApiError:
    return ServiceUnavailable("the shard that has these objects cannot be reached", Details(retry_after_s=1))
