"""The content of `/services/cache`: replicated objects of all shards, for the components of a site.

    /services/cache/shards/<shard or *>/clusters/<cluster or *>/apis/<group>/<version>/<resource>[/<name>]

`framework` brings requests here: those of a cache server, which has rows of its own, and those of a shard, which shows
its own objects. Only system:masters have access. Invariant: other callers learn nothing, not even which URLs are well
formed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.filtered_rows import RowSource
from atoll.machinery.apiserver.request import Request, RequestScope, ScopeAuthorizer
from atoll.machinery.apiserver.serving.health import Check
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.status import BadRequest, Details, ServiceUnavailable
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspaces.cache_rows import WILDCARD
from atoll.virtualworkspaces.framework import Own, is_listed

SERVICE = "cache"
_SHARDS = "shards"
_SHARD_NAME = re.compile(r"[a-z0-9-:]{0,61}\Z")
#: kcp responds with 501 to this path below a shard, as the discovery documents do below a cluster.
_METRICS = "/metrics"


#: Return the rows of a shard, or those of all for WILDCARD; None: all of the store.
RowsOf = Callable[[str], RowSource | None]


class CachedObjects(Protocol):
    """Objects beside those of replicated kinds."""

    def scope(self, request: Request, snapshot: Snapshot, named: str) -> RequestScope | None:
        """Return the scope of a request for such objects at the shard `named`; None: there are none."""


class CacheView:
    """`framework.Content`. `cached` finds the objects of ClusterCachedResources; `only` is the one shard served, "" for
    any."""

    #: `shards`, and the shard.
    own_segments = 2

    def __init__(
        self, kinds: Sequence[Kind], rows_of: RowsOf, whole: Check, cached: CachedObjects, only: str = ""
    ) -> None:
        self._catalog, self._rows_of, self._whole, self._cached = Catalog(kinds), rows_of, whole, cached
        self._only = only

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user is in system:masters.

        Raises BadRequest for such a user without a valid shard name.
        """
        if not user.is_master:
            return False
        word, shard = own
        if word != _SHARDS or not shard:
            raise BadRequest("a shard name is required")
        if shard != WILDCARD and not _SHARD_NAME.match(shard):
            raise BadRequest(f'invalid shard: "{shard}" does not match the regex')
        return True

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return all rows, or those of one shard.

        Raises NotFound for other documents and shards, and ServiceUnavailable before the rows were complete once:
        clients would take missing objects for deleted ones.
        """
        if self._only and own[1] != self._only:
            raise errors.not_served()
        if not is_listed(request.info) and request.info.path != _METRICS:
            raise errors.not_served()
        if request.info.is_resource and self._whole() is not None:
            raise ServiceUnavailable("the cache is not complete yet", Details(retry_after_s=1))
        if (scope := self._cached_objects(request, snapshot, own[1])) is not None:
            return scope
        restrictions = Restrictions(rows=self._rows_of(own[1]))
        return RequestScope(authorize=masters_only(request), catalog=self._catalog, restrictions=restrictions)

    def _cached_objects(self, request: Request, snapshot: Snapshot, shard: str) -> RequestScope | None:
        """Return the scope of the objects of a ClusterCachedResource, if the request names such."""
        info = request.info
        kind = self._catalog.find(info.group, info.version, info.resource)
        is_replicated = kind is not None and info.identity in {None, kind.identity}
        if not info.is_resource or is_replicated:
            return None
        return self._cached.scope(request, snapshot, shard)


def masters_only(request: Request) -> ScopeAuthorizer:
    """Allow every verb to system:masters; verbs that a kind does not serve get 405 later."""
    user = request.user

    def authorize(view: View, verb: str) -> Decision:
        return Decision(user.is_master)

    return authorize
