"""Which controllers a shard runs. Order does not matter; each converges by itself."""

from __future__ import annotations

from functools import partial

from atoll.controllers.bindings.apibinding_deletion import BindingDeletion
from atoll.controllers.bindings.apibindings import ApiBindings
from atoll.controllers.bindings.bound_crd_gc import BoundCrdCollector
from atoll.controllers.bindings.default_bindings import DefaultBindings
from atoll.controllers.bindings.deleted_exports import DeletedExports
from atoll.controllers.bindings.extra_annotations import ExtraAnnotations
from atoll.controllers.bindings.locks import Locks
from atoll.controllers.bindings.permission_claims import PermissionClaimsController
from atoll.controllers.exports.apiexports import ExportController
from atoll.controllers.exports.cached_endpointslices import CachedEndpoints
from atoll.controllers.exports.cachedresources import CachedResources
from atoll.controllers.exports.endpointslice_urls import EndpointUrlController
from atoll.controllers.exports.endpointslices import EndpointSliceController
from atoll.controllers.exports.partitionsets import PartitionSetController
from atoll.controllers.exports.replication_labels import ReplicationLabels
from atoll.controllers.kubernetes.clusterroles import ClusterRoleAggregation
from atoll.controllers.kubernetes.customresourcedefinitions import CustomResourceDefinitionController
from atoll.controllers.kubernetes.garbage_collector import GarbageCollector
from atoll.controllers.kubernetes.namespace_defaults import NamespaceDefaults
from atoll.controllers.kubernetes.namespaces import NamespaceController
from atoll.controllers.kubernetes.policy_statuses import PolicyStatuses
from atoll.controllers.kubernetes.resourcequotas import QuotaStatus
from atoll.controllers.kubernetes.service_account_tokens import AccountTokens
from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.workspaces.home_markers import HomeMarkers
from atoll.controllers.workspaces.lifecycle import LogicalClusterLifecycle
from atoll.controllers.workspaces.logicalcluster_deletion import LogicalClusterDeletion
from atoll.controllers.workspaces.lost_parents import LostParents
from atoll.controllers.workspaces.mounts import MountController
from atoll.controllers.workspaces.owner_notifications import OwnerNotifications, OwnerShards
from atoll.controllers.workspaces.remote_logicalclusters import RemoteLogicalClusters
from atoll.controllers.workspaces.roots import Roots
from atoll.controllers.workspaces.workspaces import WorkspaceController
from atoll.controllers.workspaces.workspacetypes import WorkspaceTypeStatus
from atoll.machinery.apiserver.authentication.token_issuer import TokenIssuer
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.workspaces.workspace import Shard
from atoll.machinery.meta.types import (
    API_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    LOGICAL_CLUSTERS,
    NAMESPACES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_POLICIES,
)
from atoll.replication.peers import Peers
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement


def controllers(
    loopback: Loopback,
    facts: Lookups,
    shard: Shard,
    issuer: TokenIssuer,
    *,
    deprecated_urls: bool = False,
    peers: Peers | None = None,
) -> list[Controller]:
    """Return all controllers. They share one loopback identity; each has its own field manager.

    `deprecated_urls`: APIExports list the URLs of their virtual workspaces in status, beside the endpoint slices.
    `peers`: clients of other shards; None for a single shard.
    """

    kind = loopback.core.catalogs.builtin

    def acting_as(manager: str) -> Loopback:
        return Loopback(loopback.core, manager)

    placement = ShardPlacement(facts, shard.name, reaches=peers is not None)
    calls = ShardCaller(peers) if peers is not None else None
    owners = _owners(calls, placement, loopback) if calls is not None else None
    homes = RemoteLogicalClusters(calls) if calls is not None and shard.name == ROOT_SHARD else None
    workspaces, clusters, notifier = facts.identities.workspaces, kind(LOGICAL_CLUSTERS), "kcp-logicalcluster-owner"
    return [
        *([OwnerNotifications(acting_as(notifier), clusters, workspaces, owners)] if owners is not None else []),
        *([HomeMarkers(acting_as(notifier), clusters, placement, homes)] if homes is not None else []),
        *([LostParents(acting_as(notifier), clusters, placement, owners)] if owners else []),
        WorkspaceController(acting_as("kcp-workspace"), facts, shard, placement, calls),
        MountController(acting_as("kcp-workspacemounts"), facts),
        WorkspaceTypeStatus(acting_as("kcp-workspacetype"), facts, shard.virtual_workspace_url),
        Roots(acting_as("kcp-logicalcluster"), facts, shard),
        LogicalClusterLifecycle(acting_as("kcp-logicalcluster"), clusters),
        LogicalClusterDeletion(acting_as("kcp-logicalcluster-deletion"), clusters, workspaces, owners),
        ApiBindings(acting_as("kcp-apibinding"), facts, kind(API_BINDINGS), clusters),
        BindingDeletion(acting_as("kcp-apibinding-deletion"), facts, kind(API_BINDINGS), clusters),
        Locks(acting_as("kcp-logicalcluster-cleanup"), clusters),
        BoundCrdCollector(acting_as("kcp-crdcleanup")),
        DeletedExports(acting_as("kcp-apibinding"), facts.identities.shard_objects),
        ExportController(acting_as("kcp-apiexport"), facts.identities.shard_objects if deprecated_urls else None),
        ExtraAnnotations(acting_as("kcp-extraannotationsync"), facts),
        EndpointSliceController(acting_as("kcp-apiexportendpointslice"), facts, shard.name),
        PartitionSetController(acting_as("kcp-partitionset"), facts),
        EndpointUrlController(acting_as("kcp-apiexportendpointslice-urls"), facts, shard.name, calls),
        DefaultBindings(acting_as("kcp-defaultapibindings"), facts, (clusters, kind(API_BINDINGS))),
        PermissionClaimsController(acting_as("kcp-permissionclaims"), facts, kind(API_BINDINGS)),
        CachedResources(acting_as("kcp-clustercachedresource")),
        CachedEndpoints(acting_as("kcp-clustercachedresourceendpointslice"), facts, shard.name, calls),
        ReplicationLabels(acting_as("kcp-replication-labels"), facts),
        NamespaceController(acting_as("namespace-controller"), kind(NAMESPACES)),
        NamespaceDefaults(acting_as("namespace-defaults"), kind(SERVICE_ACCOUNTS), kind(CONFIG_MAPS), shard.ca_bundle),
        AccountTokens(acting_as("tokens-controller"), kind(SECRETS), issuer, shard.ca_bundle),
        CustomResourceDefinitionController(acting_as("customresourcedefinition-controller"), kind(CRDS), clusters),
        QuotaStatus(acting_as("resourcequota-controller"), kind(RESOURCE_QUOTAS)),
        GarbageCollector(acting_as("garbage-collector")),
        ClusterRoleAggregation(acting_as("clusterrole-aggregation-controller"), kind(CLUSTER_ROLES)),
        PolicyStatuses(acting_as("validatingadmissionpolicy-status"), kind(VALIDATING_POLICIES)),
    ]


def _owners(calls: ShardCaller, placement: ShardPlacement, loopback: Loopback) -> OwnerShards:
    others, lost = partial(placement.others, loopback.store), partial(placement.lost, loopback.store)
    return OwnerShards(calls, others, lost, knows_all=placement.own == ROOT_SHARD)
