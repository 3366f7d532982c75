"""Compiles stored RBAC objects to a policy.

`policy_cache` calls `compile_policy` with the objects of a cluster. Invariant: only the fields that decide are read
(names, rules, subjects, role references), so clusters with the same RBAC compile from equal input and share one policy,
independent of the uids and times in their objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from atoll.machinery.apiserver.authorization.rbac import Grant, Policy, Rule, Subjects
from atoll.machinery.apiserver.authorization.refusal import quoted
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.partial import ObjectName
from atoll.machinery.meta.user import SERVICE_ACCOUNT_PREFIX


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: tuple[str, ...] | None = None
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None
    non_resource_urls: tuple[str, ...] | None = msgspec.field(default=None, name="nonResourceURLs")


class Role(msgspec.Struct, frozen=True):
    """A Role or ClusterRole, reduced to the fields that decide."""

    metadata: ObjectName
    rules: tuple[_Rule, ...] | None = None


class _Subject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _RoleRef(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, frozen=True, rename="camel"):
    """A RoleBinding or ClusterRoleBinding, reduced to the fields that decide."""

    metadata: ObjectName
    role_ref: _RoleRef
    subjects: tuple[_Subject, ...] | None = None


class Source(msgspec.Struct, frozen=True):
    """All RBAC of one logical cluster, each list in key order."""

    cluster_roles: tuple[Role, ...] = ()
    cluster_role_bindings: tuple[Binding, ...] = ()
    roles: tuple[Role, ...] = ()
    role_bindings: tuple[Binding, ...] = ()


role_decoder = msgspec.json.Decoder(Role)
binding_decoder = msgspec.json.Decoder(Binding)


def rules_from(rules: Iterable[_Rule] | None) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            rule.verbs or (),
            rule.api_groups or (),
            rule.resources or (),
            rule.resource_names or (),
            rule.non_resource_urls or (),
        )
        for rule in rules or ()
    )


def rules_of_objects(rules: Sequence[Object]) -> tuple[Rule, ...]:
    """The PolicyRules in an object of another kind."""
    return rules_from(msgspec.convert(rules, tuple[_Rule, ...]))


def compile_policy(source: Source) -> Policy:
    """Index a cluster's RBAC by subject."""
    cluster_roles = {role.metadata.name: rules_from(role.rules) for role in source.cluster_roles}
    roles = {(r.metadata.namespace, r.metadata.name): rules_from(r.rules) for r in source.roles}
    by_namespace: dict[str, list[Binding]] = defaultdict(list)
    for binding in source.role_bindings:
        by_namespace[binding.metadata.namespace].append(binding)
    grants = sum(len(b.subjects or ()) for b in (*source.cluster_role_bindings, *source.role_bindings))
    rules = sum(map(len, cluster_roles.values())) + sum(map(len, roles.values()))
    return Policy(
        cluster_roles,
        roles,
        _index("ClusterRoleBinding", source.cluster_role_bindings),
        {namespace: _index("RoleBinding", bindings) for namespace, bindings in by_namespace.items()},
        1 + grants + rules + len(cluster_roles) + len(roles),
    )


def _index(kind: str, bindings: Iterable[Binding]) -> Subjects:
    users: dict[str, list[Grant]] = defaultdict(list)
    groups: dict[str, list[Grant]] = defaultdict(list)
    for binding in bindings:
        namespace = binding.metadata.namespace
        for subject in binding.subjects or ():
            grant = Grant(
                kind,
                binding.metadata.name,
                namespace,
                binding.role_ref.kind,
                binding.role_ref.name,
                _description(subject, namespace),
            )
            if subject.kind == "Group":
                groups[subject.name].append(grant)
            elif user := _user_name(subject, namespace):
                users[user].append(grant)
    return Subjects(
        {name: tuple(grants) for name, grants in users.items()},
        {name: tuple(grants) for name, grants in groups.items()},
    )


def _user_name(subject: _Subject, namespace: str) -> str:
    """The user name of a subject; "", which matches no user, for unknown kinds and accounts without a namespace."""
    if subject.kind == "User":
        return subject.name
    namespace = subject.namespace or namespace
    if subject.kind == "ServiceAccount" and namespace:
        return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{subject.name}"
    return ""


def _description(subject: _Subject, namespace: str) -> str:
    if subject.kind != "ServiceAccount":
        return f"{subject.kind} {quoted(subject.name)}"
    return f"ServiceAccount {quoted(subject.name + '/' + (subject.namespace or namespace))}"
