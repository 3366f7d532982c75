"""kcp's chain of authorizers: the steps of one decision, top to bottom, over one snapshot.

`authorizer` calls `decide`. `STEPS` is the whole order. A step returns NEXT to pass the request on; only an ALLOW
admits it. Invariant: a missing workspace, role or answer is a refusal. Clusters on other shards are decided by the
objects that those published, for questions of admission and views about them, never for requests into them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from atoll.machinery.apiserver.authorization import groups as names
from atoll.machinery.apiserver.authorization import rbac
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, Outcome, Step
from atoll.machinery.apiserver.authorization.effective_users import (
    EffectiveUser,
    EffectiveUsers,
    effective_users,
    for_policy,
)
from atoll.machinery.apiserver.authorization.policy_cache import ClusterState, ExportRef, PolicyCache
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED
from atoll.machinery.apiserver.authorization.state_versions import StateVersion, StateVersions, is_local, is_remote
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta.names import ROOT, SYSTEM_ADMIN, is_system_cluster
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.user import is_service_account
from atoll.machinery.meta.wellknown import CORE_GROUP, SINGLETON

ALWAYS_ALLOWED_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
#: Paths of the shard itself, outside any workspace. The RBAC of `root` decides, as in kcp for /metrics.
SHARD_PATHS = frozenset(
    {"/metrics", "/version", "/openid/v1/jwks", "/.well-known/openid-configuration", "/openapi/v2", "/openapi/v3"}
)
_SHARD_OPENAPI = "/openapi/v3/"
MASTER = Decision(True, reason="allowed by group system:masters", lasting=True)

_OPEN_PHASES = frozenset({"Initializing", "Ready", "Inactive", "Terminating", "Deleting"})
_LIFECYCLE_PHASES = frozenset({"Initializing", "Terminating", "Deleting"})
_SYSTEM_STATUSES = frozenset({"apibindings", "apiexports"})
_REQUIRED_GROUPS_ALTERNATIVES = ((names.KCP_ADMIN,), (names.WORKSPACE_BOOTSTRAPPER,))

StepResult = tuple[Outcome, str]


class Depth(IntEnum):
    """What is decided. An integer: it is part of the key of each cached decision."""

    #: A request, which the cluster's own shard serves.
    REQUEST = 0
    #: A question about a cluster, which may be of another shard.
    QUESTION = 1
    #: kcp's deep access review: a question that skips the steps which guard a workspace.
    DEEP = 2


class Evaluation:
    """One request in the chain and the state that its steps share. Lives for one decision."""

    def __init__(
        self, versions: StateVersions, policies: PolicyCache, snapshot: View, attributes: Attributes, depth: Depth
    ) -> None:
        self.attributes, self.deep, self._anywhere = attributes, depth is Depth.DEEP, depth is not Depth.REQUEST
        self.shard_path = (
            not attributes.cluster
            and not attributes.wildcard
            and (attributes.path in SHARD_PATHS or attributes.path.startswith(_SHARD_OPENAPI))
        )
        self.cluster = ROOT if self.shard_path else attributes.cluster
        self.effective: EffectiveUsers = effective_users(attributes.user, self.cluster)
        #: The decision may differ for another object name.
        self.by_name = False
        #: The decision derives from something that no version covers.
        self.unversioned = False
        self.versions: dict[str, StateVersion] = {}
        self._states: dict[str, ClusterState] = {}
        self._state_versions, self._policies, self._snapshot = versions, policies, snapshot

    def state(self, cluster: str) -> ClusterState:
        """A cluster's state; the decision then depends on it.

        For a request into a cluster of another shard the state is empty, whatever that shard published of it; for a
        question about one it is what was published.
        """
        found = self._states.get(cluster)
        if found is None:
            version = self.versions[cluster] = self._state_versions.of(self._snapshot, cluster)
            if is_remote(version) and cluster == self.cluster and not (self._anywhere or self.shard_path):
                found = self._policies.unknown(version)
            else:
                found = self._policies.state(self._snapshot, cluster, version)
            self._states[cluster] = found
        return found

    @property
    def target(self) -> ClusterState:
        """The state of the request's cluster."""
        return self.state(self.cluster)

    def granted(self, cluster: str, users: Sequence[EffectiveUser], attributes: Attributes) -> rbac.Grant | None:
        """A grant by the RBAC objects of one cluster, whose bindings may use roles of system:admin too."""
        policy, bootstrap = self.state(cluster).policy, self.state(SYSTEM_ADMIN).policy
        match = rbac.first_match(policy, (policy, bootstrap), users, attributes)
        self.by_name = self.by_name or match.by_name
        return match.grant

    def granted_anywhere(self, cluster: str, users: Sequence[EffectiveUser], attributes: Attributes) -> bool:
        """Return whether the RBAC of a cluster or of system:admin grants it."""
        return any(self.granted(of, users, attributes) is not None for of in (SYSTEM_ADMIN, cluster))

    def has_access(self) -> bool:
        """Return whether the user may enter the cluster: `access` on the path `/`, or on its LogicalCluster.

        The LogicalCluster has one name, so a rule with resourceNames leaves the decision the same for every object.
        """
        by_name, user, users = self.by_name, self.attributes.user, self.effective.users
        path = Attributes(user=user, verb="access", path="/")
        if self.granted_anywhere(self.cluster, users, path):
            return True
        cluster = Attributes(user=user, verb="access", group=CORE_GROUP, resource="logicalclusters", name=SINGLETON)
        granted = self.granted_anywhere(self.cluster, users, cluster)
        self.by_name = by_name
        return granted

    def has_policy(self, export: ExportRef) -> bool | None:
        """Return whether an export has a maximal permission policy; None for an absent export that had one.

        As in kcp, a deleted export restricts nothing. An export of another shard may be deleted, not have arrived yet,
        or no longer be replicated here: it counts with the policy that the binding controller noted on the bound
        definition.
        """
        state = self.state(export.cluster)
        if export.name in state.bound.policed:
            return True
        if export.name in state.bound.exports or is_local(state.version):
            return False
        self.unversioned = True
        bound = self._snapshot.get(bound_crds.key_of(export.schema)) if export.schema else None
        if bound is None or export.name not in bound_crds.policed_of(decode(bound.value)):
            return False
        return None


