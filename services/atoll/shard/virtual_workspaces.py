"""The virtual workspaces of a shard, by their name below `/services/`.

The composition root passes them to the pipeline. A virtual workspace that is not listed here is not served.
"""

from __future__ import annotations

from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.serving.pipeline import VirtualWorkspaceHandler
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.kcp.workspaces.lifecycle import INITIALIZATION, TERMINATION, Lifecycle
from atoll.machinery.meta.types import API_RESOURCE_SCHEMAS, LOGICAL_CLUSTERS
from atoll.tenancy.lookups import Lookups
from atoll.virtualworkspaces import apiexport, bound_schemas, replication
from atoll.virtualworkspaces.apiexport import ExportView
from atoll.virtualworkspaces.bound_schemas import BoundSchemas
from atoll.virtualworkspaces.framework import VirtualWorkspace
from atoll.virtualworkspaces.lifecycle import LifecycleView
from atoll.virtualworkspaces.replication import Replication, Shards


def virtual_workspaces(
    core: WriteService, authorizer: Authorizer, facts: Lookups, shards: Shards | None = None
) -> dict[str, VirtualWorkspaceHandler]:
    """Return every virtual workspace by name. `shards` forwards to those of other shards."""
    kind = core.catalogs.builtin
    cached = Replication(core.catalogs, authorizer, facts.cluster_of, core.store, shards)

    def lifecycle(which: Lifecycle) -> VirtualWorkspaceHandler:
        return VirtualWorkspace(LifecycleView(which, kind(LOGICAL_CLUSTERS), authorizer, facts.workspace_type))

    schemas = BoundSchemas(kind(API_RESOURCE_SCHEMAS), authorizer, core.store)
    return {
        INITIALIZATION.service: lifecycle(INITIALIZATION),
        TERMINATION.service: lifecycle(TERMINATION),
        apiexport.SERVICE: VirtualWorkspace(ExportView(core.catalogs, authorizer)),
        bound_schemas.SERVICE: VirtualWorkspace(schemas, implied=True),
        replication.SERVICE: VirtualWorkspace(cached),
    }
