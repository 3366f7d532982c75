"""Which controllers a shard runs. Order does not matter; each converges by itself."""

from __future__ import annotations

from atoll.controllers.accounttokens import AccountTokens
from atoll.controllers.bindings import BindingDeletion
from atoll.controllers.clusterroles import ClusterRoleAggregation
from atoll.controllers.customresourcedefinitions import CustomResourceDefinitionController
from atoll.controllers.defaults import NamespaceDefaults
from atoll.controllers.facts import Facts
from atoll.controllers.garbage import GarbageCollector
from atoll.controllers.lifecycle import LogicalClusterLifecycle
from atoll.controllers.logicalclusters import LogicalClusterDeletion
from atoll.controllers.mounts import MountController
from atoll.controllers.namespaces import NamespaceController
from atoll.controllers.workspaces import WorkspaceController
from atoll.controllers.workspacetypes import WorkspaceTypeStatus
from atoll.machinery.apiserver.authentication.issuing import TokenIssuer
from atoll.machinery.apiserver.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.workspace import Shard
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import (
    API_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    LOGICAL_CLUSTERS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
)


def controllers(loopback: Loopback, facts: Facts, shard: Shard, issuer: TokenIssuer) -> list[Controller]:
    """Every controller, sharing one loopback identity with its own field manager each."""

    def kind(type: ResourceType) -> Kind:
        found = loopback.core.catalogs.base.of_type(type)
        assert found is not None, type
        return found

    def acting_as(manager: str) -> Loopback:
        return Loopback(loopback.core, manager)

    return [
        WorkspaceController(acting_as("kcp-workspace"), facts, shard),
        MountController(acting_as("kcp-workspacemounts"), facts),
        WorkspaceTypeStatus(acting_as("kcp-workspacetype"), facts, shard.external_url),
        LogicalClusterLifecycle(acting_as("kcp-logicalcluster"), kind(LOGICAL_CLUSTERS)),
        LogicalClusterDeletion(
            acting_as("kcp-logicalcluster-deletion"), kind(LOGICAL_CLUSTERS), facts.identities.workspaces
        ),
        BindingDeletion(acting_as("kcp-apibinding-deletion"), kind(API_BINDINGS)),
        NamespaceController(acting_as("namespace-controller"), kind(NAMESPACES)),
        NamespaceDefaults(
            acting_as("namespace-defaults"), kind(SERVICE_ACCOUNTS), kind(CONFIG_MAPS), shard.ca_bundle
        ),
        AccountTokens(acting_as("tokens-controller"), kind(SECRETS), issuer, shard.ca_bundle),
        CustomResourceDefinitionController(acting_as("customresourcedefinition-controller"), kind(CRDS)),
        GarbageCollector(acting_as("garbage-collector")),
        ClusterRoleAggregation(acting_as("clusterrole-aggregation-controller"), kind(CLUSTER_ROLES)),
    ]
