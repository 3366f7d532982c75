"""RBAC, pure: rules, grants and a cluster's policy indexed by subject.

`policy_cache` compiles policies out of stored objects; the chain asks `first_match`, reviews and escalation
checks ask `rules_of`. Rights only add up; a role that is missing grants nothing. Nothing here does I/O.
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
        """Whether it allows the request, names left aside."""
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
    """What one subject of one binding gets: a role, to be looked up when it is used."""

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
    """Grants by user name (service accounts by theirs) and by group."""

    users: Mapping[str, tuple[Grant, ...]] = {}
    groups: Mapping[str, tuple[Grant, ...]] = {}

    def grants(self, identities: Iterable[EffectiveUser]) -> Iterator[Grant]:
        """Grants of any of the identities; one that several subjects give may come more than once."""
        for identity in identities:
            yield from self.users.get(identity.name, ())
            for group in identity.groups:
                yield from self.groups.get(group, ())


class Policy(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A logical cluster's RBAC. `roles` is keyed by namespace and name; `weight` counts rules and grants."""

    cluster_roles: Mapping[str, tuple[Rule, ...]]
    roles: Mapping[tuple[str, str], tuple[Rule, ...]]
    cluster: Subjects
    namespaces: Mapping[str, Subjects]
    weight: int

    def grants(self, identities: Sequence[EffectiveUser], namespace: str) -> Iterator[Grant]:
        """Cluster wide grants first, then those of the namespace, as Kubernetes visits them."""
        yield from self.cluster.grants(identities)
        if namespace and (subjects := self.namespaces.get(namespace)) is not None:
            yield from subjects.grants(identities)


class Match(msgspec.Struct, frozen=True):
    """Outcome of a search. `by_name`: another object name could have another outcome."""

    grant: Grant | None
    by_name: bool


def role_rules(grant: Grant, roles_of: Sequence[Policy]) -> tuple[Rule, ...] | None:
    """Rules of a grant's role in the first policy that has it; None where none has."""
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
    policy: Policy, roles_of: Sequence[Policy], identities: Sequence[EffectiveUser], attributes: Attributes
) -> Match:
    """The first grant of `policy` that allows the request, its role looked up in `roles_of` in order.

    A grant that needs no particular object name is preferred, because its answer can be reused.
    """
    by_name: Grant | None = None
    asked_names = False
    for grant in policy.grants(identities, attributes.namespace):
        for rule in role_rules(grant, roles_of) or ():
            if not rule.matches_kind(attributes):
                continue
            if not rule.names or attributes.path:
                return Match(grant, by_name=False)
            asked_names = True
            if by_name is None and attributes.name in rule.names:
                by_name = grant
    return Match(by_name, asked_names)


def rules_of(
    policy: Policy, roles_of: Sequence[Policy], identities: Sequence[EffectiveUser], namespace: str
) -> tuple[list[Rule], list[str]]:
    """Every rule the identities hold cluster wide and in the namespace ("" for cluster wide alone).

    Also the names of roles that bindings refer to and that are missing, as Kubernetes' messages name them.
    """
    rules: dict[Rule, None] = {}
    missing: dict[str, None] = {}
    for grant in policy.grants(identities, namespace):
        found = role_rules(grant, roles_of)
        if found is None:
            resource = "clusterroles" if grant.role_kind == CLUSTER_ROLE else "roles"
            missing[f"{resource}.rbac.authorization.k8s.io {quoted(grant.role)} not found"] = None
        rules.update(dict.fromkeys(found or ()))
    return list(rules), list(missing)
