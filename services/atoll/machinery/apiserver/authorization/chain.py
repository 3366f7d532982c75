"""The authorizer: kcp's chain of steps, top to bottom, over one snapshot.

The pipeline asks it for every request, reviews and impersonation for the questions of others. `STEPS` is the
whole order; a step that has nothing against a request passes it on, and only an ALLOW lets it in: a missing
workspace, role or answer is a refusal. Decisions are cached under the versions of every cluster they derive
from, which are read from the same snapshot, so a cached decision is the decision. Clusters on other shards count by
what those published: for questions that admission and views ask of them, never for requests into them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from atoll.machinery.apiserver.authorization import groups as names
from atoll.machinery.apiserver.authorization import rbac
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, Outcome, Step
from atoll.machinery.apiserver.authorization.effective_users import (
    EffectiveUser,
    EffectiveUsers,
    effective_users,
    for_policy,
    in_scope,
    is_service_account,
    user_key,
)
from atoll.machinery.apiserver.authorization.policy_cache import ClusterState, ExportRef, PolicyCache
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED
from atoll.machinery.apiserver.authorization.state_versions import StateVersion, StateVersions, is_local, is_remote
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, SYSTEM_ADMIN, is_system_cluster
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.user import User

ALWAYS_ALLOWED_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
#: Paths of the shard itself, outside any workspace: judged by the RBAC of `root`, as kcp judges /metrics.
SHARD_PATHS = frozenset(
    {"/metrics", "/version", "/openid/v1/jwks", "/.well-known/openid-configuration", "/openapi/v2", "/openapi/v3"}
)
_SHARD_OPENAPI = "/openapi/v3/"
MAX_DECISIONS = 8192

_OPEN_PHASES = frozenset({"Initializing", "Ready", "Inactive", "Terminating", "Deleting"})
_LIFECYCLE_PHASES = frozenset({"Initializing", "Terminating", "Deleting"})
_SYSTEM_STATUSES = frozenset({"apibindings", "apiexports"})
_REQUIRED_GROUPS_ALTERNATIVES = ((names.KCP_ADMIN,), (names.WORKSPACE_BOOTSTRAPPER,))
_EVERYTHING = rbac.Rule(("*",), ("*",), ("*",))
_EVERY_PATH = rbac.Rule(("*",), urls=("*",))
_MASTER = Decision(True, reason="allowed by group system:masters")

StepResult = tuple[Outcome, str]


class Evaluation:
    """One request on its way through the steps, with what they share. Lives for one decision."""

    def __init__(self, decider: Authorizer, snapshot: View, attributes: Attributes, deep: bool) -> None:
        self.attributes = attributes
        self.deep = deep
        self.shard_path = (
            not attributes.cluster
            and not attributes.wildcard
            and (attributes.path in SHARD_PATHS or attributes.path.startswith(_SHARD_OPENAPI))
        )
        self.cluster = ROOT if self.shard_path else attributes.cluster
        self.who: EffectiveUsers = effective_users(attributes.user, self.cluster)
        self.by_name = False
        #: Something was asked that no version tells of.
        self.passing = False
        self.versions: dict[str, StateVersion] = {}
        self._decider = decider
        self._snapshot = snapshot

    def state(self, cluster: str) -> ClusterState:
        """A cluster's state; the decision then depends on it.

        Nobody gets into a cluster here that lies elsewhere, whatever its own shard says of him: it is nothing here.
        """
        version = self._decider.versions.of(self._snapshot, cluster)
        self.versions[cluster] = version
        if is_remote(version) and cluster == self.cluster and not (self.deep or self.shard_path):
            return self._decider.policies.unknown(version)
        return self._decider.policies.state(self._snapshot, cluster, version)

    @property
    def here(self) -> ClusterState:
        return self.state(self.cluster)

    @property
    def bootstrap(self) -> ClusterState:
        return self.state(SYSTEM_ADMIN)

    def granted(self, cluster: str, who: Sequence[EffectiveUser], asked: Attributes) -> rbac.Grant | None:
        """A grant by the RBAC objects of one cluster, whose bindings may use roles of system:admin too."""
        policy, bootstrap = self.state(cluster).policy, self.bootstrap.policy
        match = rbac.first_match(policy, (policy, bootstrap), who, asked)
        self.by_name = self.by_name or match.by_name
        return match.grant

    def is_policed(self, export: ExportRef) -> bool | None:
        """Whether an export carries a maximal permission policy; None where one that may have one is not known here.

        One that is gone polices nothing, as in kcp. Of an export on another shard that cannot be told from one that has
        not arrived, or does not come here any more: then what it had when it was last seen counts, as the binding
        controller noted it on the bound definition.
        """
        state = self.state(export.cluster)
        if export.name in state.bound.policed:
            return True
        if export.name in state.bound.exports or is_local(state.version):
            return False
        self.passing = True
        bound = self._snapshot.get(bound_crds.key_of(export.schema)) if export.schema else None
        if bound is None or export.name not in bound_crds.policed_of(decode(bound.value)):
            return False
        return None

    def granted_anywhere(self, cluster: str, who: Sequence[EffectiveUser], asked: Attributes) -> bool:
        """Whether the RBAC of a cluster together with that of system:admin allows it."""
        return any(self.granted(of, who, asked) is not None for of in (SYSTEM_ADMIN, cluster))


def _always_allow_groups(evaluation: Evaluation) -> StepResult:
    """system:masters may do everything, but only where its scopes reach."""
    if evaluation.attributes.user.is_master and evaluation.who.in_scope:
        return Outcome.ALLOW, _MASTER.reason
    return Outcome.NEXT, ""


def _always_allow_paths(evaluation: Evaluation) -> StepResult:
    if evaluation.attributes.path in ALWAYS_ALLOWED_PATHS:
        return Outcome.ALLOW, "the path is always allowed"
    return Outcome.NEXT, ""


def _required_groups(evaluation: Evaluation) -> StepResult:
    """The LogicalCluster may name groups without which nobody gets in (`;` is or, `,` is and)."""
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if evaluation.shard_path:
        return Outcome.NEXT, "shard level path"
    if not evaluation.cluster:
        return Outcome.NO_OPINION, "empty cluster name"
    held = evaluation.who.groups
    if names.LOGICAL_CLUSTER_ADMIN in held:
        return Outcome.NEXT, "logical cluster admin access"
    if is_service_account(evaluation.attributes.user.name):
        return Outcome.NEXT, "service account access to logical cluster"
    if evaluation.here.phase is None:
        return Outcome.NO_OPINION, "logical cluster not found"
    if names.EXTERNAL_LOGICAL_CLUSTER_ADMIN in held:
        return Outcome.NEXT, "external logical cluster admin access"
    required = evaluation.here.required_groups
    if not required:
        return Outcome.NEXT, "logical cluster does not require groups"
    for clause in (*required, *_REQUIRED_GROUPS_ALTERNATIVES):
        if held.issuperset(clause):
            return Outcome.NEXT, f"user is subject to required groups: {','.join(clause)}"
    return Outcome.DENY, "user is not a member of the required groups"


def _content(evaluation: Evaluation) -> StepResult:
    """The door of the workspace: it exists, its phase lets people in, and the user has `access` on `/`."""
    if evaluation.shard_path:
        return Outcome.NEXT, "shard level path"
    if not evaluation.cluster or is_system_cluster(evaluation.cluster):
        return Outcome.NO_OPINION, "empty or system workspace"
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if names.LOGICAL_CLUSTER_ADMIN in evaluation.who.groups:
        return Outcome.NEXT, "logical cluster admin access"
    phase = evaluation.here.phase
    if phase is None:
        return Outcome.DENY, "LogicalCluster not found"
    if phase not in _OPEN_PHASES:
        return Outcome.NO_OPINION, f'not permitted due to phase "{phase}"'
    # Set by the shard's own lifecycle views after they judged the request; afterwards it means nothing.
    if phase in _LIFECYCLE_PHASES and any(names.is_lifecycle(group) for group in evaluation.who.own.groups):
        return Outcome.ALLOW, "lifecycle VW pre-authorized access"
    if is_service_account(evaluation.attributes.user.name) and evaluation.who.in_scope:
        return Outcome.NEXT, "local service account access"
    access = Attributes(user=evaluation.attributes.user, verb="access", path="/")
    if evaluation.granted_anywhere(evaluation.cluster, evaluation.who.identities, access):
        return Outcome.NEXT, "user logical cluster access"
    return Outcome.NO_OPINION, "no verb=access permission on /"


def _system_crds(evaluation: Evaluation) -> StepResult:
    """Statuses that only the system writes are closed even to administrators of the workspace."""
    asked = evaluation.attributes
    if asked.group == "apis.kcp.io" and asked.subresource == "status" and asked.resource in _SYSTEM_STATUSES:
        return Outcome.DENY, "status update not permitted"
    return Outcome.NEXT, "no system CRD"


def _maximal_permission_policy(evaluation: Evaluation) -> StepResult:
    """What the provider of a bound resource lets consumers do at most, by RBAC in the export's cluster."""
    asked = evaluation.attributes
    if evaluation.deep:
        return Outcome.NEXT, "deep SAR request"
    if not asked.is_resource:
        return Outcome.NEXT, "no resource request"
    export = evaluation.here.bound.resources.get((asked.group, asked.resource))
    if export is None:
        return Outcome.NEXT, "no relevant binding found"
    if not export.cluster:
        return Outcome.NO_OPINION, "the binding does not say where its export is"
    policed = evaluation.is_policed(export)
    if policed is None:
        return Outcome.NO_OPINION, f'API export "{export.cluster}|{export.name}" is not known here'
    if not policed:
        return Outcome.NEXT, f'no maximal permission policy in API export "{export.cluster}|{export.name}"'
    identities = for_policy(asked.user, evaluation.cluster, names.POLICY_PREFIX)
    if evaluation.granted_anywhere(export.cluster, identities, asked):
        return Outcome.NEXT, f'API export "{export.cluster}|{export.name}" policy'
    return Outcome.NO_OPINION, f'API export "{export.cluster}|{export.name}" policy: not permitted'


