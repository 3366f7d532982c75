"""Escalation and bind checks of RBAC writes: no author grants rights that the author does not hold.

Admission calls `check_role_write` and `check_binding_write` for every create and update of the four RBAC kinds, after
the write itself was authorized. As in Kubernetes, system:masters is exempt, and so is an author with the verb
`escalate` (roles) or `bind` (bindings) on the object.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import in_scope
from atoll.machinery.apiserver.authorization.rbac import ALL, CLUSTER_ROLE, Rule
from atoll.machinery.apiserver.authorization.rbac_objects import Role, rules_from
from atoll.machinery.apiserver.authorization.refusal import quoted, quoted_list
from atoll.machinery.apiserver.authorization.state_versions import RBAC_GROUP
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.names import SYSTEM_ADMIN, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Details, Forbidden, NotFound
from atoll.machinery.meta.types import CLUSTER_ROLES, ROLES
from atoll.machinery.meta.user import User

_FULL_AUTHORITY = (Rule((ALL,), (ALL,), (ALL,)), Rule((ALL,), urls=(ALL,)))
_RESOURCES = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}
#: Comparisons of a rule with a held one that one write may take; one takes some 2 us. What is left then is refused.
MAX_COMPARISONS = 50_000


class Author(msgspec.Struct, frozen=True):
    """The author of a write, its cluster, and the authorizer that knows the author's rights."""

    authorizer: Authorizer
    snapshot: View
    user: User
    cluster: str

    @property
    def exempt(self) -> bool:
        return self.user.is_master and in_scope(self.user, self.cluster)

    def may(self, verb: str, resource: str, namespace: str, name: str) -> bool:
        attributes = Attributes(
            user=self.user,
            verb=verb,
            cluster=self.cluster,
            group=RBAC_GROUP,
            version="v1",
            resource=resource,
            namespace=namespace,
            name=name,
        )
        return self.authorizer.authorize(self.snapshot, attributes).allowed


def check_role_write(author: Author, role: Object, old: Object | None = None) -> None:
    """Raise Forbidden for a Role or ClusterRole (new, or changed from `old`) with rules that its author does not hold.

    An aggregationRule includes roles of the future, so it requires full authority.
    """
    if author.exempt or (old is not None and _removes_owners_only(role, old)):
        return
    resource, namespace = _RESOURCES[role["kind"]], role["metadata"].get("namespace", "")
    if author.may("escalate", resource, namespace, role["metadata"].get("name", "")):
        return
    _check_held(author, _rules(role), namespace, role)
    if role.get("aggregationRule") or (old is not None and old.get("aggregationRule")):
        held = author.authorizer.rules(author.snapshot, author.user, author.cluster, namespace).rules
        if _missing(_FULL_AUTHORITY, held):
            raise _forbidden(role, "must have cluster-admin privileges to use the aggregationRule")


def check_binding_write(author: Author, binding: Object, old: Object | None = None) -> None:
    """Raise Forbidden for a binding to a role with rules that its author does not hold.

    Raises NotFound for an absent role, unless the author has the verb `bind`.
    """
    if author.exempt or (old is not None and _removes_owners_only(binding, old)):
        return
    reference, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
    resource = _RESOURCES[reference["kind"]]
    role_namespace = "" if reference["kind"] == CLUSTER_ROLE else namespace
    if author.may("bind", resource, namespace, reference["name"]):
        return
    _check_held(author, _referenced(author, resource, role_namespace, reference["name"]), namespace, binding)


def _rules(role: Object) -> tuple[Rule, ...]:
    reduced = {"metadata": {"name": ""}, "rules": role.get("rules")}
    return rules_from(msgspec.convert(reduced, Role).rules)


def _referenced(author: Author, resource: str, namespace: str, name: str) -> tuple[Rule, ...]:
    """The rules of a role of the cluster, or of system:admin, whose roles every cluster may use. Raises NotFound."""
    type_ = CLUSTER_ROLES if resource == "clusterroles" else ROLES
    for cluster in (author.cluster, SYSTEM_ADMIN):
        record = author.snapshot.get(ObjectKey(type_, cluster, namespace, name))
        if record is not None:
            return _rules(msgspec.json.decode(record.value))
    text = f"{type_.group_resource} {quoted(name)} not found"
    raise NotFound(text, Details(name, RBAC_GROUP, resource))


