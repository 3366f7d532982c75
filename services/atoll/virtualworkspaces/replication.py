"""The replication view: the objects of a ClusterCachedResource, for consumers that bind the export that serves it.

    /services/replication/<slice's cluster>/<ClusterCachedResourceEndpointSlice>/clusters/<consumer or *>/...

`framework` brings requests here, from clients and from consumers' own URLs (a virtual resource). It is read only. A
verb on the export's `apiexports/content` allows the same verb on the objects, with `*` too; in a named cluster only
while a binding to that export holds the resource. The objects are the provider's own, filtered by the current
labelSelector; in a named cluster they carry that cluster's name. With the provider on another shard, a consumer of this
shard reads this shard's copies (`copied_rows`); other requests are authorized here and forwarded to that shard.
Invariant: nothing is visible unless ClusterCachedResource and export are in one workspace and the export offers the
resource under the identity of the ClusterCachedResource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.call.gate import check_gate
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.filtered_rows import FilteredRows, Log, RowFilter, RowSource
from atoll.machinery.apiserver.request import RemoteView, Request, RequestScope, ScopeAuthorizer
from atoll.machinery.kcp.apis import cachedresources, endpointslices
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.copies import CopySet, uid_of
from atoll.machinery.kcp.apis.locks import read_locks
from atoll.machinery.kcp.workspaces.lifecycle import is_inactive
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import CORE, ObjectKey, is_cluster_name
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
    LOGICAL_CLUSTERS,
)
from atoll.machinery.meta.user import User
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import Gate, GateState, Scope, Snapshot
from atoll.virtualworkspaces.consumer_rows import ConsumerRows
from atoll.virtualworkspaces.copied_rows import CopiedRows
from atoll.virtualworkspaces.framework import READ_VERBS, Own, is_listed, view_kind

SERVICE = "replication"
#: Resolve a path or name to its cluster; None for an unknown one.
ClusterOf = Callable[[View, str], str | None]


class _CachedResourceExport(msgspec.Struct, frozen=True):
    """The target of a slice: cluster and name of the export, and its ClusterCachedResource."""

    cluster: str
    export: str
    cached: Object
    schema: str

    @property
    def group_resource(self) -> str:
        return cachedresources.resource_of(self.cached).group_resource

    @property
    def copies(self) -> CopySet:
        return CopySet(self.cluster, self.cached["metadata"]["name"])


class Shards(Protocol):
    """The views of other shards."""

    def of(self, shard: str, path: str) -> RemoteView:
        """Return a shard's view at a path of its virtual workspaces."""


