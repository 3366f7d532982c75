"""Type aliases of several layers, so that each is defined once.

Storage, admission, authorization, controllers and kcp's own packages import from here. A type that only one module
needs stays in that module.
"""

from __future__ import annotations

from atoll.machinery.meta.names import CORE, ResourceType

_RBAC, _KCP_CORE, _KCP_APIS = "rbac.authorization.k8s.io", "core.kcp.io", "apis.kcp.io"

CONFIG_MAPS = ResourceType("", "configmaps")
EVENTS = ResourceType("", "events")
NAMESPACES = ResourceType("", "namespaces")
RESOURCE_QUOTAS = ResourceType("", "resourcequotas")
SECRETS = ResourceType("", "secrets")
SERVICE_ACCOUNTS = ResourceType("", "serviceaccounts")
LEASES = ResourceType("coordination.k8s.io", "leases")
CRDS = ResourceType("apiextensions.k8s.io", "customresourcedefinitions")

CLUSTER_ROLES = ResourceType(_RBAC, "clusterroles")
CLUSTER_ROLE_BINDINGS = ResourceType(_RBAC, "clusterrolebindings")
ROLES = ResourceType(_RBAC, "roles")
ROLE_BINDINGS = ResourceType(_RBAC, "rolebindings")


LOGICAL_CLUSTERS = ResourceType(_KCP_CORE, "logicalclusters")
API_BINDINGS = ResourceType(_KCP_APIS, "apibindings")
API_EXPORTS = ResourceType(_KCP_APIS, "apiexports")
API_EXPORT_ENDPOINT_SLICES = ResourceType(_KCP_APIS, "apiexportendpointslices")
API_RESOURCE_SCHEMAS = ResourceType(_KCP_APIS, "apiresourceschemas")
API_CONVERSIONS = ResourceType(_KCP_APIS, "apiconversions")

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = ResourceType(_ADMISSION, "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = ResourceType(_ADMISSION, "validatingwebhookconfigurations")
MUTATING_POLICIES = ResourceType(_ADMISSION, "mutatingadmissionpolicies")
MUTATING_POLICY_BINDINGS = ResourceType(_ADMISSION, "mutatingadmissionpolicybindings")
VALIDATING_POLICIES = ResourceType(_ADMISSION, "validatingadmissionpolicies")
VALIDATING_POLICY_BINDINGS = ResourceType(_ADMISSION, "validatingadmissionpolicybindings")
#: What a cluster's owner configures of admission. An export's act on the objects of its consumers, on every shard.
ADMISSION_CONFIGURATIONS = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
#: The parameters of an export's policies, for other shards. No kind serves it.
POLICY_PARAMETERS = ResourceType("internal.atoll.dev", "policyparameters")
#: Which Service of a cluster holds which node port. No kind serves it.
NODE_PORTS = ResourceType("internal.atoll.dev", "nodeports")
#: Subscriptions to the shard's events, of all clusters, in SYSTEM_SHARD. No kind serves them.
EVENT_SUBSCRIPTIONS = ResourceType("internal.atoll.dev", "eventsubscriptions")
#: What a shard says to others about those of an identity, in SYSTEM_SHARD. No kind serves them.
SHARED_SUBSCRIPTIONS = ResourceType("internal.atoll.dev", "sharedsubscriptions")

#: Copies of what a ClusterCachedResource selects, for other shards. No kind serves them.
COPIES_GROUP = "copies.internal.atoll.dev"
#: Which of these sets of copies are whole on this shard. No kind serves it.
WHOLE_COPIES = ResourceType("internal.atoll.dev", "wholecopies")

_KCP_CACHE = "cache.kcp.io"
CACHED_RESOURCES = ResourceType(_KCP_CACHE, "clustercachedresources")
CACHED_RESOURCE_ENDPOINT_SLICES = ResourceType(_KCP_CACHE, "clustercachedresourceendpointslices")


def copies_of(name: str) -> ResourceType:
    """Return the type of the copies of what a ClusterCachedResource of this name selects."""
    return ResourceType(COPIES_GROUP, name)


def is_copy(type: ResourceType) -> bool:
    """Whether a type is one of copies."""
    return type.group == COPIES_GROUP and type.identity == CORE
