"""Which RBAC objects and LogicalClusters other shards need: the words of annotation `internal.kcp.io/replicate`.

kcp's labellers, as functions. Roles that let somebody bind an export or reach its content, use, initialize or terminate
a type, or enter a workspace that has either, and the bindings that give them, are read on other shards: admission there
asks whether a caller may. Admission sets the words that follow from an object, the labelling controller those that
follow from others. Invariant: in a workspace that offers nothing, no object of its making carries a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import APIS_GROUP, CORE_GROUP, REPLICATE, TENANCY_GROUP

#: Groups and users of maximal permission policies, as RBAC in the export's cluster names them.
POLICY_PREFIX = "apis.kcp.io:binding:"
#: The words that the system sets and takes away; others are their author's.
WORDS = frozenset({APIS_GROUP, CORE_GROUP, TENANCY_GROUP})
NONE: Set[str] = frozenset()

_ANY = "*"
_EXPORTS, _CONTENT, _TYPES = "apiexports", "apiexports/content", "workspacetypes"
_TYPE_VERBS = ("use", "initialize", "terminate")


def words_of(obj: Object) -> frozenset[str]:
    """The words that an object carries, whoever's they are."""
    text = (obj["metadata"].get("annotations") or {}).get(REPLICATE) or ""
    return frozenset(word for word in (part.strip() for part in text.split(",")) if word)


def with_words(obj: Object, words: Collection[str]) -> Object:
    """An object that carries these of the system's words beside its author's; itself where nothing changes."""
    wanted = (words_of(obj) - WORDS) | (WORDS & set(words))
    if wanted == words_of(obj):
        return obj
    metadata = obj["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != REPLICATE}
    if wanted:
        annotations[REPLICATE] = ",".join(sorted(wanted))
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def of_cluster(*, exports: bool, types: bool) -> frozenset[str]:
    """Words of a LogicalCluster, by whether its cluster has APIExports and WorkspaceTypes."""
    return frozenset(word for word, has in ((APIS_GROUP, exports), (TENANCY_GROUP, types)) if has)


def of_rules(rules: Iterable[Object], cluster: Collection[str]) -> frozenset[str]:
    """Words of a ClusterRole by its rules, in a LogicalCluster of these words."""
    found = frozenset(word for rule in rules for word in _of_rule(rule))
    return found if cluster else found - {CORE_GROUP}


def of_binding(binding: Object, role: Collection[str]) -> frozenset[str]:
    """Words of a ClusterRoleBinding whose role has these."""
    return frozenset({*role, APIS_GROUP}) if is_for_policies(binding) else frozenset(role)


def is_for_policies(binding: Object) -> bool:
    """Whether a binding names consumers of an export, as maximal permission policies do."""
    subjects: list[Object] = binding.get("subjects") or []
    return any(
        each.get("kind") in ("User", "Group") and str(each.get("name", "")).startswith(POLICY_PREFIX)
        for each in subjects
    )


def names_exports(rule: Object) -> bool:
    """Whether a rule is about exports: who may bind them, or reach what is bound."""
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
    """Whether a rule lets somebody into the workspace."""
    urls = rule.get("nonResourceURLs") or ()
    return bool({"/", "/*", _ANY}.intersection(urls)) and _has(rule, "verbs", "access")


def _has(rule: Object, field: str, value: str) -> bool:
    values = rule.get(field) or ()
    return value in values or _ANY in values