class Replication:
    """`framework.Content`."""

    #: The slice's logical cluster, and the slice.
    own_segments = 2

    def __init__(
        self,
        catalogs: Catalogs,
        authorizer: Authorizer,
        cluster_of: ClusterOf,
        store: Log,
        shards: Shards | None = None,
    ) -> None:
        """`shards` gives access to other shards' views; None for a single shard."""
        self._catalogs, self._authorizer, self._cluster_of, self._store = catalogs, authorizer, cluster_of, store
        self._shards = shards

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user may read anything in the view; for an invalid slice only system:masters."""
        offer = self._offer(view, own)
        if offer is None:
            path_only = Attributes(user=user, verb="get", path=f"/services/{SERVICE}")
            return self._authorizer.authorize(view, path_only).allowed
        return any(self._may(view, user, offer, verb).allowed for verb in READ_VERBS)

    def _may(self, view: View, user: User, offer: _CachedResourceExport, verb: str) -> Decision:
        attributes = Attributes(
            user=user,
            verb=verb,
            cluster=offer.cluster,
            group=API_EXPORTS.group,
            version="v1alpha2",
            resource=API_EXPORTS.resource,
            subresource="content",
            name=offer.export,
        )
        return self._authorizer.authorize(view, attributes, anywhere=True)

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the objects.

        Raises NotFound for an invalid slice, Forbidden while the provider's workspace is inactive.
        """
        offer = self._offer(snapshot, own)
        if offer is None or not is_listed(request.info):
            raise errors.not_served()
        check_gate(request.info, request.user, offer.cluster, self._gate(snapshot, offer.cluster))
        catalog, shard = Catalog(self._kinds(snapshot, offer)), _shard_of(snapshot, offer.cluster)
        remote, rows = None, self._copied(snapshot, request.cluster, offer) if shard else None
        if rows is None:
            if shard and self._shards is not None:
                remote = self._shards.of(shard, f"/services/{SERVICE}/{own[0]}/{own[1]}")
            rows = self._rows(request.cluster, offer)
        return RequestScope(
            authorize=self._scope_authorizer(request, own, catalog),
            catalog=catalog,
            restrictions=Restrictions(rows=rows),
            remote=remote,
            keeps_watches=False,
            depends_on=(offer.cluster,),
        )

    def _rows(self, consumer: str, offer: _CachedResourceExport) -> RowSource:
        choose = CachedSelection(offer.cluster, offer.copies.name)
        rows = FilteredRows(self._store, [Scope(CACHED_RESOURCES, offer.cluster)], choose)
        return ConsumerRows(rows, offer.cluster, consumer) if consumer else rows

    def _copied(self, snapshot: Snapshot, consumer: str, offer: _CachedResourceExport) -> RowSource | None:
        """Return this shard's copies for a consumer here; None where it keeps none, and before all are there.

        Raises ServiceUnavailable while they are made anew: what was read from copies cannot go on at their source.
        """
        whole = snapshot.get(offer.copies.whole) if consumer and snapshot.gate(consumer).generation else None
        if whole is None:
            return None
        if uid_of(whole.value) != offer.cached["metadata"]["uid"]:
            raise ServiceUnavailable("the copies of these objects are being made anew", Details(retry_after_s=1))
        return CopiedRows(self._store, offer.copies, consumer, whole.revision)

    def _scope_authorizer(self, request: Request, own: Own, catalog: Catalog) -> ScopeAuthorizer:
        """Authorize a watch again in full, whenever something changes in its cluster or in the provider's."""
        caller, info, cluster = request.user, request.info, request.cluster

        def authorize(view: View, verb: str) -> Decision:
            offer = self._offer(view, own)
            if offer is None or not self._is_open(view, request, offer):
                return Decision(False)
            if not info.is_resource:
                return Decision(self.opens(view, caller, own))
            if Catalog(self._kinds(view, offer)).mark != catalog.mark:
                return Decision(False)
            if verb not in READ_VERBS or (cluster and not self._is_bound(view, cluster, offer)):
                return Decision(False)
            return self._may(view, caller, offer, verb)

        return authorize

    def _is_open(self, view: View, request: Request, offer: _CachedResourceExport) -> bool:
        try:
            check_gate(request.info, request.user, offer.cluster, self._gate(view, offer.cluster))
        except ApiError:
            return False
        return True

    def _gate(self, view: View, cluster: str) -> Gate:
        """Return the gate of the provider's workspace, of a remote one by what its LogicalCluster says."""
        if not _shard_of(view, cluster):
            return view.gate(cluster)
        home = self._read(view, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        return Gate(GateState.INACTIVE) if home is not None and is_inactive(home) else view.gate(cluster)

    # --- the target of a slice ---

    def _offer(self, view: View, own: Own) -> _CachedResourceExport | None:
        slice = self._read(view, ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, own[0], "", own[1]))
        if slice is None or not is_cluster_name(own[0]):
            return None
        reference, cached = endpointslices.reference_of(slice), cachedresources.cached_of(slice)
        cluster = self._cluster_of(view, reference.path)
        if cluster is None or cluster != self._cluster_of(view, cached.path):
            return None
        export = self._read(view, ObjectKey(API_EXPORTS, cluster, "", reference.name))
        found = self._read(view, ObjectKey(CACHED_RESOURCES, cluster, "", cached.name))
        if export is None or found is None or not cachedresources.offered_by(export, found):
            return None
        return _CachedResourceExport(cluster, reference.name, found, _schema_of(export, found))

    def _read(self, view: View, key: ObjectKey) -> Object | None:
        record = federated(view).get(key)
        return decode(record.value) if record is not None else None

    def _kinds(self, view: View, offer: _CachedResourceExport) -> list[Kind]:
        """Return the resource in all versions the provider's workspace serves.

        For a remote workspace these are the versions in the export's schema, as for its consumers.
        """
        group, _, plural = cachedresources.resource_of(offer.cached)
        if _shard_of(view, offer.cluster):
            kinds: Iterable[Kind] = self._catalogs.offered(view, offer.cluster, offer.schema, CORE)
        else:
            kinds = self._catalogs.of(view, offer.cluster).kinds.values()
        return [
            view_kind(kind)
            for kind in kinds
            if (kind.group, kind.plural) == (group, plural) and not kind.namespaced and kind.virtual is None
        ]

    def _is_bound(self, view: View, cluster: str, offer: _CachedResourceExport) -> bool:
        """Return whether a binding of the export holds the resource in a cluster.

        True for a remote cluster: its own shard checks before it forwards. A direct request there needs the verb that
        already allows reading everything through `*`. A shard that keeps only needed LogicalClusters does not know
        where a consumer lies.
        """
        if not view.replicas.empty and not view.gate(cluster).generation:
            return True
        home = self._read(view, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        lock = (read_locks(home) or {}).get(offer.group_resource) if home is not None else None
        if lock is None or not lock.n:
            return False
        binding = self._read(view, ObjectKey(API_BINDINGS, cluster, "", lock.n))
        if binding is None:
            return False
        bound = export_of(binding)
        return (bound.cluster, bound.name) == (offer.cluster, offer.export)


def _shard_of(view: View, cluster: str) -> str:
    """Return the other shard that has the cluster, "" for a local or unknown one."""
    return "" if view.replicas.empty or view.gate(cluster).generation else view.replicas.shard_of(cluster)


def _schema_of(export: Object, cached: Object) -> str:
    """Return the name of the APIResourceSchema by which an export offers the cached resource."""
    resource = cachedresources.resource_of(cached)
    offered = spec_of(export).get("resources") or ()
    wanted = resource.group, resource.plural
    return next((str(each["schema"]) for each in offered if (each.get("group") or "", each["name"]) == wanted), "")


class CachedSelection(msgspec.Struct, frozen=True):
    """Selects the objects of one ClusterCachedResource, as long as that exists."""

    cluster: str
    name: str

    def __call__(self, offers: Sequence[bytes]) -> RowFilter:
        mine = (offer for offer in map(decode, offers) if offer["metadata"]["name"] == self.name)
        offer = next(mine, None)
        if offer is None:
            return RowFilter((), None, lambda cluster, value: False)
        selector = cachedresources.selector_of(offer)
        return RowFilter((self.cluster,), selector, lambda _, value: selector.matches(partial.labels(value)))
