"""Field sets: decoding and encoding of FieldsV1, and the operations on sets, on small cases."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.patch.fieldset import (
    EMPTY,
    InvalidFieldSet,
    contains,
    difference,
    from_paths,
    intersection,
    leaves,
    parse,
    paths,
    recursive_difference,
    union,
)
from atoll.machinery.patch.path_elements import InvalidPathElement, key_element, readable, value_element

A = from_paths([("f:a",), ("f:a", "f:b"), ("f:c", "f:d"), ("f:l", 'k:{"name":"x"}', "f:v"), ("f:s", 'v:"m"')])


def test_a_set_is_its_wire_form() -> None:
    assert A == {
        "f:a": {".": {}, "f:b": {}},
        "f:c": {"f:d": {}},
        "f:l": {'k:{"name":"x"}': {"f:v": {}}},
        "f:s": {'v:"m"': {}},
    }
    assert parse(A) == A


@pytest.mark.parametrize(
    ("sent", "canonical"),
    [
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({".": {}, "f:a": {}}, {"f:a": {}}),
        ({'k:{"b": 1,  "a":"x"}': {}}, {'k:{"a":"x","b":1}': {}}),
        ({'v:"\\u003c"': {}}, {'v:"<"': {}}),
        ({"v:80.0": {}}, {"v:80": {}}),
        ({'k:{"a":1.0}': {"f:x": {}}, 'k:{"a":1}': {"f:y": {}}}, {'k:{"a":1}': {"f:x": {}, "f:y": {}}}),
        ({"i:07": {}}, {"i:7": {}}),
        ({}, {}),
    ],
)
def test_what_clients_send_is_brought_to_one_form(sent: Any, canonical: Any) -> None:
    assert parse(sent) == canonical


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        "x",
        {"f:a": 1},
        {"a": {}},
        {"k:": {}},
        {"k:[]": {}},
        {"k:{}": {}},
        {"v:": {}},
        {"i:x": {}},
        {"": {}},
        {"f:a": {"x:b": {}}},
    ],
)
def test_what_is_no_field_set_is_refused(sent: Any) -> None:
    with pytest.raises((InvalidFieldSet, InvalidPathElement)):
        parse(sent)


def test_a_bomb_of_nested_sets_is_refused() -> None:
    bomb: dict[str, Any] = {}
    for _ in range(5000):
        bomb = {"f:a": bomb}
    with pytest.raises(InvalidFieldSet):
        parse(bomb)


def test_difference_leaves_what_lies_beneath_and_the_recursive_one_does_not() -> None:
    b = from_paths([("f:a",), ("f:s",)])
    assert difference(A, b) == {**A, "f:a": {"f:b": {}}}
    assert recursive_difference(A, b) == {"f:c": {"f:d": {}}, "f:l": A["f:l"]}


def test_difference_drops_a_node_that_empties() -> None:
    assert difference(from_paths([("f:a", "f:b")]), from_paths([("f:a", "f:b"), ("f:z",)])) == {}


def test_intersection_takes_members_of_both_only() -> None:
    b = from_paths([("f:a",), ("f:c",), ("f:c", "f:d"), ("f:s", 'v:"n"')])
    assert intersection(A, b) == {"f:a": {}, "f:c": {"f:d": {}}} == intersection(b, A)


def test_union_keeps_membership_of_a_node_and_what_is_beneath() -> None:
    assert union({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {".": {}, "f:b": {}}}
    assert union({"f:a": {"f:c": {}}}, {"f:a": {"f:b": {}}}) == {"f:a": {"f:c": {}, "f:b": {}}}
    assert union(EMPTY, A) is A is union(A, EMPTY)


def test_leaves_are_members_without_members_beneath_in_a_fixed_order() -> None:
    fields = from_paths([("f:b",), ("f:b", "f:x"), ("f:a", "f:y"), ("f:z",), ("f:b", "i:0"), ("f:b", 'v:"q"')])
    assert list(leaves(fields)) == [("f:z",), ("f:a", "f:y"), ("f:b", "f:x"), ("f:b", 'v:"q"'), ("f:b", "i:0")]


def test_contains_asks_for_membership_not_for_a_node() -> None:
    assert contains(A, ("f:a",)) and contains(A, ("f:a", "f:b")) and contains(A, ("f:c", "f:d"))
    assert not contains(A, ("f:c",)) and not contains(A, ("f:nothing",)) and not contains(A, ())


def test_paths_round_trip() -> None:
    assert from_paths(paths(A)) == A


def test_the_shared_leaf_cannot_be_written_to_and_encodes_as_an_empty_object() -> None:
    with pytest.raises(TypeError):
        A["f:a"]["f:b"]["f:oops"] = {}
    assert encode_json(A["f:a"]) == b'{".":{},"f:b":{}}'


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("f:a", ".a"),
        (key_element({"protocol": "TCP", "port": 80}), '[port=80,protocol="TCP"]'),
        (value_element("v"), '[="v"]'),
        (value_element(True), "[=true]"),
        ("i:3", "[3]"),
        (key_element({"a": 'q"'}), '[a="q\\""]'),
    ],
)
def test_elements_read_as_kubernetes_prints_them(element: str, text: str) -> None:
    assert readable(element) == text
