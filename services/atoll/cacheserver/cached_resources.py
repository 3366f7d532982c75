"""The objects of ClusterCachedResources, forwarded to the cache view of the shard that has them.

    clusters/<cluster>/apis/<group>/<version>/<plural>[:<identity>]    in the workspace of the ClusterCachedResource
    clusters/*/apis/<group>/<version>/<plural>:<identity>              by its identity alone

`server` puts it into the view. The cache server's own client certificate, of system:masters, authenticates at the
shard; nothing of the client's credentials is sent on. Invariant: only a master's reads of a resource that a replicated
ClusterCachedResource names are forwarded.
"""

from __future__ import annotations

import structlog

from atoll.cacheserver.kinds import SHARDS, row_type
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, passed_on
from atoll.machinery.apiserver.request import Request, RequestScope, fail
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import annotations_of, decode
from atoll.machinery.meta.status import Details, ServiceUnavailable
from atoll.machinery.meta.types import CACHED_RESOURCES
from atoll.machinery.meta.wellknown import ORIGIN_SHARD
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspaces.cache import masters_only
from atoll.virtualworkspaces.cache_rows import WILDCARD
from atoll.virtualworkspaces.cached_resources import named_by
from atoll.virtualworkspaces.framework import READ_VERBS

log = structlog.get_logger()


class RemoteCachedResources:
    """Implements `cache.CachedObjects`. `forwarder` is None without a client certificate."""

    def __init__(self, forwarder: Forwarder | None) -> None:
        self._forwarder = forwarder

    def scope(self, request: Request, snapshot: Snapshot, named: str) -> RequestScope | None:
        """Return the scope of a request for cached objects at the shard `named`; None: not cached."""
        for _, offer in named_by(snapshot, row_type(CACHED_RESOURCES), request.info, request.cluster):
            shard = annotations_of(offer)[ORIGIN_SHARD]
            if named in {shard, WILDCARD}:
                return RequestScope(authorize=masters_only(request), remote=_ShardCache(self._forwarder, shard))
        return None


class _ShardCache:
    """Implements `request.RemoteView`: the cache view of one shard."""

    def __init__(self, forwarder: Forwarder | None, shard: str) -> None:
        self._forwarder, self._shard = forwarder, shard

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Forward a read. Raises MethodNotAllowed, and ServiceUnavailable without a certificate or a URL."""
        if request.info.verb not in READ_VERBS:
            raise errors.method_not_allowed()
        record = snapshot.get(ObjectKey(SHARDS, ROOT, "", self._shard))
        base = virtual_workspace_url(decode(record.value)) if record is not None else ""
        if self._forwarder is None or not base:
            raise ServiceUnavailable("the cache server has no access to the shard of these objects")
        url = f"{base}/services/cache/shards/{self._shard}"
        request.exchange.spawn(self._forward(self._forwarder, request, url))

    async def _forward(self, forwarder: Forwarder, request: Request, url: str) -> None:
        headers = passed_on(request.http.headers, (*IDENTITY, *CREDENTIALS))
        try:
            request.code = await forwarder.forward(request.exchange, url, request.target, headers, upgrades=False)
        except EgressError as error:
            log.warning("forwarding to shard failed", shard=self._shard, error=str(error))
            fail(request, ServiceUnavailable("the shard of these objects is unreachable", Details(retry_after_s=1)))
            return
        except Exception as error:
            # The response was begun, and the forwarder has cut the connection.
            log.info("response from shard not forwarded", shard=self._shard, error=repr(error))
        request.done()
