"""The order of admission plug-ins in a shard."""

from __future__ import annotations

from atoll.machinery.apiserver.admission.boundapis import BoundLifecycle
from atoll.machinery.apiserver.admission.certificates import Certificates
from atoll.machinery.apiserver.admission.chain import Plugin
from atoll.machinery.apiserver.admission.definitions import DefinitionLifecycle
from atoll.machinery.apiserver.admission.limits import DryRunLimits
from atoll.machinery.apiserver.admission.namespaces import NamespaceLifecycle
from atoll.machinery.apiserver.admission.policies.writes import PolicyWrites
from atoll.machinery.apiserver.admission.rbac import EscalationCheck, RoleEscalation
from atoll.machinery.apiserver.admission.webhooks.writes import WebhookWrites
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.shard.admission.apibindings import ApiBindings
from atoll.shard.admission.apiconversions import ApiConversions
from atoll.shard.admission.apiexports import ApiExports
from atoll.shard.admission.apiresourceschemas import ApiResourceSchemas
from atoll.shard.admission.cachedresources import CachedEndpointSlices, CachedResourceReferences
from atoll.shard.admission.edgeplacements import EdgePlacements
from atoll.shard.admission.endpointslices import EndpointSlices
from atoll.shard.admission.export_identities import ExportIdentities
from atoll.shard.admission.gate import Gate
from atoll.shard.admission.kubernetes.own_rules import own_rules
from atoll.shard.admission.logicalclusters import LogicalClusters
from atoll.shard.admission.permission_claims import PermissionClaims
from atoll.shard.admission.placementslices import PlacementSlices
from atoll.shard.admission.replication import Replication
from atoll.shard.admission.reserved_names import PathAnnotation, ReservedDefinitions, ReservedNames
from atoll.shard.admission.shards import Shards
from atoll.shard.admission.statuscollectors import StatusCollectors
from atoll.shard.admission.system_metadata import SystemMetadata
from atoll.shard.admission.topology import ShardSelectors
from atoll.shard.admission.workspaces import May, Workspaces, WorkspaceTypes
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement


def plugins(
    facts: Lookups, may: May, may_here: May, escalation: EscalationCheck, catalogs: Catalogs, placement: ShardPlacement
) -> list[Plugin]:
    """Return the plug-ins of the admission chain: the gate and the machinery's first, then kcp's."""
    return [
        Gate(),
        NamespaceLifecycle(),
        DefinitionLifecycle(),
        BoundLifecycle(catalogs),
        RoleEscalation(escalation),
        Certificates(may_here),
        PolicyWrites(catalogs, may_here),
        WebhookWrites(),
        ReservedNames(),
        ReservedDefinitions(),
        PathAnnotation(),
        SystemMetadata(),
        LogicalClusters(),
        WorkspaceTypes(facts, may),
        Workspaces(facts, may, placement),
        ApiResourceSchemas(),
        ApiConversions(),
        ApiExports(),
        ApiBindings(facts, may),
        ShardSelectors(),
        ExportIdentities(may_here),
        EndpointSlices(facts, may),
        Shards(facts),
        CachedResourceReferences(catalogs, may_here),
        CachedEndpointSlices(facts, may),
        Replication(facts),
        PermissionClaims(),
        EdgePlacements(),
        PlacementSlices(),
        StatusCollectors(),
        *own_rules(),
        DryRunLimits(),
    ]
