"""The apiresourceschema view: the APIResourceSchemas bound by a workspace, on whichever shard their providers are.

    /services/apiresourceschema/<consumer>[/clusters/<* or the consumer>]/apis/apis.kcp.io/v1alpha1/apiresourceschemas

`framework` brings requests here. The view needs `get` on APIBindings in the consumer's workspace. It is read only and
follows the bindings: a schema is shown as long as a binding names it. Invariant: of a provider's workspace only bound
schemas are visible, matched by name and uid.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.call.gate import check_gate
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.filtered_rows import Log, RowFilter
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ObjectKey, is_cluster_name
from atoll.machinery.meta.types import API_BINDINGS, LOGICAL_CLUSTERS
from atoll.machinery.meta.user import User
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.virtualworkspaces.cross_shard_rows import CrossShardRows
from atoll.virtualworkspaces.framework import READ_VERBS, Own, is_listed, view_kind

SERVICE = "apiresourceschema"


class BoundSchemas:
    """`framework.Content`. `kind` is that of APIResourceSchemas."""

    #: The consumer's logical cluster.
    own_segments = 1

    def __init__(self, kind: Kind, authorizer: Authorizer, store: Log) -> None:
        self._authorizer, self._store = authorizer, store
        self._catalog = Catalog([view_kind(kind)])

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user may get the consumer's APIBindings."""
        (consumer,) = own
        attributes = Attributes(
            user=user,
            verb="get",
            cluster=consumer if is_cluster_name(consumer) else "",
            group=API_BINDINGS.group,
            version="v1alpha2",
            resource=API_BINDINGS.resource,
        )
        return self._authorizer.authorize(view, attributes).allowed

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the bound schemas. Raises NotFound for another cluster, Forbidden for an inactive one."""
        (consumer,) = own
        if request.cluster not in {"", consumer} or not is_cluster_name(consumer) or not is_listed(request.info):
            raise errors.not_served()
        if snapshot.get(ObjectKey(LOGICAL_CLUSTERS, consumer, "", SINGLETON)) is None:
            raise errors.not_served()
        check_gate(request.info, request.user, consumer, snapshot.gate(consumer))
        caller = request.user
        return RequestScope(
            authorize=lambda view, verb: Decision(verb in READ_VERBS and self.opens(view, caller, own)),
            catalog=self._catalog,
            restrictions=Restrictions(rows=CrossShardRows(self._store, [Scope(API_BINDINGS, consumer)], bound_by)),
            keeps_watches=False,
            depends_on=(consumer,),
        )


class _Schema(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = msgspec.field(default="", name="UID")


class _BoundResource(msgspec.Struct, frozen=True):
    schema: _Schema = _Schema()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    api_export_cluster_name: str = ""
    bound_resources: tuple[_BoundResource, ...] = ()


class _Binding(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_binding = msgspec.json.Decoder(_Binding)


def bound_by(bindings: Sequence[bytes]) -> RowFilter:
    """Return the filter for the schemas that stored APIBindings bind."""
    found: dict[str, set[tuple[str, str]]] = {}
    for value in bindings:
        status = _binding.decode(value).status
        for each in status.bound_resources:
            if status.api_export_cluster_name and each.schema.name:
                found.setdefault(status.api_export_cluster_name, set()).add((each.schema.name, each.schema.uid))

    def matches(cluster: str, value: bytes) -> bool:
        metadata = partial.identity(value)
        return (metadata.name, metadata.uid) in found[cluster]

    mark = frozenset((cluster, *each) for cluster, schemas in found.items() for each in schemas)
    return RowFilter(tuple(sorted(found)), mark, matches)
