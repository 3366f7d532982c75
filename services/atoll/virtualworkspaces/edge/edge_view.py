"""The edge view: a workspace as a container of data, which does not act on what it holds.

    /services/edge-view/clusters/<workspace>/...

`framework` brings requests here. Kinds that would be in effect in the center (RBAC, admission, quotas, accounts) are
stored under an identity of their own, so a Role of the view and one of the workspace may have one name. The workspace's
own RBAC guards the view under the real names of resources; as nothing in it grants anything, there is no check of
escalation. Invariant: nothing that is written through the view has an effect on this server; its own objects are
neither listed, read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, attributes_of, with_verb
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View, WriteRule
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.filtered_rows import MappedRows, Rows
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.edge.denaturing import IDENTITY
from atoll.machinery.edge.names import EDGE_VIEW, ObjectRef
from atoll.machinery.edge.system_objects import is_system_object, may_be_system
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType, is_cluster_name
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Guard, Snapshot
from atoll.virtualworkspaces.edge.carried import ref_of
from atoll.virtualworkspaces.framework import Own, is_listed

SERVICE = EDGE_VIEW


class EdgeView:
    """`framework.Content`."""

    own_segments = 0

    def __init__(self, catalogs: Catalogs, authorizer: Authorizer, store: Rows) -> None:
        self._catalogs, self._authorizer, self._store = catalogs, authorizer, store

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user may enter the workspace; each request is authorized in full later."""
        (cluster,) = own
        path = Attributes(user=user, verb="get", cluster=cluster if is_cluster_name(cluster) else "", path="/api")
        return self._authorizer.authorize(view, path).allowed

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of a request. Raises NotFound, Forbidden for what is neither a resource nor a document."""
        info, cluster, caller = request.info, request.cluster, request.user
        if not cluster or not is_listed(info):
            attributes = attributes_of(info, caller, cluster)
            if cluster and not self._authorizer.authorize(snapshot, attributes).allowed:
                raise forbidden(attributes)
            raise errors.not_served()
        catalog = self._catalogs.edge.of(self._catalogs.of(snapshot, cluster))
        kind = catalog.find(info.group, info.version, info.resource)

        def authorize(view: View, verb: str) -> Decision:
            if kind is not None and not self._serves(view, cluster, kind):
                return Decision(False, reason="the kind is served differently now")
            return self._authorizer.authorize(view, with_verb(attributes_of(info, caller, cluster), verb))

        return RequestScope(
            authorize=authorize,
            catalog=catalog,
            restrictions=Restrictions(
                rows=MappedRows(self._store, _visible), is_data=True, write_rule=_write_rule(info.namespace, kind)
            ),
            keeps_watches=False,
            depends_on=(cluster,),
        )

    def _serves(self, view: View, cluster: str, kind: Kind) -> bool:
        """Return whether a kind is served as before; a terminating definition changes nothing."""
        now = self._catalogs.edge.of(self._catalogs.of(view, cluster)).find(kind.group, kind.version, kind.plural)
        return now is not None and (now.type, now.mark) == (kind.type, kind.mark)


def _write_rule(namespace: str, kind: Kind | None) -> WriteRule | None:
    """Return the rule that no system object is written: a Secret for a token would be given one."""
    if kind is None or kind.identity == IDENTITY or not may_be_system((kind.group, kind.plural)):
        return None

    def rule(view: View, obj: Object | None, old: Object | None) -> Sequence[Guard]:
        name = str((obj or old or {})["metadata"].get("name", ""))
        ref = ObjectRef(kind.group, kind.plural, namespace if kind.namespaced else "", name)
        if obj is not None and is_system_object(ref, obj):
            raise errors.forbidden(kind, name, "objects of the system are not data")
        return ()

    return rule


def _visible(type: ResourceType, value: bytes) -> bytes | None:
    """Return a stored object unless it is the system's own; of what is stored apart nothing is."""
    ref = ref_of(type, value)
    if type.identity == IDENTITY or not may_be_system(ref.kind):
        return value
    return None if is_system_object(ref, decode(value)) else value
