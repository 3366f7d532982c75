"""Strategic merge patch: every directive, both kinds of merging lists, and the order of items."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.patch.errors import PatchDoesNotApply, UndecodablePatch
from atoll.machinery.patch.strategicmerge.merge import strategic_merge
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from harness.data.patch_schemas import SCHEMA

ABC = [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]
A, B, C = ABC

# name, spec, patch of spec, expected spec
CASES: list[tuple[str, Any, Any, Any]] = [
    ("scalars", {"replicas": 1, "text": "a"}, {"replicas": 2}, {"replicas": 2, "text": "a"}),
    ("null deletes", {"replicas": 1, "text": "a"}, {"text": None, "map": None}, {"replicas": 1}),
    ("nulls of a new subtree vanish", {}, {"struct": {"x": "1", "y": None}}, {"struct": {"x": "1"}}),
    ("maps merge", {"map": {"k": "1"}}, {"map": {"l": "2"}}, {"map": {"k": "1", "l": "2"}}),
    (
        "atomic structs merge all the same",
        {"selector": {"x": "1"}},
        {"selector": {"y": "2"}},
        {"selector": {"x": "1", "y": "2"}},
    ),
    ("a field with strategy replace", {"replaced": {"x": "1"}}, {"replaced": {"y": "2"}}, {"replaced": {"y": "2"}}),
    ("plain lists are replaced", {"list": ["a", "b"]}, {"list": ["c"]}, {"list": ["c"]}),
    (
        "items merge by key",
        {"items": ABC},
        {"items": [{"name": "b", "image": "9"}]},
        {"items": [A, {"name": "b", "image": "9"}, C]},
    ),
    ("new items come first", {"items": [A]}, {"items": [{"name": "z"}]}, {"items": [{"name": "z"}, A]}),
    (
        "items merge deep",
        {"items": [{"name": "a", "env": [{"name": "e", "value": "1"}, {"name": "f"}]}]},
        {"items": [{"name": "a", "env": [{"name": "e", "value": "2"}]}]},
        {"items": [{"name": "a", "env": [{"name": "e", "value": "2"}, {"name": "f"}]}]},
    ),
    ("null in an item", {"items": [A]}, {"items": [{"name": "a", "image": None}]}, {"items": [{"name": "a"}]}),
    ("an item is deleted", {"items": ABC}, {"items": [{"name": "b", "$patch": "delete"}]}, {"items": [A, C]}),
    (
        "an item that is not there is deleted",
        {"items": [A]},
        {"items": [{"name": "z", "$patch": "delete"}]},
        {"items": [A]},
    ),
    ("an item is deleted from no list", {}, {"items": [{"name": "z", "$patch": "delete"}]}, {"items": []}),
    (
        "a list is replaced",
        {"items": ABC},
        {"items": [{"$patch": "replace"}, {"name": "z"}]},
        {"items": [{"name": "z"}]},
    ),
    (
        "a map is replaced",
        {"struct": {"x": "1", "y": "2"}},
        {"struct": {"$patch": "replace", "y": "3"}},
        {"struct": {"y": "3"}},
    ),
    ("a map is emptied", {"struct": {"x": "1"}}, {"struct": {"$patch": "delete"}}, {"struct": {}}),
    ("a map that is not there stays away", {}, {"struct": {"$patch": "delete"}}, {}),
    (
        "a map with a directive is nothing where there was none",
        {"text": "t"},
        {"struct": {"$patch": "replace", "y": "2"}},
        {"text": "t"},
    ),
    (
        "an item that replaces the list is no item itself",
        {"items": [A]},
        {"items": [{"name": "z", "$patch": "replace"}, {"name": "b"}]},
        {"items": [{"name": "b"}]},
    ),
    ("primitives are a set", {"set": ["a", "b"]}, {"set": ["b", "c"]}, {"set": ["a", "b", "c"]}),
    (
        "primitives are deleted",
        {"set": ["a", "b", "c"]},
        {"$deleteFromPrimitiveList/set": ["a", "z"]},
        {"set": ["b", "c"]},
    ),
    (
        "primitives come and go",
        {"set": ["a", "b"]},
        {"$deleteFromPrimitiveList/set": ["a"], "set": ["c"]},
        {"set": ["c", "b"]},
    ),
    (
        "order of items",
        {"items": ABC},
        {"$setElementOrder/items": [{"name": "c"}, {"name": "a"}, {"name": "b"}]},
        {"items": [C, A, B]},
    ),
    (
        "order keeps what only the server has",
        {"items": ABC},
        {"$setElementOrder/items": [{"name": "c"}, {"name": "z"}, {"name": "a"}], "items": [{"name": "z"}]},
        {"items": [B, C, {"name": "z"}, A]},
    ),
    (
        "order of primitives",
        {"set": ["a", "b"]},
        {"$setElementOrder/set": ["b", "c", "a"], "set": ["c"]},
        {"set": ["b", "c", "a"]},
    ),
    ("order of nothing", {}, {"$setElementOrder/items": [{"name": "c"}]}, {}),
    (
        "order with a deletion",
        {"items": ABC},
        {"$setElementOrder/items": [{"name": "c"}, {"name": "a"}], "items": [{"name": "b", "$patch": "delete"}]},
        {"items": [C, A]},
    ),
    (
        "keys are retained",
        {"retained": {"x": "1", "y": "2"}},
        {"retained": {"$retainKeys": ["x"], "x": "3", "y": None}},
        {"retained": {"x": "3"}},
    ),
    (
        "keys that are not retained go, named in the patch or not",
        {"retained": {"x": "1", "y": "2"}},
        {"retained": {"$retainKeys": ["x"], "x": "3"}},
        {"retained": {"x": "3"}},
    ),
    ("keys are retained in nothing", {}, {"retained": {"$retainKeys": ["x"], "x": "3"}}, {"retained": {"x": "3"}}),
    (
        "keys sent to nothing need not be retained",
        {},
        {"retained": {"$retainKeys": ["x"], "x": "3", "y": "1"}},
        {"retained": {"x": "3", "y": "1"}},
    ),
    (
        "open maps merge",
        {"open": {"a": {"b": 1}, "l": [{"name": "a"}]}},
        {"open": {"a": {"c": 2}, "l": [{"name": "b"}]}},
        {"open": {"a": {"b": 1, "c": 2}, "l": [{"name": "b"}]}},
    ),
    ("a map takes the place of a scalar", {"open": {"a": 1}}, {"open": {"a": {"b": 1}}}, {"open": {"a": {"b": 1}}}),
    ("a list takes the place of a scalar", {"open": 1}, {"open": [1]}, {"open": [1]}),
    ("unknown fields pass", {}, {"nobody": {"knows": [1]}}, {"nobody": {"knows": [1]}}),
]

BAD: list[tuple[str, Any, Any, type[Exception]]] = [
    ("unknown patch type", {"struct": {"x": "1"}}, {"struct": {"$patch": "shuffle"}}, UndecodablePatch),
    # Kubernetes documents this directive but never accepted it.
    ("a map merges explicitly", {"struct": {"x": "1"}}, {"struct": {"$patch": "merge", "y": "2"}}, UndecodablePatch),
    ("an item's merge is explicit", {"items": ABC}, {"items": [{"name": "a", "$patch": "merge"}]}, UndecodablePatch),
    ("unknown patch type of an item", {"items": ABC}, {"items": [{"name": "a", "$patch": "x"}]}, UndecodablePatch),
    ("unknown directive", {}, {"$frobnicate": 1}, UndecodablePatch),
    ("unknown directive in a map", {"map": {}}, {"map": {"$x": "1"}}, UndecodablePatch),
    ("retainKeys is no list", {"retained": {}}, {"retained": {"$retainKeys": "x"}}, UndecodablePatch),
    ("retainKeys misses a key", {"retained": {}}, {"retained": {"$retainKeys": ["x"], "y": "1"}}, UndecodablePatch),
    ("setElementOrder is no list", {"set": []}, {"$setElementOrder/set": "x"}, UndecodablePatch),
    ("deleteFromPrimitiveList is no list", {"set": []}, {"$deleteFromPrimitiveList/set": {}}, UndecodablePatch),
    ("item without key", {"items": ABC}, {"items": [{"image": "x"}]}, PatchDoesNotApply),
    ("deletion without key", {"items": ABC}, {"items": [{"$patch": "delete"}]}, PatchDoesNotApply),
    ("scalar among items", {"items": ABC}, {"items": ["x"]}, PatchDoesNotApply),
    ("stored item without key", {"items": [{"image": "x"}]}, {"items": [{"name": "a"}]}, PatchDoesNotApply),
    ("maps in a primitive list", {"set": []}, {"set": [{"a": 1}]}, PatchDoesNotApply),
    (
        "against its own order",
        {"items": ABC},
        {"$setElementOrder/items": [{"name": "a"}, {"name": "b"}], "items": [{"name": "b"}, {"name": "a"}]},
        PatchDoesNotApply,
    ),
    (
        "item not in its own order",
        {"items": ABC},
        {"$setElementOrder/items": [{"name": "a"}], "items": [{"name": "b"}]},
        PatchDoesNotApply,
    ),
]


def _merge(spec: Any, patch: Any) -> Any:
    return strategic_merge({"spec": spec}, {"spec": patch}, SCHEMA)["spec"]


@pytest.mark.parametrize(("spec", "patch", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_patch_merges_by_its_schema_and_leaves_inputs_alone(spec: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((spec, patch))
    assert _merge(spec, patch) == expected
    assert (spec, patch) == before


@pytest.mark.parametrize(("spec", "patch", "error"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_patch_that_cannot_be_is_refused(spec: Any, patch: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _merge(spec, patch)


def test_missing_merge_key_is_a_422_and_says_which_in_its_detail() -> None:
    with pytest.raises(PatchDoesNotApply) as caught:
        _merge({"items": ABC}, {"items": [{"image": "x"}]})
    assert caught.value.code == 422
    assert "does not contain declared merge key: name" in caught.value.detail


def test_finalizers_and_owner_references_merge_without_a_schema_for_metadata() -> None:
    document = {"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}]}}
    patch = {"metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "1", "name": "y"}]}}
    out = strategic_merge(
        document, patch, TypeSchema({"type": "object", "properties": {"metadata": {"type": "object"}}}, {})
    )
    assert sorted(out["metadata"]["finalizers"]) == ["a", "b"]
    assert out["metadata"]["ownerReferences"] == [{"uid": "1", "name": "y"}]


def test_declared_fields_may_be_named_like_directives() -> None:
    source = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert strategic_merge({"$ref": "a"}, {"$ref": "b"}, TypeSchema(source, {})) == {"$ref": "b"}


def test_recursive_schemas_merge_to_the_depth_of_the_patch() -> None:
    spec = {"tree": {"child": {"child": {"label": "a"}}}}
    patch = {"tree": {"child": {"child": {"child": {"label": "b"}}}}}
    assert _merge(spec, patch) == {"tree": {"child": {"child": {"label": "a", "child": {"label": "b"}}}}}


@pytest.mark.parametrize("patch", [None, [], 1])
def test_a_patch_that_is_no_object_is_a_400(patch: Any) -> None:
    with pytest.raises(UndecodablePatch):
        strategic_merge({}, patch, SCHEMA)


def test_what_the_patch_does_not_touch_is_shared() -> None:
    spec = {"struct": {"x": "1"}, "items": [A, B]}
    out = _merge(spec, {"items": [{"name": "a", "image": "2"}]})
    assert out["struct"] is spec["struct"]
    assert out["items"][1] is B