def _always_allow_groups(evaluation: Evaluation) -> StepResult:
    """system:masters may do everything within its scopes."""
    if evaluation.attributes.user.is_master and evaluation.effective.in_scope:
        return Outcome.ALLOW, MASTER.reason
    return Outcome.NEXT, ""


def _always_allow_paths(evaluation: Evaluation) -> StepResult:
    if evaluation.attributes.path in ALWAYS_ALLOWED_PATHS:
        return Outcome.ALLOW, "the path is always allowed"
    return Outcome.NEXT, ""


def _required_groups(evaluation: Evaluation) -> StepResult:
    """The LogicalCluster may require groups of every user (`;` is or, `,` is and)."""
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if evaluation.shard_path:
        return Outcome.NEXT, "shard level path"
    if not evaluation.cluster:
        return Outcome.NO_OPINION, "empty cluster name"
    held = evaluation.effective.groups
    if names.LOGICAL_CLUSTER_ADMIN in held:
        return Outcome.NEXT, "logical cluster admin access"
    if is_service_account(evaluation.attributes.user.name):
        return Outcome.NEXT, "service account access to logical cluster"
    if evaluation.target.phase is None:
        return Outcome.NO_OPINION, "logical cluster not found"
    if names.EXTERNAL_LOGICAL_CLUSTER_ADMIN in held:
        return Outcome.NEXT, "external logical cluster admin access"
    required = evaluation.target.required_groups
    if not required:
        return Outcome.NEXT, "logical cluster does not require groups"
    for clause in (*required, *_REQUIRED_GROUPS_ALTERNATIVES):
        if held.issuperset(clause):
            return Outcome.NEXT, f"user is subject to required groups: {','.join(clause)}"
    return Outcome.DENY, "user is not a member of the required groups"


def _content(evaluation: Evaluation) -> StepResult:
    """Access to the workspace: it exists, its phase admits requests, and the user has the verb `access`."""
    if evaluation.shard_path:
        return Outcome.NEXT, "shard level path"
    if not evaluation.cluster or is_system_cluster(evaluation.cluster):
        return Outcome.NO_OPINION, "empty or system workspace"
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if names.LOGICAL_CLUSTER_ADMIN in evaluation.effective.groups:
        return Outcome.NEXT, "logical cluster admin access"
    phase = evaluation.target.phase
    if phase is None:
        return Outcome.DENY, "LogicalCluster not found"
    if phase not in _OPEN_PHASES:
        return Outcome.NO_OPINION, f'not permitted due to phase "{phase}"'
    # The shard's own lifecycle views add the group after they authorized the request.
    if phase in _LIFECYCLE_PHASES and any(names.is_lifecycle(group) for group in evaluation.effective.own.groups):
        return Outcome.ALLOW, "lifecycle VW pre-authorized access"
    if is_service_account(evaluation.attributes.user.name) and evaluation.effective.in_scope:
        return Outcome.NEXT, "local service account access"
    if evaluation.has_access():
        return Outcome.NEXT, "user logical cluster access"
    return Outcome.NO_OPINION, "no verb=access permission on /"


