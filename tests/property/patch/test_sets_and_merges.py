"""Laws of field sets, and of the patches that need no ownership."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.patch.errors import PatchError
from atoll.machinery.patch.fieldset import (
    FieldSet,
    contains,
    covers,
    difference,
    from_paths,
    intersection,
    leaves,
    parse,
    paths,
    recursive_difference,
    union,
)
from atoll.machinery.patch.json_patch import apply_json_patch
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.patch.strategicmerge.merge import strategic_merge
from harness.data.patch_schemas import SCHEMA

_elements = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"', "i:0"])
_paths = st.lists(_elements, min_size=1, max_size=4).map(tuple)
path_sets = st.frozensets(_paths, max_size=12)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc~/", max_size=2), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text("abc~/", max_size=2), json_values, max_size=4)


def _as_set(fields: FieldSet) -> frozenset[tuple[str, ...]]:
    return frozenset(paths(fields))


@settings(deadline=None)
@given(path_sets, path_sets)
def test_operations_on_field_sets_are_those_on_sets_of_paths(a: Any, b: Any) -> None:
    x, y = from_paths(a), from_paths(b)
    kept = copy.deepcopy((x, y))
    assert _as_set(x) == a
    assert _as_set(union(x, y)) == a | b
    assert covers(x, y) == (b <= a)
    assert covers(union(x, y), y)
    above = frozenset(path[:-1] for path in a if len(path) > 1)
    assert covers(x, from_paths(above)) == (above <= a)
    assert _as_set(intersection(x, y)) == a & b
    assert _as_set(difference(x, y)) == a - b
    beneath = {path for path in a if any(path[: len(gone)] == gone for gone in b)}
    assert _as_set(recursive_difference(x, y)) == a - beneath
    assert (x, y) == kept


@settings(deadline=None)
@given(path_sets, path_sets, path_sets)
def test_field_sets_obey_the_laws_of_sets(a: Any, b: Any, c: Any) -> None:
    x, y, z = map(from_paths, (a, b, c))
    assert union(x, y) == union(y, x)
    assert union(x, union(y, z)) == union(union(x, y), z)
    assert intersection(x, union(y, z)) == union(intersection(x, y), intersection(x, z))
    assert difference(x, union(y, z)) == difference(difference(x, y), z)
    assert union(difference(x, y), intersection(x, y)) == x
    assert difference(x, x) == {}


@settings(deadline=None)
@given(path_sets, _paths)
def test_reading_writing_and_asking_agree(a: Any, path: Any) -> None:
    fields = from_paths(a)
    assert parse(copy.deepcopy(fields)) == fields
    assert contains(fields, path) == (path in a)
    assert set(leaves(fields)) == {p for p in a if not any(q[: len(p)] == p and q != p for q in a)}


def _diff(old: Any, new: Any) -> Any:
    """A merge patch from old to new, neither holding nulls."""
    out = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            out[name] = _diff(before, value)
        elif name not in old or before != value or type(before) is not type(value):
            out[name] = value
    return out


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    return value


@settings(deadline=None)
@given(objects, objects)
def test_a_merge_patch_of_the_difference_gives_the_target(old: Any, new: Any) -> None:
    old, new = _without_nulls(old), _without_nulls(new)
    assert merge_patch(old, _diff(old, new)) == new


@settings(deadline=None)
@given(objects, objects)
def test_a_merge_patch_applied_twice_is_applied_once(document: Any, patch: Any) -> None:
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once


_operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": st.lists(st.text("abc01-", max_size=2), max_size=3).map(lambda p: "".join("/" + t for t in p)),
            "from": st.lists(st.text("abc01-", max_size=2), max_size=3).map(lambda p: "".join("/" + t for t in p)),
        },
        optional={"value": json_values},
    ),
    max_size=6,
)


@settings(deadline=None)
@given(objects, _operations)
def test_json_patch_applies_or_refuses_and_never_touches_its_inputs(document: Any, operations: Any) -> None:
    before = copy.deepcopy((document, operations))
    try:
        out = apply_json_patch(document, operations)
        assert isinstance(out, dict)
    except PatchError as error:
        assert error.code in (400, 413, 422)  # type: ignore[attr-defined]
    assert (document, operations) == before


@settings(deadline=None)
@given(objects, st.text("abc~/", max_size=2), json_values)
def test_add_then_test_then_remove_gives_the_document_back(document: Any, name: str, value: Any) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    document.pop(name, None)
    operations = [{"op": "add", "path": pointer, "value": value}, {"op": "test", "path": pointer, "value": value}]
    assert apply_json_patch(document, operations)[name] == value
    assert apply_json_patch(document, [*operations, {"op": "remove", "path": pointer}]) == document


_names = st.sampled_from("abcd")
_items = st.dictionaries(_names, st.fixed_dictionaries({}, optional={"image": st.sampled_from("123")}), max_size=4)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "items": _items.map(lambda found: [{"name": name, **rest} for name, rest in found.items()]),
        "set": st.lists(_names, unique=True, max_size=4),
        "list": st.lists(_names, max_size=3),
        "map": st.dictionaries(_names, _names, max_size=3),
        "text": _names,
    },
)


@settings(deadline=None)
@given(_specs, _specs)
def test_a_strategic_merge_holds_all_of_the_patch_and_what_it_does_not_speak_of(doc: Any, patch: Any) -> None:
    out = strategic_merge({"spec": doc}, {"spec": patch}, SCHEMA)["spec"]
    merged = {item["name"]: item for item in out.get("items", [])}
    assert set(merged) == {item["name"] for spec in (doc, patch) for item in spec.get("items", [])}
    assert len(merged) == len(out.get("items", []))
    for item in patch.get("items", []):
        assert item.items() <= merged[item["name"]].items()
    assert set(out.get("set", [])) == {*doc.get("set", []), *patch.get("set", [])}
    order = [item["name"] for item in out.get("items", []) if item in patch.get("items", [])]
    assert order == [item["name"] for item in patch.get("items", []) if item["name"] in order]
    assert out.get("list") == patch.get("list", doc.get("list"))
    assert out.get("map", {}) == {**doc.get("map", {}), **patch.get("map", {})}


@settings(deadline=None)
@given(_specs, _specs)
def test_a_strategic_merge_applied_twice_is_applied_once(doc: Any, patch: Any) -> None:
    def merge(spec: Any) -> Any:
        return strategic_merge({"spec": spec}, {"spec": patch}, SCHEMA)["spec"]

    once = merge(doc)
    assert merge(once) == once
