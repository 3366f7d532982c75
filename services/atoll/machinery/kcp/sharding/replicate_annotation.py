"""The words of annotation `internal.kcp.io/replicate` on RBAC objects and LogicalClusters.

kcp's replication labellers, as functions. Other shards authorize against replicated ClusterRoles and their bindings:
those that grant to bind an export, to access its content, to use, initialize or terminate a type, or to access a
workspace with exports or types. Admission sets the words derived from the object itself, the labelling controller those
derived from other objects. Invariant: in a workspace without exports and types, no object gets a word by default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.wellknown import APIS_GROUP, CORE_GROUP, REPLICATE, SINGLETON, TENANCY_GROUP

#: Prefix of groups and users in the RBAC of maximal permission policies, in the export's cluster.
POLICY_PREFIX = "apis.kcp.io:binding:"
#: The words that the system sets and removes; other words belong to the object's author.
WORDS = frozenset({APIS_GROUP, CORE_GROUP, TENANCY_GROUP})
NONE: Set[str] = frozenset()

_ANY = "*"
_EXPORTS, _CONTENT, _TYPES = "apiexports", "apiexports/content", "workspacetypes"
_TYPE_VERBS = ("use", "initialize", "terminate")


def words_of(obj: Object) -> frozenset[str]:
    """Return all words of an object's annotation, the system's and its author's."""
    text = annotations_of(obj).get(REPLICATE) or ""
    return frozenset(word for word in (part.strip() for part in text.split(",")) if word)


def with_words(obj: Object, words: Collection[str]) -> Object:
    """Return the object with these system words and its author's words; the same object if nothing changes."""
    wanted = (words_of(obj) - WORDS) | (WORDS & set(words))
    return obj if wanted == words_of(obj) else _with(obj, ",".join(sorted(wanted)))


def with_system_words(obj: Object, words: Collection[str]) -> Object:
    """Return the object with these words and none of its author's; the same object if nothing changes."""
    text = ",".join(sorted(words))
    return obj if (annotations_of(obj).get(REPLICATE) or "") == text else _with(obj, text)


def _with(obj: Object, text: str) -> Object:
    annotations = {key: value for key, value in annotations_of(obj).items() if key != REPLICATE}
    if text:
        annotations[REPLICATE] = text
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def of_cluster(*, exports: bool, types: bool) -> frozenset[str]:
    """Return the words of a LogicalCluster, by whether its cluster has APIExports and WorkspaceTypes."""
    return frozenset(word for word, has in ((APIS_GROUP, exports), (TENANCY_GROUP, types)) if has)


def of_rules(rules: Iterable[Object], cluster: Collection[str]) -> frozenset[str]:
    """Return the words of a ClusterRole with these rules, in a LogicalCluster with the words `cluster`."""
    found = frozenset(word for rule in rules for word in _of_rule(rule))
    return found if cluster else found - {CORE_GROUP}


def of_binding(binding: Object, role: Collection[str]) -> frozenset[str]:
    """Return the words of a ClusterRoleBinding whose role has the words `role`."""
    return frozenset({*role, APIS_GROUP}) if is_for_policies(binding) else frozenset(role)


def is_for_policies(binding: Object) -> bool:
    """Whether a binding's subjects are consumers of an export, as in maximal permission policies."""
    subjects: list[Object] = binding.get("subjects") or []
    return any(
        each.get("kind") in ("User", "Group") and str(each.get("name", "")).startswith(POLICY_PREFIX)
        for each in subjects
    )


def names_exports(rule: Object) -> bool:
    """Whether a rule grants to bind exports or to access their content."""
    return APIS_GROUP in _of_rule(rule)


def _of_rule(rule: Object) -> list[str]:
    found = []
    if _has(rule, "apiGroups", APIS_GROUP) and (
        (_has(rule, "resources", _EXPORTS) and _has(rule, "verbs", "bind")) or _has(rule, "resources", _CONTENT)
    ):
        found.append(APIS_GROUP)
    is_about_types = _has(rule, "apiGroups", TENANCY_GROUP) and _has(rule, "resources", _TYPES)
    if is_about_types and any(_has(rule, "verbs", verb) for verb in _TYPE_VERBS):
        found.append(TENANCY_GROUP)
    if _enters(rule):
        found.append(CORE_GROUP)
    return found


def _enters(rule: Object) -> bool:
    """Whether a rule grants access to the workspace."""
    if not _has(rule, "verbs", "access"):
        return False
    urls, names = rule.get("nonResourceURLs") or (), rule.get("resourceNames") or (SINGLETON,)
    is_about_cluster = _has(rule, "apiGroups", CORE_GROUP) and _has(rule, "resources", "logicalclusters")
    return bool({"/", "/*", _ANY}.intersection(urls)) or (is_about_cluster and SINGLETON in names)


def _has(rule: Object, field: str, value: str) -> bool:
    values = rule.get(field) or ()
    return value in values or _ANY in values
