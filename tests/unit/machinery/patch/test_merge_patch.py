"""JSON merge patch: the examples of RFC 7386 and the requirements of Kubernetes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.patch.errors import UndecodablePatch
from atoll.machinery.patch.merge_patch import merge_patch

CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({"a": "foo"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": [None]}, {"b": [{"c": None}]}, {"a": [None], "b": [{"c": None}]}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), CASES)
def test_null_deletes_maps_merge_and_the_rest_replaces(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((document, patch))
    assert merge_patch(document, patch) == expected
    assert (document, patch) == before


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_a_patch_that_is_no_object_is_a_400(patch: Any) -> None:
    with pytest.raises(UndecodablePatch):
        merge_patch({"a": 1}, patch)


def test_what_the_patch_does_not_touch_is_shared() -> None:
    document = {"a": {"big": 1}, "b": 1}
    assert merge_patch(document, {"b": 2})["a"] is document["a"]


def test_nesting_beyond_the_stack_is_a_400() -> None:
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(UndecodablePatch, match="max depth"):
        merge_patch({}, patch)
