"""The order of admission in a shard."""

from __future__ import annotations

from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.admission.certificates import Certificates
from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.admission.definitions import DefinitionLifecycle
from atoll.machinery.apiserver.admission.namespaces import NamespaceLifecycle
from atoll.machinery.apiserver.admission.rbac import EscalationCheck, RoleEscalation
from atoll.shard.admission.apis import ApiBindings, ApiResourceSchemas
from atoll.shard.admission.gate import Gate
from atoll.shard.admission.logicalclusters import LogicalClusters
from atoll.shard.admission.reserved import PathAnnotation, ReservedDefinitions, ReservedNames
from atoll.shard.admission.workspaces import May, Workspaces, WorkspaceTypes


def plugins(facts: Facts, may: May, may_here: May, escalation: EscalationCheck) -> Admission:
    """Namespaces first, as nothing else matters where nothing may be; then kcp's own."""
    return Admission([
        Gate(),
        NamespaceLifecycle(),
        DefinitionLifecycle(),
        RoleEscalation(escalation),
        Certificates(may_here),
        ReservedNames(),
        ReservedDefinitions(),
        PathAnnotation(),
        LogicalClusters(),
        WorkspaceTypes(facts, may),
        Workspaces(facts, may),
        ApiResourceSchemas(),
        ApiBindings(facts, may),
    ])  # fmt: skip
