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
#: On an APIBinding: the identity hash that its export must have.
PINNED_IDENTITY = "bindings.atoll.dev/identity"
#: On an APIBinding: the logical clusters that third parties' views may show what follows from this one's objects.
SHARED_WITH = "views.atoll.dev/shared-with"
#: On a Workspace whose LogicalCluster lies on another shard: its newest revision that this shard announced.
CLUSTER_REVISION = "internal.atoll.dev/cluster-revision"
#: On a LogicalCluster: the shard that owns its cluster now, and the number of moves.
MOVED_TO = "internal.atoll.dev/moved-to"
MOVED_GENERATION = "internal.atoll.dev/moved-generation"
#: On the marker of a home: the uid of the store that was chosen, and `true` once the home is there.
HOME_STORE, HOME_CREATED = "internal.atoll.dev/home-store", "internal.atoll.dev/home-created"
#: On the Workspace of a cluster that moved: the shard from which the cluster's name is derived.
BORN_ON = "internal.atoll.dev/born-on"
#: On a LogicalCluster; `true` takes it out of service. Only a Ready one can be marked.
INACTIVE, INTERNAL_INACTIVE = "core.kcp.io/inactive", "internal.kcp.io/inactive"
#: On a LogicalCluster that is being moved: the migration.
MIGRATING = "internal.kcp.io/migrating"
#: On a LogicalCluster: how many objects it may hold, instead of the shard's setting.
MAX_TOTAL_OBJECTS = "core.kcp.io/max-total-objects"
#: On a ResourceQuota of the namespace `admin`; `true` makes it one of the whole logical cluster.
CLUSTER_SCOPED_QUOTA = "experimental.quota.kcp.io/cluster-scoped"
#: On the CustomResourceDefinition of a schema with name validation PathSegmentName.
VALIDATE_NAME = "internal.kcp.io/validate-name"
#: Label on Workspaces and LogicalClusters that mirrors status.phase.
PHASE = "tenancy.kcp.io/phase"
REGION = "region"
#: On objects that the cache server serves: their shard, and the revision and uid they have there.
ORIGIN_SHARD = "kcp.io/shard"
ORIGINAL_REVISION = "cache.kcp.io/original-resource-version"
ORIGINAL_UID = "cache.kcp.io/original-resource-UID"
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

#: Header of a write: nothing is written if the same account wrote with a higher number on this shard, and code 412 says
#: so.
FENCE_HEADER, FENCED_CODE = "atoll-fencing-token", 412