def _bootstrap(evaluation: Evaluation) -> StepResult:
    """RBAC objects of system:admin, which count in every workspace."""
    return _by_rbac(evaluation, SYSTEM_ADMIN)


def _local(evaluation: Evaluation) -> StepResult:
    """RBAC objects of the workspace itself."""
    if evaluation.here.is_remote:
        return Outcome.NEXT, ""
    return _by_rbac(evaluation, evaluation.cluster)


def _global(evaluation: Evaluation) -> StepResult:
    """RBAC objects that the shard of a workspace elsewhere published, for questions about it."""
    if not evaluation.here.is_remote:
        return Outcome.NEXT, ""
    return _by_rbac(evaluation, evaluation.cluster)


def _by_rbac(evaluation: Evaluation, cluster: str) -> StepResult:
    grant = evaluation.granted(cluster, evaluation.who.identities, evaluation.attributes)
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
_DOORS = frozenset({"01-requiredgroups", "02-content"})


class Rules(msgspec.Struct, frozen=True):
    """Everything a user may do in a namespace; `errors` name the roles that bindings refer to in vain."""

    rules: list[rbac.Rule]
    errors: list[str]


class _Cached(msgspec.Struct, frozen=True):
    decision: Decision
    versions: tuple[tuple[str, StateVersion], ...]


