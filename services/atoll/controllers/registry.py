"""Which controllers a shard runs. Order does not matter; each converges by itself."""

from __future__ import annotations

from atoll.controllers.bindings import BindingDeletion
from atoll.controllers.clusterroles import CLUSTER_ROLES, ClusterRoleAggregation
from atoll.controllers.customresourcedefinitions import CustomResourceDefinitionController
from atoll.controllers.defaults import CONFIG_MAPS, SERVICE_ACCOUNTS, NamespaceDefaults
from atoll.controllers.facts import Facts
from atoll.controllers.garbage import GarbageCollector
from atoll.controllers.logicalclusters import LogicalClusterDeletion
from atoll.controllers.namespaces import NamespaceController
from atoll.controllers.workspaces import WorkspaceController
from atoll.controllers.workspacetypes import WorkspaceTypeStatus
from atoll.machinery.apiserver.admission.namespaces import NAMESPACES
from atoll.machinery.apiserver.catalog import BINDINGS, CRDS
from atoll.machinery.apiserver.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.shapes import LOGICAL_CLUSTERS
from atoll.machinery.kcp.workspace import Shard
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType


def controllers(loopback: Loopback, facts: Facts, shard: Shard) -> list[Controller]:
    """Every controller, sharing one loopback identity with its own field manager each."""

    def kind(type: ResourceType) -> Kind:
        found = loopback.core.catalogs.base.of_type(type)
        assert found is not None, type
        return found

    def acting_as(manager: str) -> Loopback:
        return Loopback(loopback.core, manager)

    return [
        WorkspaceController(acting_as("kcp-workspace"), facts, shard),
        WorkspaceTypeStatus(acting_as("kcp-workspacetype"), facts, shard.external_url),
        LogicalClusterDeletion(acting_as("kcp-logicalcluster-deletion"), kind(LOGICAL_CLUSTERS)),
        BindingDeletion(acting_as("kcp-apibinding-deletion"), kind(BINDINGS)),
        NamespaceController(acting_as("namespace-controller"), kind(NAMESPACES)),
        NamespaceDefaults(
            acting_as("namespace-defaults"), kind(SERVICE_ACCOUNTS), kind(CONFIG_MAPS), shard.ca_bundle
        ),
        CustomResourceDefinitionController(acting_as("customresourcedefinition-controller"), kind(CRDS)),
        GarbageCollector(acting_as("garbage-collector")),
        ClusterRoleAggregation(acting_as("clusterrole-aggregation-controller"), kind(CLUSTER_ROLES)),
    ]