def _system_crds(evaluation: Evaluation) -> StepResult:
    """Statuses that only the system writes are refused even to administrators of the workspace."""
    attributes = evaluation.attributes
    if (
        attributes.group == "apis.kcp.io"
        and attributes.subresource == "status"
        and attributes.resource in _SYSTEM_STATUSES
    ):
        return Outcome.DENY, "status update not permitted"
    return Outcome.NEXT, "no system CRD"


def _maximal_permission_policy(evaluation: Evaluation) -> StepResult:
    """The provider of a bound resource limits its consumers by RBAC in the export's cluster."""
    attributes = evaluation.attributes
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if not attributes.is_resource:
        return Outcome.NEXT, "no resource request"
    export = evaluation.target.bound.resources.get((attributes.group, attributes.resource))
    if export is None:
        return Outcome.NEXT, "no relevant binding found"
    if not export.cluster:
        return Outcome.NO_OPINION, "the binding does not say where its export is"
    has_policy = evaluation.has_policy(export)
    if has_policy is None:
        return Outcome.NO_OPINION, f'API export "{export.cluster}|{export.name}" is not known here'
    if not has_policy:
        return Outcome.NEXT, f'no maximal permission policy in API export "{export.cluster}|{export.name}"'
    users = for_policy(attributes.user, evaluation.cluster, names.POLICY_PREFIX)
    if evaluation.granted_anywhere(export.cluster, users, attributes):
        return Outcome.NEXT, f'API export "{export.cluster}|{export.name}" policy'
    return Outcome.NO_OPINION, f'API export "{export.cluster}|{export.name}" policy: not permitted'


def _bootstrap(evaluation: Evaluation) -> StepResult:
    """RBAC objects of system:admin, which apply in every workspace."""
    return _by_rbac(evaluation, SYSTEM_ADMIN)


def _local(evaluation: Evaluation) -> StepResult:
    """RBAC objects of the workspace itself."""
    if evaluation.target.is_remote:
        return Outcome.NEXT, ""
    return _by_rbac(evaluation, evaluation.cluster)


def _global(evaluation: Evaluation) -> StepResult:
    """RBAC objects that another shard published, for questions about one of its workspaces."""
    if not evaluation.target.is_remote:
        return Outcome.NEXT, ""
    return _by_rbac(evaluation, evaluation.cluster)


def _by_rbac(evaluation: Evaluation, cluster: str) -> StepResult:
    grant = evaluation.granted(cluster, evaluation.effective.users, evaluation.attributes)
    return (Outcome.NEXT, "") if grant is None else (Outcome.ALLOW, str(grant))


STEPS: tuple[tuple[str, Callable[[Evaluation], StepResult]], ...] = (
    ("masters", _always_allow_groups),
    ("paths", _always_allow_paths),
    ("01-requiredgroups", _required_groups),
    ("02-content", _content),
    ("03-systemcrd", _system_crds),
    ("04-maxpermissionpolicy", _maximal_permission_policy),
    ("05-bootstrap", _bootstrap),
    ("05-local", _local),
    ("05-global", _global),
)
_WORKSPACE_STEPS = frozenset({"01-requiredgroups", "02-content"})


def decide(evaluation: Evaluation) -> Decision:
    """Run the steps until one does not return NEXT."""
    steps: list[Step] = []
    for name, step in STEPS:
        outcome, reason = step(evaluation)
        steps.append(Step(name, outcome, reason))
        if outcome is not Outcome.NEXT:
            break
    last, lasting = steps[-1], not evaluation.by_name and not evaluation.unversioned
    if last.outcome is Outcome.ALLOW:
        return Decision(True, reason=last.reason, steps=tuple(steps), lasting=lasting)
    reason = WORKSPACE_ACCESS_NOT_PERMITTED if last.name in _WORKSPACE_STEPS else ACCESS_DENIED
    return Decision(False, last.outcome is Outcome.DENY, reason, tuple(steps), lasting)
