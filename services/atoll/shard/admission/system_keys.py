"""The annotations, labels and finalizers that the system reads: on which kinds, who may write them, what enforces it.

`system_metadata` enforces the rules REFUSED, RESTORED and FROZEN from this table; the other rules record what another
module enforces. A key that ends with `/` stands for every key with that prefix. Invariant: each such key in the sources
has a row.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from atoll.machinery.apiserver.authorization.groups import (
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    KCP_ADMIN,
    LOGICAL_CLUSTER_ADMIN,
    WORKSPACE_BOOTSTRAPPER,
)
from atoll.machinery.kcp.apis import apiexports, bound_crds, cachedresources, endpointslices, kubernetes_export
from atoll.machinery.kcp.bootstrap import batteries, objects, reconcile
from atoll.machinery.kcp.sharding import forgotten_stores, replication_level, scheduling, shards
from atoll.machinery.kcp.workspaces import mounts, workspacetypes
from atoll.machinery.kinds.apiconversion import converter
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.types import ADMISSION_CONFIGURATIONS
from atoll.machinery.meta.user import MASTERS

GroupResource = tuple[str, str]


class Field(Enum):
    """The field of metadata that has the key."""

    ANNOTATION = "annotations"
    LABEL = "labels"
    FINALIZER = "finalizers"


class Rule(Enum):
    """What happens to a key that a user who is not among the writers sets, changes or removes."""

    #: The update is Invalid.
    REFUSED = "refused"
    #: The stored value stays; a new object has none.
    RESTORED = "restored"
    #: As RESTORED on updates; the author of a new object may set it.
    FROZEN = "frozen"
    #: Another module overwrites or refuses it.
    DELEGATED = "delegated"
    #: It is the author's: whoever may write the object may set it.
    AUTHORS = "authors"


class SystemKey(NamedTuple):
    """A key on some kinds. No kinds: on every kind."""

    field: Field
    key: str
    kinds: tuple[GroupResource, ...]
    rule: Rule
    writers: frozenset[str] = frozenset()

    def matches(self, key: str) -> bool:
        """Return whether the row is about a key."""
        return key.startswith(self.key) if self.key.endswith("/") else key == self.key


#: Groups that act for the system on LogicalClusters.
SYSTEM = frozenset({MASTERS, LOGICAL_CLUSTER_ADMIN, EXTERNAL_LOGICAL_CLUSTER_ADMIN, WORKSPACE_BOOTSTRAPPER})
_MASTERS = frozenset({MASTERS})
_ADMINS = frozenset({MASTERS, KCP_ADMIN})
#: A shard that holds the logical cluster of a Workspace of another one.
_CLUSTER_SHARD = frozenset({MASTERS, EXTERNAL_LOGICAL_CLUSTER_ADMIN})

_APIS, _TENANCY, _CACHE = wellknown.APIS_GROUP, wellknown.TENANCY_GROUP, "cache.kcp.io"
_CLUSTER = ((wellknown.CORE_GROUP, "logicalclusters"),)
_WORKSPACE = ((_TENANCY, "workspaces"),)
_TYPE = ((_TENANCY, "workspacetypes"),)
_SHARD = ((wellknown.CORE_GROUP, "shards"),)
_EXPORT, _BINDING = ((_APIS, "apiexports"),), ((_APIS, "apibindings"),)
_CACHED = ((_CACHE, "clustercachedresources"),)
_CRD = (("apiextensions.k8s.io", "customresourcedefinitions"),)
_CLUSTER_RBAC = ((wellknown.RBAC_GROUP, "clusterroles"), (wellknown.RBAC_GROUP, "clusterrolebindings"))
_OF_EXPORTS = ((_APIS, "apiresourceschemas"), (_APIS, "apiconversions"), (_APIS, "apiexportendpointslices"))
_CONFIGURATIONS = tuple((type.group, type.resource) for type in ADMISSION_CONFIGURATIONS)
_SLICES = ((_APIS, "apiexportendpointslices"), (_CACHE, "clustercachedresourceendpointslices"))
_PATHED = (*_EXPORT, *_BINDING, *_TYPE, *_CACHED)
_EVERY: tuple[GroupResource, ...] = ()

_A, _L, _F = Field.ANNOTATION, Field.LABEL, Field.FINALIZER

SYSTEM_KEYS = (
    # Every kind: `rest.metadata`, PermissionClaims, PathAnnotation.
    SystemKey(_A, wellknown.CLUSTER, _EVERY, Rule.DELEGATED),
    SystemKey(_L, hashes.CLAIM_LABEL_PREFIX, _EVERY, Rule.DELEGATED),
    SystemKey(_A, wellknown.PATH, _PATHED, Rule.DELEGATED),
    # LogicalClusters.
    SystemKey(_A, wellknown.PATH, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.TYPE, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.OWNER, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.REQUIRED_GROUPS, _CLUSTER, Rule.REFUSED, SYSTEM | {KCP_ADMIN}),
    SystemKey(_A, wellknown.SHARD, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.LOCKS, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.REPLICATE, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.MIGRATING, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_A, wellknown.MOVED_TO, _CLUSTER, Rule.REFUSED, _CLUSTER_SHARD),
    SystemKey(_A, wellknown.MOVED_GENERATION, _CLUSTER, Rule.REFUSED, _CLUSTER_SHARD),
    SystemKey(_A, wellknown.HOME_STORE, _CLUSTER, Rule.REFUSED, _CLUSTER_SHARD),
    SystemKey(_A, wellknown.HOME_CREATED, _CLUSTER, Rule.REFUSED, _CLUSTER_SHARD),
    SystemKey(_A, wellknown.MAX_TOTAL_OBJECTS, _CLUSTER, Rule.REFUSED, SYSTEM | {KCP_ADMIN}),
    SystemKey(_A, wellknown.INACTIVE, _CLUSTER, Rule.AUTHORS),
    SystemKey(_A, wellknown.INTERNAL_INACTIVE, _CLUSTER, Rule.AUTHORS),
    SystemKey(_L, wellknown.PHASE, _CLUSTER, Rule.RESTORED, SYSTEM),
    SystemKey(_L, hashes.INITIALIZER_LABEL_PREFIX, _CLUSTER, Rule.RESTORED, SYSTEM),
    SystemKey(_L, hashes.TERMINATOR_LABEL_PREFIX, _CLUSTER, Rule.RESTORED, SYSTEM),
    SystemKey(_L, hashes.ROOT_PATH_LABEL, _CLUSTER, Rule.DELEGATED),
    SystemKey(_F, wellknown.DELETION_FINALIZER, _CLUSTER, Rule.REFUSED, SYSTEM),
    SystemKey(_F, wellknown.TERMINATOR_FINALIZER, _CLUSTER, Rule.REFUSED, SYSTEM),
    # Workspaces. The plug-in Workspaces sets owner and required groups on create.
    SystemKey(_A, wellknown.OWNER, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.REQUIRED_GROUPS, _WORKSPACE, Rule.FROZEN, _MASTERS),
    SystemKey(_A, wellknown.SCHEDULED_CLUSTER, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.SHARD, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.SHARD_HASH, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.BORN_ON, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.CLUSTER_REVISION, _WORKSPACE, Rule.RESTORED, _CLUSTER_SHARD),
    SystemKey(_L, wellknown.PHASE, _WORKSPACE, Rule.RESTORED, _MASTERS),
    SystemKey(_L, wellknown.REGION, _WORKSPACE, Rule.AUTHORS),
    SystemKey(_F, wellknown.OWNER_FINALIZER, _WORKSPACE, Rule.RESTORED, _CLUSTER_SHARD),
    # APIs. The plug-ins of bindings and slices compute the labels, Replication the level and its words.
    SystemKey(_L, hashes.EXPORT_LABEL, _BINDING, Rule.DELEGATED),
    SystemKey(_L, hashes.AWAITED_PATH_LABEL, _BINDING, Rule.RESTORED, _MASTERS),
    SystemKey(_L, hashes.AWAITED_WORKSPACE_LABEL, _BINDING, Rule.RESTORED, _MASTERS),
    SystemKey(_L, hashes.AWAITED_EXPORT_LABEL, _BINDING, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.PINNED_IDENTITY, _BINDING, Rule.AUTHORS),
    SystemKey(_A, wellknown.SHARED_WITH, _BINDING, Rule.AUTHORS),
    SystemKey(_F, wellknown.BINDING_FINALIZER, _BINDING, Rule.RESTORED, _MASTERS),
    SystemKey(_A, kubernetes_export.REQUESTED, _EXPORT, Rule.RESTORED, _CLUSTER_SHARD),
    SystemKey(_F, cachedresources.FINALIZER, _CACHED, Rule.RESTORED, _MASTERS),
    SystemKey(_L, endpointslices.EXPORT_LABEL, _SLICES, Rule.DELEGATED),
    SystemKey(_A, replication_level.DERIVED, (*_CLUSTER_RBAC, *_OF_EXPORTS, *_CONFIGURATIONS), Rule.DELEGATED),
    SystemKey(
        _A, replication_level.DERIVED, (*_CLUSTER, *_WORKSPACE, *_TYPE, *_EXPORT, *_CACHED), Rule.RESTORED, _MASTERS
    ),
    SystemKey(_A, wellknown.REPLICATE, _CLUSTER_RBAC, Rule.AUTHORS),
    SystemKey(_A, wellknown.REPLICATE, _CONFIGURATIONS, Rule.DELEGATED),
    SystemKey(_A, replication_level.LEVEL, (*_EXPORT, *_OF_EXPORTS), Rule.AUTHORS),
    # A level would keep a workspace's route, its rights, its types and its rules from the other shards and the proxies.
    SystemKey(
        _A,
        replication_level.LEVEL,
        (*_CLUSTER, *_WORKSPACE, *_TYPE, *_CACHED, *_CLUSTER_RBAC, *_CONFIGURATIONS),
        Rule.RESTORED,
        _MASTERS,
    ),
    SystemKey(_A, apiexports.SKIP_SLICE, _EXPORT, Rule.AUTHORS),
    SystemKey(_A, apiexports.EXTRA_PREFIX, (*_EXPORT, *_BINDING), Rule.AUTHORS),
    SystemKey(_A, workspacetypes.LIFECYCLE_ANNOTATION, _TYPE, Rule.AUTHORS),
    SystemKey(_A, wellknown.CLUSTER_SCOPED_QUOTA, (("", "resourcequotas"),), Rule.AUTHORS),
    SystemKey(_A, mounts.IS_MOUNT, _EVERY, Rule.AUTHORS),
    SystemKey(_A, converter.PRESERVED, _EVERY, Rule.AUTHORS),
    # Definitions. Those of bound schemas lie in `system:bound-crds`, where only the system writes.
    # ReservedDefinitions refuses those of the domain apis.kcp.io.
    SystemKey(_A, bound_crds.BOUND, _CRD, Rule.DELEGATED),
    SystemKey(_A, bound_crds.SCHEMA_CLUSTER, _CRD, Rule.DELEGATED),
    SystemKey(_A, bound_crds.SCHEMA_NAME, _CRD, Rule.DELEGATED),
    SystemKey(_A, bound_crds.EXPORTS, _CRD, Rule.RESTORED, _MASTERS),
    SystemKey(_A, bound_crds.POLICED, _CRD, Rule.RESTORED, _MASTERS),
    SystemKey(_A, bound_crds.COLLECTED, _CRD, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.VALIDATE_NAME, _CRD, Rule.RESTORED, _MASTERS),
    SystemKey(_A, wellknown.API_APPROVED, _CRD, Rule.AUTHORS),
    # Objects of the installation: its administrators write Shards and all else in `root`.
    SystemKey(_L, shards.NAME_LABEL, _SHARD, Rule.AUTHORS),
    SystemKey(_L, wellknown.REGION, _SHARD, Rule.AUTHORS),
    SystemKey(_A, shards.UNSCHEDULABLE, _SHARD, Rule.AUTHORS),
    SystemKey(_A, shards.REGISTERED, _SHARD, Rule.AUTHORS),
    SystemKey(_A, shards.STORE, _SHARD, Rule.AUTHORS),
    SystemKey(_A, shards.EVENT_KEYS, _SHARD, Rule.AUTHORS),
    # What a shard holds is nothing that its own administrator may say.
    SystemKey(_A, shards.ROOTS, _SHARD, Rule.RESTORED, _ADMINS),
    # What it names counts nowhere any more: the operator's word, not that of an administrator of `root`.
    SystemKey(_A, forgotten_stores.FORGOTTEN, _SHARD, Rule.RESTORED, _MASTERS),
    SystemKey(_A, scheduling.RESERVED_FOR, _SHARD, Rule.AUTHORS),
    SystemKey(_A, objects.INSTALLATION, (("", "configmaps"),), Rule.AUTHORS),
    SystemKey(_A, reconcile.AUTO_UPDATE, _CLUSTER_RBAC, Rule.AUTHORS),
    SystemKey(_A, batteries.BATTERY, (*_CLUSTER_RBAC, ("", "serviceaccounts"), ("", "secrets")), Rule.AUTHORS),
    # The cache server overwrites them in what it serves; shards do not read them.
    SystemKey(_A, wellknown.ORIGIN_SHARD, _EVERY, Rule.AUTHORS),
    SystemKey(_A, wellknown.ORIGINAL_REVISION, _EVERY, Rule.AUTHORS),
    SystemKey(_A, wellknown.ORIGINAL_UID, _EVERY, Rule.AUTHORS),
)
