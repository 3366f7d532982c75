"""The types that shards publish and replicate, written down once more: tests compare the product with this list.

It is by hand, like a user's expectation, and takes nothing from the product's policy: a type that the product begins or
ceases to replicate is then a difference.
"""

from __future__ import annotations

import json

from atoll.machinery.meta.names import ObjectKey, ResourceType

NOT_PUBLISHED = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})
REPLICATED = frozenset(
    {
        "logicalclusters.core.kcp.io",
        "shards.core.kcp.io",
        "workspaces.tenancy.kcp.io",
        "workspacetypes.tenancy.kcp.io",
        "workspaceauthenticationconfigurations.tenancy.kcp.io",
        "partitions.topology.kcp.io",
        "apiexports.apis.kcp.io",
        "apiresourceschemas.apis.kcp.io",
        "apiconversions.apis.kcp.io",
        "apiexportendpointslices.apis.kcp.io",
        "cachedresources.cache.kcp.io",
        "cachedresourceendpointslices.cache.kcp.io",
        "clustercachedresources.cache.kcp.io",
        "clustercachedresourceendpointslices.cache.kcp.io",
    }
)
REPLICATED_IF_ANNOTATED = frozenset(
    {
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    }
)
#: No kind serves these: of other identities they are somebody's own.
INTERNAL = frozenset({"policyparameters.internal.atoll.dev", "sharedsubscriptions.internal.atoll.dev"})
#: These are in clusters of the system, as no other is.
OF_SHARDS = frozenset({"sharedsubscriptions.internal.atoll.dev"})
#: The group of copies for other shards, and the type by which a shard says what it keeps of others' copies.
COPIES, KEPT_SETS = "copies.internal.atoll.dev", "wholecopies.internal.atoll.dev"
_ANNOTATION, _OF_A_CLUSTER, _BUILT_IN = "internal.kcp.io/replicate", "local", "core"


def is_published(type: ResourceType) -> bool:
    """Whether changes of a type are in the changes stream."""
    if _is_internal(type) or (type.identity == _BUILT_IN and _name(type) == KEPT_SETS):
        return False
    return type.identity == _OF_A_CLUSTER or _name(type) not in NOT_PUBLISHED


def may_be_replicated(type: ResourceType) -> bool:
    """Whether other shards can hold objects of a type."""
    listed = type.identity != _OF_A_CLUSTER and _name(type) in REPLICATED | REPLICATED_IF_ANNOTATED
    return listed or _is_internal(type)


def is_replicated(key: ObjectKey, value: bytes) -> bool:
    """Whether other shards hold an object."""
    if not may_be_replicated(key.type) or (key.cluster.startswith("system:") and _name(key.type) not in OF_SHARDS):
        return False
    if _name(key.type) in REPLICATED or _is_internal(key.type):
        return True
    return bool((json.loads(value)["metadata"].get("annotations") or {}).get(_ANNOTATION))


def _is_internal(type: ResourceType) -> bool:
    return type.identity == _BUILT_IN and (_name(type) in INTERNAL or type.group == COPIES)


def _name(type: ResourceType) -> str:
    return f"{type.resource}.{type.group}" if type.group else type.resource
