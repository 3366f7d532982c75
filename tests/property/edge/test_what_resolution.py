"""Which objects go down equals the criteria written one by one, for any tests and sets of an EdgePlacement."""

from __future__ import annotations

from itertools import product, starmap
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import Placement, downsync_test, placement_of, upsync_set
from atoll.machinery.edge.what import selection
from harness.seeds import drawn

GROUPS, RESOURCES = ("", "apps"), ("configmaps", "deployments")
NAMESPACES, NAMES = ("a", "b"), ("x", "y")
LABELS = st.dictionaries(st.sampled_from(("k", "l")), st.sampled_from(("1", "2")))
SELECTORS = st.lists(st.builds(lambda labels: {"matchLabels": labels}, LABELS), max_size=2)


def lists(*values: str) -> st.SearchStrategy[list[str]]:
    return st.one_of(st.just(["*"]), st.lists(st.sampled_from(values), max_size=2))


TESTS = st.fixed_dictionaries(
    {"apiGroup": st.sampled_from(GROUPS)},
    optional={
        "resources": lists(*RESOURCES),
        "namespaces": lists(*NAMESPACES),
        "namespaceSelectors": SELECTORS,
        "objectNames": lists(*NAMES),
        "labelSelectors": SELECTORS,
    },
)
SETS = st.fixed_dictionaries(
    {"apiGroup": st.sampled_from(GROUPS), "resources": lists(*RESOURCES)},
    optional={"namespaces": lists(*NAMESPACES), "names": lists(*NAMES)},
)
SPECS = st.fixed_dictionaries(
    {"downsync": st.lists(TESTS, max_size=2), "upsync": st.lists(SETS, max_size=1)},
    optional={"wantSingletonReportedState": st.booleans()},
)
OBJECTS = st.builds(
    lambda group, resource, namespace, name, labels: (ObjectRef(group, resource, namespace, name), labels),
    st.sampled_from(GROUPS),
    st.sampled_from(RESOURCES),
    st.sampled_from(("", *NAMESPACES)),
    st.sampled_from(NAMES),
    LABELS,
)


def holds(selectors: list[dict[str, Any]], labels: dict[str, str]) -> bool:
    return not selectors or any(selector["matchLabels"].items() <= labels.items() for selector in selectors)


def is_wanted(test: dict[str, Any], ref: ObjectRef, labels: dict[str, str], namespace: dict[str, str] | None) -> bool:
    if test["apiGroup"] != ref.group:
        return False
    for field, value in (("resources", ref.resource), ("namespaces", ref.namespace), ("objectNames", ref.name)):
        values = test.get(field)
        if values and values != ["*"] and value not in values:
            return False
    if not holds(test.get("labelSelectors", []), labels):
        return False
    selectors = test.get("namespaceSelectors", [])
    if ref.namespace and namespace is None:
        return not selectors
    return holds(selectors, namespace or {} if ref.namespace else {})


def comes_up(sets: dict[str, Any], ref: ObjectRef) -> bool:
    fields = [("resources", ref.resource), ("names", ref.name)]
    fields += [("namespaces", ref.namespace)] if ref.namespace else []
    return sets["apiGroup"] == ref.group and all(
        sets.get(field, []) == ["*"] or value in sets.get(field, []) for field, value in fields
    )


@settings(max_examples=drawn(80))
@given(st.lists(SPECS, max_size=2), OBJECTS, st.one_of(st.none(), LABELS))
def test_an_object_goes_down_for_the_placements_whose_tests_it_meets_and_that_do_not_want_it_up(
    specs: list[dict[str, Any]], row: tuple[ObjectRef, dict[str, str]], namespace: dict[str, str] | None
) -> None:
    ref, labels = row
    placements: list[Placement] = []
    expected = []
    for number, spec in enumerate(specs):
        placements.append(placement_of({"metadata": {"name": f"p{number}"}, "spec": spec}))
        down = any(is_wanted(test, ref, labels, namespace) for test in spec["downsync"])
        if down and not any(comes_up(each, ref) for each in spec["upsync"]):
            expected.append(f"p{number}")
    obj = {"metadata": {"name": ref.name, "labels": labels}}
    home = None if namespace is None else {"metadata": {"labels": namespace}}
    found = selection(placements, ref, obj, home, BuiltIns())
    assert list(found.placements) == expected
    wishes = [spec.get("wantSingletonReportedState", False) for spec in specs]
    assert found.wants_singleton == any(wish for number, wish in enumerate(wishes) if f"p{number}" in expected)


@settings(max_examples=drawn(80))
@given(TESTS, SETS)
def test_a_test_overlaps_a_set_if_an_object_of_some_labels_meets_both(
    test: dict[str, Any], members: dict[str, Any]
) -> None:
    compared = {field: values for field, values in test.items() if not field.endswith("Selectors")}
    # No list names all values.
    values = ((*GROUPS, "o"), (*RESOURCES, "others"), ("", *NAMESPACES, "c"), (*NAMES, "z"))
    expected = any(
        is_wanted(compared, ref, {}, {}) and comes_up(members, ref) for ref in starmap(ObjectRef, product(*values))
    )
    assert downsync_test(test, "", []).overlaps(upsync_set(members)) == expected
