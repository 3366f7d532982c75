"""RBAC: rules, grants, and the policy of a cluster indexed by subject. Pure.

`policy_cache` compiles policies from stored objects; the chain calls `first_match`, reviews and escalation checks call
`rules_of`. Invariant: rights only add up; a missing role grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.effective_users import EffectiveUser
from atoll.machinery.apiserver.authorization.refusal import quoted

ALL = "*"
CLUSTER_ROLE = "ClusterRole"
ROLE = "Role"


class Rule(msgspec.Struct, frozen=True):
    """One PolicyRule. `names` empty means every name; `urls` are paths, exact or with a trailing `*`."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def matches_kind(self, attributes: Attributes) -> bool:
        """Return whether the rule allows the request, apart from object names."""
        if attributes.verb not in self.verbs and ALL not in self.verbs:
            return False
        if attributes.path:
            return any(_url_matches(url, attributes.path) for url in self.urls)
        if attributes.group not in self.groups and ALL not in self.groups:
            return False
        return self._matches_resource(attributes)

    def _matches_resource(self, attributes: Attributes) -> bool:
        resources = self.resources
        if ALL in resources or attributes.resource_path in resources:
            return True
        return bool(attributes.subresource) and f"*/{attributes.subresource}" in resources


def _url_matches(pattern: str, path: str) -> bool:
    return pattern in (path, ALL) or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


class Grant(msgspec.Struct, frozen=True):
    """The role that one binding grants to one subject. The role is looked up on use."""

    binding_kind: str
    binding: str
    namespace: str
    role_kind: str
    role: str
    subject: str

    def __str__(self) -> str:
        binding = f"{self.binding}/{self.namespace}" if self.namespace else self.binding
        return (
            f"RBAC: allowed by {self.binding_kind} {quoted(binding)} of {self.role_kind} {quoted(self.role)}"
            f" to {self.subject}"
        )


class Subjects(msgspec.Struct, frozen=True):
    """Grants by user name, including those of service accounts, and by group."""

    users: Mapping[str, tuple[Grant, ...]] = {}
    groups: Mapping[str, tuple[Grant, ...]] = {}

    def grants(self, users: Iterable[EffectiveUser]) -> Iterator[Grant]:
        """Grants to any of the users. A grant may repeat."""
        for user in users:
            yield from self.users.get(user.name, ())
            for group in user.groups:
                yield from self.groups.get(group, ())


class Policy(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A logical cluster's RBAC. `roles` is keyed by namespace and name; `weight` counts rules and grants."""

    cluster_roles: Mapping[str, tuple[Rule, ...]]
    roles: Mapping[tuple[str, str], tuple[Rule, ...]]
    cluster: Subjects
    namespaces: Mapping[str, Subjects]
    weight: int

    def grants(self, users: Sequence[EffectiveUser], namespace: str) -> Iterator[Grant]:
        """Cluster-wide grants first, then those of the namespace, in Kubernetes' order."""
        yield from self.cluster.grants(users)
        if namespace and (subjects := self.namespaces.get(namespace)) is not None:
            yield from subjects.grants(users)


class UserRules(msgspec.Struct, frozen=True):
    """All rules of a user; `errors` are Kubernetes' messages for roles that bindings refer to and that are missing."""

    rules: list[Rule]
    errors: list[str]


class Match(msgspec.Struct, frozen=True):
    """The result of a search. `by_name`: the result may differ for another object name."""

    grant: Grant | None
    by_name: bool


def role_rules(grant: Grant, roles_of: Sequence[Policy]) -> tuple[Rule, ...] | None:
    """The rules of a grant's role in the first policy that has the role; None if none has."""
    if grant.role_kind not in (CLUSTER_ROLE, ROLE):
        return None
    for policy in roles_of:
        if grant.role_kind == CLUSTER_ROLE:
            rules = policy.cluster_roles.get(grant.role)
        else:
            rules = policy.roles.get((grant.namespace, grant.role))
        if rules is not None:
            return rules
    return None


def first_match(
    policy: Policy, roles_of: Sequence[Policy], users: Sequence[EffectiveUser], attributes: Attributes
) -> Match:
    """The first grant of `policy` that allows the request, its role looked up in `roles_of` in order.

    A grant for all object names is preferred, because its result can be cached.
    """
    by_name: Grant | None = None
    depends_on_name = False
    for grant in policy.grants(users, attributes.namespace):
        for rule in role_rules(grant, roles_of) or ():
            if not rule.matches_kind(attributes):
                continue
            if not rule.names or attributes.path:
                return Match(grant, by_name=False)
            depends_on_name = True
            if by_name is None and attributes.name in rule.names:
                by_name = grant
    return Match(by_name, depends_on_name)


def rules_of(policy: Policy, roles_of: Sequence[Policy], users: Sequence[EffectiveUser], namespace: str) -> UserRules:
    """The rules that the users hold in the cluster and in the namespace ("": in the cluster alone)."""
    rules: dict[Rule, None] = {}
    missing: dict[str, None] = {}
    for grant in policy.grants(users, namespace):
        found = role_rules(grant, roles_of)
        if found is None:
            resource = "clusterroles" if grant.role_kind == CLUSTER_ROLE else "roles"
            missing[f"{resource}.rbac.authorization.k8s.io {quoted(grant.role)} not found"] = None
        rules.update(dict.fromkeys(found or ()))
    return UserRules(list(rules), list(missing))
