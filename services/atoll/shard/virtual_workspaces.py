"""The virtual workspaces of a shard, by their name below `/services/`.

The composition root passes them to the pipeline. A virtual workspace that is not listed here is not served.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.serving.pipeline import VirtualWorkspaceHandler
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.kcp.apis.root_exports import ExportIdentity
from atoll.machinery.kcp.workspaces.lifecycle import INITIALIZATION, TERMINATION, Lifecycle
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.types import API_RESOURCE_SCHEMAS, LOGICAL_CLUSTERS
from atoll.tenancy.lookups import Lookups
from atoll.virtualworkspaces import apiexport, bound_schemas, replication
from atoll.virtualworkspaces.apiexport import ExportView
from atoll.virtualworkspaces.bound_schemas import BoundSchemas
from atoll.virtualworkspaces.cache import SERVICE as CACHE_SERVICE
from atoll.virtualworkspaces.cache import CacheView
from atoll.virtualworkspaces.cache_kinds import exporter_of, replicated_kinds
from atoll.virtualworkspaces.cache_rows import replicated_rows
from atoll.virtualworkspaces.cached_resources import CachedResources
from atoll.virtualworkspaces.edge import edge_view, mailbox
from atoll.virtualworkspaces.edge.edge_view import EdgeView
from atoll.virtualworkspaces.edge.mailbox import MailboxView
from atoll.virtualworkspaces.framework import VirtualWorkspace
from atoll.virtualworkspaces.lifecycle import LifecycleView
from atoll.virtualworkspaces.replication import Replication, Shards


def virtual_workspaces(
    core: WriteService,
    authorizer: Authorizer,
    facts: Lookups,
    cache: CacheView,
    box: MailboxView,
    shards: Shards | None = None,
) -> dict[str, VirtualWorkspaceHandler]:
    """Return every virtual workspace by name. `box` has mailboxes; `shards` forwards to those of other shards."""
    kind, shipped = core.catalogs.builtin, core.catalogs.shipped
    cached = Replication(core.catalogs, authorizer, facts.cluster_of, core.store, shards)

    def lifecycle(which: Lifecycle) -> VirtualWorkspaceHandler:
        return VirtualWorkspace(LifecycleView(which, kind(LOGICAL_CLUSTERS), authorizer, facts.workspace_type))

    data = EdgeView(core.catalogs, authorizer, core.store)
    schemas = BoundSchemas(kind(API_RESOURCE_SCHEMAS), authorizer, core.store)
    return {
        INITIALIZATION.service: lifecycle(INITIALIZATION),
        TERMINATION.service: lifecycle(TERMINATION),
        apiexport.SERVICE: VirtualWorkspace(ExportView(core.catalogs, authorizer), shipped, acting=True),
        bound_schemas.SERVICE: VirtualWorkspace(schemas, implied=True),
        edge_view.SERVICE: VirtualWorkspace(data, shipped, resolve=facts.cluster_of),
        mailbox.SERVICE: VirtualWorkspace(box, shipped, resolve=facts.cluster_of),
        replication.SERVICE: VirtualWorkspace(cached, shipped),
        CACHE_SERVICE: VirtualWorkspace(cache),
    }


def cache_view(core: WriteService, shard: str, identities: Mapping[str, ExportIdentity], *, alone: bool) -> CacheView:
    """Return the cache of a shard: its own objects, each under the identity of root's export.

    In a site it is served under the shard's own name alone, as other shards have the rest.
    """

    def own(kind: Kind) -> Kind:
        exporter = exporter_of(kind.type)
        return replace(kind, identity=identities[exporter].hash) if exporter else kind

    kinds, rows_of = [own(kind) for kind in replicated_kinds()], partial(replicated_rows, core.store, shard)
    return CacheView(
        kinds, rows_of, lambda: None, CachedResources(core.catalogs, core.store, shard), "" if alone else shard
    )