def _check_held(author: Author, wanted: Sequence[Rule], namespace: str, obj: Object) -> None:
    held = author.authorizer.rules(author.snapshot, author.user, author.cluster, namespace)
    missing = _missing(wanted, held.rules)
    if not missing:
        return
    lines = sorted({_compact_text(rule) for rule in _compact(missing)})
    who = f"user {quoted(author.user.name)} (groups={quoted_list(author.user.groups)})"
    text = f"{who} is attempting to grant RBAC permissions not currently held:\n" + "\n".join(lines)
    if held.errors:
        text += f"; resolution errors: [{', '.join(held.errors)}]"
    raise _forbidden(obj, text)


def _forbidden(obj: Object, text: str) -> Forbidden:
    resource, name = _RESOURCES[obj["kind"]], obj["metadata"].get("name", "")
    message = f"{resource}.{RBAC_GROUP} {quoted(name)} is forbidden: {text}"
    return Forbidden(message, Details(name, RBAC_GROUP, resource))


def _removes_owners_only(new: Object, old: Object) -> bool:
    """Return whether a write only removes owners and finalizers, as the garbage collector does without the rights."""
    return _without_owners(new) == _without_owners(old)


def _without_owners(obj: Object) -> Object:
    ignored = {"ownerReferences", "finalizers", "managedFields", "resourceVersion"}
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in ignored}}


# --- covering: whether held rules include others -------------------------------------------------------------


def _missing(wanted: Iterable[Rule], held: Sequence[Rule]) -> list[Rule]:
    """Return the rules that no held rule covers: one verb, resource and name each.

    After MAX_COMPARISONS, the rules that were not compared count as missing, as a whole.
    """
    missing: list[Rule] = []
    comparisons = iter(range(MAX_COMPARISONS))
    for rule in wanted:
        if _is_covered(rule, held, comparisons):
            continue
        parts = []
        for part in _simple(rule):
            if not _is_covered(part, held, comparisons):
                parts.append(part)
            if next(comparisons, None) is None:
                parts = [rule]
                break
        missing.extend(parts)
    return missing


def _is_covered(rule: Rule, held: Sequence[Rule], comparisons: Iterator[int]) -> bool:
    """Return whether a held rule covers this one, as far as comparisons are left."""
    return any(_covers(owned, rule) for owned, _ in zip(held, comparisons, strict=False))


def _simple(rule: Rule) -> Iterator[Rule]:
    for group, resource, verb in itertools.product(rule.groups, rule.resources, rule.verbs):
        if not rule.names:
            yield Rule((verb,), (group,), (resource,))
        for name in rule.names:
            yield Rule((verb,), (group,), (resource,), (name,))
    for url, verb in itertools.product(rule.urls, rule.verbs):
        yield Rule((verb,), urls=(url,))


def _covers(owned: Rule, rule: Rule) -> bool:
    """Return whether a held rule allows everything that another rule allows."""
    if not _contains(owned.verbs, rule.verbs):
        return False
    if not all(any(_url_covers(mine, url) for mine in owned.urls) for url in rule.urls):
        return False
    if not _contains(owned.groups, rule.groups):
        return False
    if owned.names and rule.resources and not (rule.names and set(rule.names) <= set(owned.names)):
        return False
    return all(_resource_covers(owned.resources, resource) for resource in rule.resources)


def _contains(owned: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return ALL in owned or set(wanted) <= set(owned)


def _resource_covers(owned: tuple[str, ...], resource: str) -> bool:
    if ALL in owned or resource in owned:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in owned


def _url_covers(owned: str, url: str) -> bool:
    return owned == url or (owned.endswith(ALL) and url.startswith(owned.rstrip(ALL)))


def _compact(rules: Iterable[Rule]) -> list[Rule]:
    """Join simple rules of the same resource and name, with all their verbs."""
    verbs: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    whole: list[Rule] = []
    for rule in rules:
        if rule.urls:
            whole.append(rule)
            continue
        verbs.setdefault((rule.groups, rule.resources, rule.names), []).extend(rule.verbs)
    return [*whole, *(Rule(tuple(dict.fromkeys(v)), *key) for key, v in verbs.items())]


def _compact_text(rule: Rule) -> str:
    parts = (
        ("APIGroups", rule.groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.urls),
        ("ResourceNames", rule.names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{quoted_list(values)}" for name, values in parts if values) + "}"
