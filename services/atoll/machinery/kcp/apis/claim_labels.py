"""The labels by which an export's provider finds the objects that its permission claims cover.

Admission asks on every write which labels an object carries, the claims controller which stored objects lack them or
carry one too many. A cluster's bindings are compiled once and asked for each object. Invariant: the labels follow from
the cluster's bindings, the object's type and its other labels, and from nothing else, so that two answers are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.permission_claims import Selector
from atoll.machinery.meta.hashes import CLAIM_LABEL_PREFIX, EXPORT_LABEL
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, labels_of, status_of
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS

_NO_LABELS: Mapping[str, str] = {}


class Rule(NamedTuple):
    """One label, and the selectors of which one has to select the object that carries it."""

    key: str
    value: str
    selectors: tuple[Selector, ...]


class Labelling:
    """The claims that are applied in a cluster, by the type of what they cover."""

    __slots__ = ("__weakref__", "_rules", "size_bytes")

    def __init__(self, rules: Mapping[ResourceType, tuple[Rule, ...]]) -> None:
        self._rules = rules
        self.size_bytes = size_bytes(rules)

    @property
    def types(self) -> Iterable[ResourceType]:
        """The types of which some objects carry labels, beside APIBindings."""
        return self._rules.keys()

    def covers(self, type: ResourceType) -> bool:
        """Whether any object of a type carries labels of claims."""
        return type == API_BINDINGS or type in self._rules

    def wanted(self, type: ResourceType, labels: Mapping[str, str] | None) -> dict[str, str]:
        """The labels of claims that an object with these labels carries."""
        rules = self._rules.get(type)
        if rules is None and type != API_BINDINGS:
            return {}
        labels = labels or _NO_LABELS
        found: dict[str, str] = {}
        if rules is not None:
            others = permission_claims.unclaimed(labels)
            for rule in rules:
                if any(selector.matches(others) for selector in rule.selectors):
                    found[rule.key] = rule.value
        if type == API_BINDINGS and (export := labels.get(EXPORT_LABEL)):
            # The provider sees bindings to its export even if they grant no claim.
            found.setdefault(*permission_claims.reflexive_label(export))
            found.pop(permission_claims.withheld_label(export)[0], None)
        return found

    def misses(self, type: ResourceType, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels should carry others of claims than it does."""
        present = {key: value for key, value in (labels or {}).items() if key.startswith(CLAIM_LABEL_PREFIX)}
        return present != self.wanted(type, labels)


#: The labelling of a cluster whose bindings grant no claims.
NO_CLAIMS = Labelling({})


def content_of(bindings: Iterable[Object]) -> list[object]:
    """Return what the labelling of these bindings follows from, as JSON: in many clusters it is the same."""
    return [[labels_of(each).get(EXPORT_LABEL), status_of(each).get("appliedPermissionClaims")] for each in bindings]


def labelling(bindings: Iterable[Object]) -> Labelling:
    """Compile a cluster's bindings (v1alpha2).

    Labels go by what the status says to be applied, and not by what was accepted a moment ago: whoever changes that
    status goes through the objects that are there.
    """
    rules: dict[ResourceType, dict[tuple[str, str], tuple[Selector, ...]]] = {}
    for binding in bindings:
        export = labels_of(binding).get(EXPORT_LABEL)
        if not export:
            continue
        for key, claim in permission_claims.applied(binding).items():
            if (key.group, key.resource) in permission_claims.REVIEWS:
                continue
            ofs, pairs = rules.setdefault(key.type, {}), [permission_claims.label(export, key)]
            if permission_claims.is_withheld(claim):
                pairs.append(permission_claims.withheld_label(export))
            for pair in pairs:
                ofs[pair] = (*ofs.get(pair, ()), permission_claims.selector_of(claim))
    if not rules:
        return NO_CLAIMS
    return Labelling(
        {
            type: tuple(Rule(*pair, selectors) for pair, selectors in sorted(ofs.items(), key=lambda item: item[0]))
            for type, ofs in rules.items()
        }
    )