class Authorizer:
    """Decides for one shard. Synchronous, without I/O but for the snapshot's reads; one an event loop."""

    def __init__(self, max_decisions: int = MAX_DECISIONS) -> None:
        self.versions = StateVersions()
        self.policies = PolicyCache()
        self._decisions: LruCache[Hashable, _Cached] = LruCache(max_decisions)

    def authorize(self, snapshot: View, attributes: Attributes, *, deep: bool = False) -> Decision:
        """Decide by what the snapshot holds; never by an overlay of unwritten changes.

        `deep` is kcp's deep access review: required groups, the workspace's door and maximal permission
        policies are skipped. Callers pass it only for requests of system:masters (`reviews.is_deep`).
        """
        user = attributes.user
        if user.is_master and not user.extra:
            return _MASTER
        key = (
            user_key(user),
            attributes.cluster,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.namespace,
            attributes.path,
            attributes.wildcard,
            deep,
        )
        cached = self._decisions.get(key)
        if cached is not None and self._holds(snapshot, cached):
            return cached.decision
        evaluation = Evaluation(self, snapshot, attributes, deep)
        decision = _decide(evaluation)
        if not evaluation.by_name and not evaluation.passing:
            self._decisions.put(key, _Cached(decision, tuple(evaluation.versions.items())))
        return decision

    def permits(self, snapshot: View, attributes: Attributes, cluster: str, export: str) -> bool:
        """Whether the maximal permission policy of an export, in its own cluster, lets a request be.

        One without a policy, and one that is gone, forbid nothing. One that is not known here permits nothing.
        """
        evaluation = Evaluation(self, snapshot, attributes, True)
        state = evaluation.state(cluster)
        if state.is_remote and export not in state.bound.exports:
            return False
        if export not in state.bound.policed:
            return True
        identities = for_policy(attributes.user, attributes.cluster, names.POLICY_PREFIX)
        return evaluation.granted_anywhere(cluster, identities, attributes)

    def _holds(self, snapshot: View, cached: _Cached) -> bool:
        of = self.versions.of
        for cluster, version in cached.versions:  # noqa: SIM110  (the hot path: no generator)
            if of(snapshot, cluster) != version:
                return False
        return True

    def rules(self, snapshot: View, user: User, cluster: str, namespace: str) -> Rules:
        """What the user may do in the cluster, cluster wide and in the namespace ("": cluster wide alone)."""
        if user.is_master and in_scope(user, cluster):
            return Rules([_EVERYTHING, _EVERY_PATH], [])
        identities = effective_users(user, cluster).identities
        local, bootstrap = self._policy(snapshot, cluster), self._policy(snapshot, SYSTEM_ADMIN)
        first, missing = rbac.rules_of(bootstrap, (bootstrap,), identities, namespace)
        second, missing_too = rbac.rules_of(local, (local, bootstrap), identities, namespace)
        return Rules(list(dict.fromkeys([*first, *second])), [*missing, *missing_too])

    def _policy(self, snapshot: View, cluster: str) -> rbac.Policy:
        return self.policies.state(snapshot, cluster, self.versions.of(snapshot, cluster)).policy


def _decide(evaluation: Evaluation) -> Decision:
    said: list[Step] = []
    for name, step in STEPS:
        outcome, reason = step(evaluation)
        said.append(Step(name, outcome, reason))
        if outcome is not Outcome.NEXT:
            break
    last = said[-1]
    if last.outcome is Outcome.ALLOW:
        return Decision(True, reason=last.reason, steps=tuple(said))
    reason = WORKSPACE_ACCESS_NOT_PERMITTED if last.name in _DOORS else ACCESS_DENIED
    return Decision(False, last.outcome is Outcome.DENY, reason, tuple(said))
