"""The objects of ClusterCachedResources in a shard's cache view.

    clusters/<cluster>/apis/<group>/<version>/<plural>[:<identity>]    in the workspace of the ClusterCachedResource
    clusters/*/apis/<group>/<version>/<plural>:<identity>              by its identity alone

`cache` calls `scope` for a resource that is not a replicated kind. Invariant: only objects that a ClusterCachedResource
selects now are shown, in the versions that its workspace serves.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.filtered_rows import FilteredRows, Log, MappedRows
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kcp.apis import cachedresources
from atoll.machinery.meta.names import ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode, encode_json, status_of
from atoll.machinery.meta.types import CACHED_RESOURCES
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.machinery.storage.pages import each_record
from atoll.virtualworkspaces.cache import masters_only
from atoll.virtualworkspaces.cache_rows import WILDCARD, with_source
from atoll.virtualworkspaces.framework import view_kind
from atoll.virtualworkspaces.replication import CachedSelection


class CachedResources:
    """Finds the objects of the ClusterCachedResources of `shard`."""

    def __init__(self, catalogs: Catalogs, store: Log, shard: str) -> None:
        self._catalogs, self._store, self._shard = catalogs, store, shard

    def scope(self, request: Request, snapshot: Snapshot, named: str) -> RequestScope | None:
        """Return the scope of a request for cached objects at the shard `named`; None: not cached."""
        info = request.info
        if named not in {self._shard, WILDCARD}:
            return None
        for cluster, offer in named_by(snapshot, CACHED_RESOURCES, info, request.cluster):
            kind = self._catalogs.of(snapshot, cluster).find(info.group, info.version, info.resource)
            if kind is not None and not kind.namespaced and kind.virtual is None:
                rows = self._rows(cluster, offer["metadata"]["name"])
                return RequestScope(
                    authorize=masters_only(request),
                    catalog=Catalog([view_kind(kind)]),
                    restrictions=Restrictions(rows=rows),
                    # Objects are stored under the identity of the kind, not of the ClusterCachedResource.
                    info=replace(info, identity=None),
                )
        return None

    def _rows(self, cluster: str, name: str) -> MappedRows:
        selection = CachedSelection(cluster, name)
        rows = FilteredRows(self._store, [Scope(CACHED_RESOURCES, cluster)], selection)

        def show(type: ResourceType, value: bytes) -> bytes:
            obj = decode(value)
            return encode_json(with_source(obj, self._shard, obj["metadata"]["resourceVersion"]))

        return MappedRows(rows, show, rows.get)


def named_by(view: View, type: ResourceType, info: RequestInfo, cluster: str) -> Iterator[tuple[str, Object]]:
    """Yield cluster and object of the ClusterCachedResources, rows of `type`, whose objects a request names.

    In all clusters it has to name the identity.
    """
    if info.identity is None and not cluster:
        return
    for record in each_record(view, Scope(type, cluster)):
        offer = decode(record.value)
        resource = cachedresources.resource_of(offer)
        identity = status_of(offer).get("identityHash") or ""
        if is_system_cluster(record.key.cluster) or (resource.group, resource.plural) != (info.group, info.resource):
            continue
        if identity and info.identity in {None, identity}:
            yield record.key.cluster, offer
