"""Properties of the matching of rules that hold for any rules and requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.apiserver.admission.configured.matching import Criteria, Request
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object

_GROUPS, _VERSIONS, _PLURALS = ("", "a.example", "b.example"), ("v1", "v2"), ("pods", "widgets")
_SUBRESOURCES, _OPERATIONS = ("", "status", "scale"), ("CREATE", "UPDATE", "DELETE")
_NAMES = ("", "one", "two")


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.one_of(st.just(["*"]), st.lists(st.sampled_from(values), min_size=1, unique=True))


_KINDS = st.builds(
    lambda group, version, plural: Kind(group=group, version=version, kind="Any", plural=plural, singular=plural),
    st.sampled_from(_GROUPS),
    st.sampled_from(_VERSIONS),
    st.sampled_from(_PLURALS),
)
_RESOURCES = st.builds(
    lambda name, sub: f"{name}/{sub}" if sub else name,
    st.sampled_from((*_PLURALS, "*")),
    st.sampled_from((*_SUBRESOURCES, "*")),
)
_RULES = st.fixed_dictionaries(
    {
        "operations": _some(_OPERATIONS),
        "apiGroups": _some(_GROUPS),
        "apiVersions": _some(_VERSIONS),
        "resources": st.lists(_RESOURCES, min_size=1),
        "scope": st.sampled_from(("*", "Cluster", "Namespaced")),
    },
    optional={"resourceNames": st.lists(st.sampled_from(_NAMES[1:]))},
)
_REQUESTS = st.builds(
    lambda operation, kinds, subresource, namespace, name: Request(
        operation=operation,
        kind=kinds[0],
        subresource=subresource,
        namespace=namespace,
        name=name,
        obj={"metadata": {}},
        equivalents=tuple(kinds[1:]),
    ),
    st.sampled_from(_OPERATIONS),
    st.lists(_KINDS, min_size=1, max_size=3),
    st.sampled_from(_SUBRESOURCES),
    st.sampled_from(("", "default")),
    st.sampled_from(_NAMES),
)


def _criteria(rules: list[Object], policy: str = "Exact", excluded: list[Object] | None = None) -> Criteria:
    stored = {"resourceRules": rules, "excludeResourceRules": excluded or [], "matchPolicy": policy}
    return Criteria.of_match_resources(stored)


def _covers(rule: Object, request: Request) -> bool:
    """Whether a rule covers a request: a model that lists all that the rule stands for."""
    kind = request.kind
    every = {
        (operation, group, version, plural, sub, scope)
        for operation in (_OPERATIONS if rule["operations"] == ["*"] else rule["operations"])
        for group in (_GROUPS if rule["apiGroups"] == ["*"] else rule["apiGroups"])
        for version in (_VERSIONS if rule["apiVersions"] == ["*"] else rule["apiVersions"])
        for name, _, subs in (each.partition("/") for each in rule["resources"])
        for plural in (_PLURALS if name == "*" else (name,))
        for sub in (_SUBRESOURCES if subs == "*" else (subs,))
        for scope in (("Cluster", "Namespaced") if rule["scope"] == "*" else (rule["scope"],))
    }
    scope = "Namespaced" if request.namespace else "Cluster"
    named = not rule.get("resourceNames") or request.name in rule["resourceNames"]
    return named and (
        request.operation, kind.group, kind.version, kind.plural, request.subresource, scope
    ) in every  # fmt: skip


@given(st.lists(_RULES, min_size=1, max_size=4), _REQUESTS)
def test_exact_rules_match_what_they_stand_for(rules: list[Object], request: Request) -> None:
    expected = any(_covers(rule, request) for rule in rules)
    assert (_criteria(rules).match(request) is request.kind) is expected


@given(st.lists(_RULES, min_size=1, max_size=4), _REQUESTS)
def test_equivalent_matches_whatever_some_version_matches_exactly(rules: list[Object], request: Request) -> None:
    exact = _criteria(rules)
    forms = [Request(**{**_fields(request), "kind": kind}) for kind in (request.kind, *request.equivalents)]
    expected = any(exact.match(form) is not None for form in forms)
    assert (_criteria(rules, "Equivalent").match(request) is not None) is expected


@given(st.lists(_RULES, min_size=1, max_size=4), _REQUESTS, st.sampled_from(("Exact", "Equivalent")))
def test_what_matches_was_not_left_out_early(rules: list[Object], request: Request, policy: str) -> None:
    criteria = _criteria(rules, policy)
    if criteria.match(request) is not None:
        assert criteria.concerns(request.kind, request.equivalents)


@given(st.lists(_RULES, min_size=1, max_size=3), st.lists(_RULES, min_size=1, max_size=3), _REQUESTS)
def test_excluded_rules_take_away_what_they_match(
    rules: list[Object], excluded: list[Object], request: Request
) -> None:
    within = _criteria(rules, "Equivalent").match(request)
    without = None if _criteria(excluded, "Equivalent").match(request) is not None else within
    assert _criteria(rules, "Equivalent", excluded).match(request) is without


def _fields(request: Request) -> Object:
    return {name: getattr(request, name) for name in request.__struct_fields__}
