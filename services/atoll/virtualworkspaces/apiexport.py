"""The view of an APIExport: its provider's access to the workspaces that bind it.

    /services/apiexport/<export's cluster>/<export>/clusters/*/...         all consumers: discovery, list, watch
    /services/apiexport/<export's cluster>/<export>/clusters/<name>/...    one consumer: every verb

`framework` brings requests here. `export_catalog` gives the kinds served, `export_request` authorizes each request by
the grants of the workspaces (`accepted_claims`). In a workspace a request continues as its caller with a warrant of a
system account, through the workspace's own authorization and admission, as in kcp. A caller that impersonates a user of
the workspace needs the verb `impersonate` on the export's content, and the request continues as that user, without the
warrant: it may do what both may. Invariant: an object is reachable
only through a binding to this export that still exists when a write commits, and a claimed object only while it
carries the claim's label.
"""

from __future__ import annotations

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspaces.accepted_claims import AcceptedClaimsReader
from atoll.virtualworkspaces.export_catalog import ExportCatalogs, ExportKey
from atoll.virtualworkspaces.export_request import ExportRequest, Sources
from atoll.virtualworkspaces.export_user import acting
from atoll.virtualworkspaces.framework import Own, is_listed, view_kind

SERVICE = "apiexport"
MAX_KINDS = 1024

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_NOTHING = Catalog(())


class ExportView:
    """The views of all APIExports. `catalogs` are those of the shard's own clusters."""

    #: The export's cluster and its name.
    own_segments = 2

    def __init__(self, catalogs: Catalogs, authorizer: Authorizer) -> None:
        self._catalogs = catalogs
        self._sources = Sources(ExportCatalogs(catalogs), AcceptedClaimsReader(), authorizer)
        self._kinds: LruCache[tuple[int, int], tuple[Kind, Kind, Catalog]] = LruCache(MAX_KINDS)

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user holds any verb on the export's content. Each request is authorized in full later."""
        export, sources = ExportKey(*own), self._sources
        if not is_cluster_name(export.cluster) or not export.name:
            # No export can have this URL. Only system:masters get 404 for it.
            path_only = Attributes(user=user, verb="get", path=f"/services/{SERVICE}")
            return sources.authorizer.authorize(view, path_only).allowed
        return any(sources.may_reach_content(view, user, export, verb) for verb in _VERBS)

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of a discovery request or of one kind. Raises NotFound for an unknown export."""
        export, info = ExportKey(*own), request.info
        offer = self._sources.offers.of(snapshot, export)
        if offer is None or not is_listed(info):
            raise errors.not_served()
        offered = offer.catalog.find(info.group, info.version, info.resource)
        export_request = ExportRequest(self._sources, request, export, offered)
        scope = RequestScope(
            authorize=export_request.authorize,
            catalog=offer.catalog,
            restrictions=Restrictions(
                labels=export_request.labels(snapshot, offer), is_providers=export_request.is_of_own_kind(offer)
            ),
            keeps_watches=False,
            depends_on=export_request.depends_on(offer),
        )
        if not info.is_resource or not request.cluster:
            return scope
        return replace(
            scope,
            catalog=self._kind_in(snapshot, request.cluster, offered),
            restrictions=replace(scope.restrictions, write_rule=export_request.write_rule),
            user=request.acts_for or acting(request.user, request.cluster),
            impersonator=request.user if request.acts_for is not None else None,
        )

    def _kind_in(self, view: View, cluster: str, offered: Kind | None) -> Catalog:
        """Return a catalog with the workspace's own kind, which decides validation and conversion.

        It is empty where the workspace has no such kind, or another one of that name.
        """
        if offered is None:
            return _NOTHING
        local = self._catalogs.of(view, cluster).find(offered.group, offered.version, offered.plural)
        if local is None or local.type != offered.type:
            return _NOTHING
        key = id(local), id(offered)
        kept = self._kinds.get(key)
        # The entry keeps both kinds alive, so equal ids mean the same kinds.
        if kept is None:
            verbs = tuple(verb for verb in local.verbs if verb in offered.verbs)
            subresources = tuple(sub for sub in local.subresources if offered.subresource(sub.name) is not None)
            kept = local, offered, Catalog([view_kind(local, verbs, subresources)])
            self._kinds.put(key, kept)
        return kept[2]
