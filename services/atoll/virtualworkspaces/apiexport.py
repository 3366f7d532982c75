"""The view of an APIExport: what its provider reaches in the workspaces that bind it, and in no others.

    /services/apiexport/<export's cluster>/<export>/clusters/*/...         of all consumers: discovery, list, watch
    /services/apiexport/<export's cluster>/<export>/clusters/<name>/...    of one consumer: every verb

`framework` brings requests here. What is served is the export's offer (`exportoffers`), who may have it the request's
passage (`exportpassage`) says, by what the workspaces consent to (`consents`). Inside of a workspace a request goes on
as its caller, with a warrant of the system's, through the workspace's own chain and admission, as kcp's does.
Invariant: an object is reached only through a binding to this export that still stands when a write is done, and a
claimed one only while it carries the claim's label.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import CLUSTER_NAME, WARRANT
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspaces.accepted_claims import AcceptedClaimsReader
from atoll.virtualworkspaces.export_catalog import ExportCatalogs, ExportKey
from atoll.virtualworkspaces.export_request import ExportRequest, Sources
from atoll.virtualworkspaces.framework import Own, is_listed, shown

SERVICE = "apiexport"
#: Who asks in a workspace beside the caller: an account of it that may do what its administrators may.
WARRANTED = "system:serviceaccount:default:rest"
ORIGINAL_NAME = "experimental.authorization.kcp.io/original-username"
ORIGINAL_GROUPS = "experimental.authorization.kcp.io/original-groups"
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
        """Who may do anything at all through it. What exactly is judged with each request."""
        export, sources = ExportKey(*own), self._sources
        if not is_cluster_name(export.cluster) or not export.name:
            # Nobody's view: masters alone hear that it is not there.
            nowhere = Attributes(user=user, verb="get", path=f"/services/{SERVICE}")
            return sources.authorizer.authorize(view, nowhere).allowed
        return any(sources.may_reach_content(view, user, export, verb) for verb in _VERBS)

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """The documents of a view, or the objects of one kind. Raises NotFound for an export that is not there."""
        export, info = ExportKey(*own), request.info
        offer = self._sources.offers.of(snapshot, export)
        if offer is None or not is_listed(info):
            raise errors.not_served()
        offered = offer.catalog.find(info.group, info.version, info.resource)
        passage = ExportRequest(self._sources, request, export, offered)
        scope = RequestScope(
            judge=passage.judge,
            catalog=offer.catalog,
            restrictions=Restrictions(labels=passage.labels(snapshot, offer)),
            keeps_watches=False,
            depends_on=passage.depends_on(offer),
        )
        if not info.is_resource or not request.cluster:
            return scope
        return replace(
            scope,
            catalog=self._kind_in(snapshot, request.cluster, offered),
            restrictions=replace(scope.restrictions, write_rule=passage.write_rule),
            user=acting(request.user, request.cluster),
        )

    def _kind_in(self, view: View, cluster: str, offered: Kind | None) -> Catalog:
        """A kind as the workspace has it, for that decides how its objects are checked and converted; none where the
        workspace has another one, or none."""
        if offered is None:
            return _NOTHING
        there = self._catalogs.of(view, cluster).find(offered.group, offered.version, offered.plural)
        if there is None or there.type != offered.type:
            return _NOTHING
        key = id(there), id(offered)
        kept = self._kinds.get(key)
        # Kinds are values that are shared and live as long as the entry: the same ones mean the same content.
        if kept is None:
            verbs = tuple(verb for verb in there.verbs if verb in offered.verbs)
            subresources = tuple(sub for sub in there.subresources if offered.subresource(sub.name) is not None)
            kept = there, offered, Catalog([shown(there, verbs, subresources)])
            self._kinds.put(key, kept)
        return kept[2]


def acting(caller: User, cluster: str) -> User:
    """Who a caller is inside of a workspace: itself, which may be nobody there, with the system's warrant."""
    return replace(
        caller,
        extra={
            **caller.extra,
            WARRANT: (*caller.extra.get(WARRANT, ()), _warrant(cluster)),
            ORIGINAL_NAME: (caller.name,),
            ORIGINAL_GROUPS: caller.groups,
        },
    )


@lru_cache(maxsize=4096)
def _warrant(cluster: str) -> str:
    return encode_json({"user": WARRANTED, "groups": [KCP_ADMIN], "extra": {CLUSTER_NAME: [cluster]}}).decode()
