"""Well-known keys: annotations, labels, finalizers and names that several packages read or write.

Each is defined here once. A key of a single module stays in that module.
"""

from __future__ import annotations

CLUSTER = "kcp.io/cluster"
PATH = "kcp.io/path"
TYPE = "internal.tenancy.kcp.io/type"
SCHEDULED_CLUSTER = "internal.tenancy.kcp.io/cluster"
SHARD = "core.kcp.io/shard"
SHARD_HASH = "internal.tenancy.kcp.io/shard"
OWNER = "experimental.tenancy.kcp.io/owner"
REQUIRED_GROUPS = "authorization.kcp.io/required-groups"
REPLICATE = "internal.kcp.io/replicate"
LOCKS = "internal.apis.kcp.io/resource-bindings"
#: On a Workspace whose LogicalCluster lies on another shard: its newest revision that this shard announced.
CLUSTER_REVISION = "internal.atoll.dev/cluster-revision"
#: Label on Workspaces and LogicalClusters that mirrors status.phase.
PHASE = "tenancy.kcp.io/phase"
REGION = "region"
#: On CustomResourceDefinitions of protected groups.
API_APPROVED = "api-approved.kubernetes.io"
#: The condition of Workspaces and LogicalClusters that are being emptied.
CONTENT_DELETED = "WorkspaceContentDeleted"

#: On the Workspace, until its LogicalCluster is gone.
OWNER_FINALIZER = "core.kcp.io/logicalcluster"
#: On the LogicalCluster, until its content is gone.
DELETION_FINALIZER = "core.kcp.io/logicalcluster-deletion"
TERMINATOR_FINALIZER = "kcp.io/has-terminators"
BINDING_FINALIZER = "apis.kcp.io/apibinding-finalizer"

#: The name of every LogicalCluster.
SINGLETON = "cluster"

TENANCY_GROUP, CORE_GROUP, APIS_GROUP = "tenancy.kcp.io", "core.kcp.io", "apis.kcp.io"
RBAC_GROUP = "rbac.authorization.k8s.io"
