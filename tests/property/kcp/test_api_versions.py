"""APIExports and APIBindings in both versions: a round trip loses nothing, for any content."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.kcp.apis.versions import V1ALPHA1, V1ALPHA2, convert, problems
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kinds.kind import Kind

Object = dict[str, Any]
KINDS: dict[tuple[str, str], Kind] = {
    (kind.kind, kind.api_version): kind for kind in system_kinds() if kind.kind in {"APIExport", "APIBinding"}
}

words = st.sampled_from(["widgets", "gadgets", "configmaps", "secrets"])
groups = st.sampled_from(["", "example.io", "more.example.io"])
hashes = st.sampled_from(["", "1f" * 32, "2e" * 32])
selectors = st.one_of(
    st.just({"matchAll": True}),
    st.fixed_dictionaries({"matchLabels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), min_size=1)}),
    st.just({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}]}),
)
verbs = st.lists(st.sampled_from(["*", "get", "list", "create"]), min_size=1, unique=True)
conditions = st.just([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}])


def metadata(name: str = "one") -> st.SearchStrategy[Object]:
    notes = st.dictionaries(st.sampled_from(["kcp.io/path", "example.io/note"]), st.just("x"), min_size=1)
    return st.fixed_dictionaries({"name": st.just(name)}, optional={"annotations": notes})


def by_claim(claims: st.SearchStrategy[Object]) -> st.SearchStrategy[list[Object]]:
    return st.lists(
        claims, max_size=4, unique_by=lambda each: (each["group"], each["resource"], each.get("identityHash", ""))
    )


claim = st.fixed_dictionaries(
    {"group": groups, "resource": words, "verbs": verbs, "identityHash": hashes},
    optional={"defaultSelector": selectors},
)
granted = st.fixed_dictionaries(
    {"group": groups, "resource": words, "verbs": verbs, "identityHash": hashes, "selector": selectors,
     "state": st.sampled_from(["Accepted", "Rejected"])},
    optional={"defaultSelector": selectors},
)  # fmt: skip
applied = st.fixed_dictionaries(
    {"group": groups, "resource": words, "verbs": verbs, "identityHash": hashes, "selector": selectors}
)
named = st.builds(
    lambda prefix, name, group: {
        "name": name, "group": group, "schema": f"{prefix}.{name}.{group or 'core'}", "storage": {"crd": {}},
    },
    st.sampled_from(["v1", "today", "two.parts"]), words, groups,
)  # fmt: skip
virtual = st.builds(
    lambda name, group: {
        "name": name, "group": group, "schema": f"v1.{name}.{group or 'core'}",
        "storage": {"virtual": {"reference": {"kind": "Slice", "name": "a"}, "identityHash": "ff"}},
    },
    words, groups,
)  # fmt: skip
resources = st.lists(st.one_of(named, virtual), max_size=4, unique_by=lambda each: (each["name"], each["group"]))
identity = st.just({"secretRef": {"name": "key", "namespace": "kcp-system"}})

exports = st.builds(
    lambda meta, spec, status: {"apiVersion": V1ALPHA2, "kind": "APIExport", "metadata": meta, "spec": spec, **status},
    metadata(),
    st.fixed_dictionaries({}, optional={
        "resources": resources,
        "identity": identity,
        "maximalPermissionPolicy": st.just({"local": {}}),
        "permissionClaims": st.lists(claim, max_size=4, unique_by=lambda each: (each["group"], each["resource"])),
    }),
    st.one_of(st.just({}), conditions.map(lambda found: {"status": {"conditions": found, "identityHash": "ab"}})),
)  # fmt: skip
bindings = st.builds(
    lambda meta, claims, status: {
        "apiVersion": V1ALPHA2, "kind": "APIBinding", "metadata": meta,
        "spec": {"reference": {"export": {"path": "root:a", "name": "b"}}, **claims}, "status": status,
    },
    metadata(),
    st.fixed_dictionaries({}, optional={"permissionClaims": by_claim(granted)}),
    st.fixed_dictionaries({"phase": st.sampled_from(["", "Binding", "Bound"])}, optional={
        "conditions": conditions,
        "appliedPermissionClaims": by_claim(applied),
        "exportPermissionClaims": by_claim(claim),
    }),
)  # fmt: skip

old_claims = st.one_of(
    st.fixed_dictionaries({"group": groups, "resource": words, "all": st.just(True)}),
    st.fixed_dictionaries({
        "group": groups, "resource": words, "identityHash": st.just("3d" * 32),
        "resourceSelector": st.lists(st.just({"name": "a", "namespace": "b"}), min_size=1, max_size=2),
    }),
    st.fixed_dictionaries({
        "group": groups, "resource": words, "all": st.just(False), "resourceSelector": st.just([{"name": "a"}]),
    }),
)  # fmt: skip
schema_names = st.builds(lambda prefix, name, group: f"{prefix}.{name}.{group or 'core'}",
                         st.sampled_from(["v1", "today"]), words, groups)  # fmt: skip
old_exports = st.builds(
    lambda meta, spec: {"apiVersion": V1ALPHA1, "kind": "APIExport", "metadata": meta, "spec": spec},
    metadata(),
    st.fixed_dictionaries({}, optional={
        "latestResourceSchemas": st.lists(schema_names, max_size=4, unique_by=lambda each: each.partition(".")[2]),
        "identity": identity,
        "permissionClaims": st.lists(old_claims, max_size=4, unique_by=lambda each: (each["group"], each["resource"])),
    }),
)  # fmt: skip
old_bindings = st.builds(
    lambda meta, claims, states, status: {
        "apiVersion": V1ALPHA1, "kind": "APIBinding", "metadata": meta,
        "spec": {
            "reference": {"export": {"name": "b"}},
            "permissionClaims": [{**each, "state": state} for each, state in zip(claims, states, strict=False)],
        },
        "status": status,
    },
    metadata(),
    by_claim(old_claims),
    st.lists(st.sampled_from(["Accepted", "Rejected"]), min_size=4, max_size=4),
    st.fixed_dictionaries({"phase": st.just("Bound")}, optional={
        "appliedPermissionClaims": by_claim(old_claims), "exportPermissionClaims": by_claim(old_claims),
    }),
)  # fmt: skip


def normal(obj: Object) -> Object:
    """An object to compare: resources by key, as v1alpha1 does not keep the order of the two lists."""
    obj = copy.deepcopy(obj)
    found = obj.get("spec", {}).get("resources")
    if found:
        found.sort(key=lambda each: (each["name"], each["group"]))
    return obj


def round_trip(obj: Object) -> Object:
    kind, other = obj["kind"], V1ALPHA1 if obj["apiVersion"] == V1ALPHA2 else V1ALPHA2
    before = copy.deepcopy(obj)
    between = convert(obj, kind, other)
    assert obj == before, "the input stays as it was"
    assert between["apiVersion"] == other
    back = convert(copy.deepcopy(between), kind, obj["apiVersion"])
    # The result of a round trip converts to itself.
    assert convert(back, kind, other) == between
    return back


@given(st.one_of(exports, bindings))
def test_an_object_of_v1alpha2_comes_back_from_v1alpha1_whole(obj: Object) -> None:
    assert normal(round_trip(obj)) == normal(obj)


@given(st.one_of(old_exports, old_bindings))
def test_an_object_of_v1alpha1_comes_back_from_v1alpha2_whole(obj: Object) -> None:
    assert round_trip(obj) == obj
    assert problems(obj, obj["kind"]) == []


@given(st.one_of(exports, bindings))
def test_what_is_shown_in_v1alpha1_fits_its_schema(obj: Object) -> None:
    kind = KINDS[obj["kind"], V1ALPHA1]
    assert kind.from_stored is not None and kind.schema is not None
    shown = kind.from_stored(copy.deepcopy(obj))
    assert kind.schema.unknown_fields(shown) == []
    assert kind.schema.validate(shown) == []


@given(st.one_of(old_exports, old_bindings))
def test_what_v1alpha1_stores_fits_the_stored_schema(obj: Object) -> None:
    kind, stored = KINDS[obj["kind"], V1ALPHA1], KINDS[obj["kind"], V1ALPHA2]
    assert kind.to_stored is not None and stored.schema is not None
    found = kind.to_stored(copy.deepcopy(obj))
    assert stored.schema.unknown_fields(found) == []
    assert stored.schema.validate(found) == []


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(
            ["spec", "status", "metadata", "annotations", "resources", "latestResourceSchemas", "permissionClaims",
             "group", "verbs", "selector", "all", "apis.v1alpha2.kcp.io/permission-claims", "schema"]
        ), inner, max_size=4),
    ),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["APIExport", "APIBinding"])
@given(found=json_values)
def test_any_json_is_converted(kind: str, found: Any) -> None:
    content = found if isinstance(found, dict) else {"spec": found}
    for own, other in ((V1ALPHA1, V1ALPHA2), (V1ALPHA2, V1ALPHA1)):
        made = convert({**content, "apiVersion": own, "kind": kind}, kind, other)
        assert made["apiVersion"] == other
        problems({**content, "apiVersion": own}, kind)
