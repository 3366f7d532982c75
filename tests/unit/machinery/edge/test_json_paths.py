"""JSON paths of Customizers, case by case."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.edge.json_paths import BadPath, Budget, OverBudget, is_definite, parse, replaced

V = "new"
ITEMS = [{"ab": 1}, {"ab": 2}, {"ab": 3}, {"cd": 4}, {"ab": 5}]


def put(value: Any, path: str, new: Any = V) -> Any:
    return replaced(copy.deepcopy(value), parse(path), lambda: copy.deepcopy(new), Budget(10_000, 10_000))


@pytest.mark.parametrize(
    ("value", "path", "wanted"),
    [
        ({"a": 1}, "$", V),
        ({"a": {"b": 1, "c": 2}}, "$.a.b", {"a": {"b": V, "c": 2}}),
        ({"a": {"b": 1}}, "$['a'][\"b\"]", {"a": {"b": V}}),
        ({"a": {"b": [1, 2]}}, "$.a.b.1", {"a": {"b": [1, V]}}),
        ({"a": {"b": [1, 2]}}, "$.a.b[0]", {"a": {"b": [V, 2]}}),
        ({"a": [1, 2, 3]}, "$.a[ 0, 2 ]", {"a": [V, 2, V]}),
        ({"a": 1, "b": 2, "c": 3}, "$['a','c']", {"a": V, "b": 2, "c": V}),
        ({"a": 1, "b": 2}, "$.*", {"a": V, "b": V}),
        ({"a": [1, 2]}, "$.a[*]", {"a": [V, V]}),
        ({"a": [1, 2]}, "$.a.*", {"a": [V, V]}),
        ({"def": 1, "x": [{"def": {"def": 2}}]}, "$..def", {"def": V, "x": [{"def": V}]}),
        ({"x": {"a": 1}, "y": [{"a": 2}]}, "$..['a']", {"x": {"a": V}, "y": [{"a": V}]}),
        ({"x": {"a": 1}}, "$..*", {"x": V}),
        ({"x": {"a": 1}}, "$..", V),
        ({"def": [0, 1, 2]}, "$.def[1:2]", {"def": [0, V, 2]}),
        ({"def": [0, 1, 2, 3, 4]}, "$.def[2::2]", {"def": [0, 1, V, 3, V]}),
        ({"def": [0, 1, 2]}, "$.def[:2]", {"def": [V, V, 2]}),
        ({"def": [0, 1, 2]}, "$.def[:]", {"def": [V, V, V]}),
        (ITEMS, "$[2::2].ab", [*ITEMS[:2], {"ab": V}, ITEMS[3], {"ab": V}]),
        (ITEMS, "$[2:3].xy", [*ITEMS[:2], {"ab": 3, "xy": V}, *ITEMS[3:]]),
        (ITEMS, "$[2:4].xy", ITEMS),
        (ITEMS, "$..xy", ITEMS),
        (ITEMS, "$.*.xy", ITEMS),
        ({}, "$.a", {"a": V}),
        ({}, '$.a.b["c/d"]', {"a": {"b": {"c/d": V}}}),
        ({}, "$['a','b'].c", {"a": {"c": V}, "b": {"c": V}}),
        ({}, "$.a[0].b", {}),
        ({}, "$.a.0", {}),
        ({}, "$.a.*", {}),
        ({"a": [1]}, "$.a[1]", {"a": [1]}),
        ({"a": [1]}, "$.a[5:6]", {"a": [1]}),
        ({"a": [1]}, "$.a.b", {"a": [1]}),
        ({"a": "text"}, "$.a.b", {"a": "text"}),
        ({"a": {"b": 1}}, "$.a[0]", {"a": {"b": 1}}),
        ({"a": None}, "$.a", {"a": V}),
        ({"a": None}, "$.a.b", {"a": None}),
        ({"0": 1}, "$['0']", {"0": V}),
        ({"ab'c": 1}, r"$['ab\'c']", {"ab'c": V}),
        ({"\u00e9\n": 1}, r'$["\u00E9\n"]', {"\u00e9\n": V}),
        ({"\U0001f600A": 1}, r'$["\ud83d\ude00\x41"]', {"\U0001f600A": V}),
        ({"$x_1": 1}, "$.$x_1", {"$x_1": V}),
    ],
)
def test_a_path_replaces_what_it_selects_and_nothing_else(value: Any, path: str, wanted: Any) -> None:
    assert put(value, path) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", 'must begin with "\\$"'),
        ("", "must begin"),
        ("$.", "from character 2"),
        ("$.a-b", "from character 4"),
        ("$.a[-1]", "from character 4"),
        ("$.a[?(@.b)]", "from character 4"),
        ("$.a[0", "from character 4"),
        ("$.a['b]", "from character 4"),
        ("$a", "from character 2"),
        ("$[0:1:0]", "step 0"),
        ("$[1234567890]", "too large"),
        ("$['\\ud800']", "no character"),
        ("$" + ".a" * 65, "more than 64"),
    ],
)
def test_a_text_that_is_no_path_says_where(text: str, message: str) -> None:
    with pytest.raises(BadPath, match=message):
        parse(text)


def test_a_definite_path_has_names_lists_and_single_elements_alone() -> None:
    assert all(is_definite(parse(each)) for each in ("$", "$.a.0", "$['a','b'][1,2]", "$[2:3].x"))
    assert not any(is_definite(parse(each)) for each in ("$.*", "$..a", "$[2:]", "$[:2]", "$[0:4]", "$[*]"))


def test_a_value_is_not_shared_between_the_places_that_it_is_put_in() -> None:
    found = put({"a": 1, "b": 2}, "$.*", {"x": 1})
    assert found["a"] is not found["b"]


@pytest.mark.parametrize("path", ["$..*..*..*", "$..a..a..a..a"])
def test_a_path_that_visits_much_ends_with_its_budget(path: str) -> None:
    value: Any = {"a": 1}
    for _ in range(100):
        value = {"a": value, "b": [value] if len(str(value)) < 1000 else []}
    with pytest.raises(OverBudget, match="steps"):
        replaced(value, parse(path), lambda: V, Budget(10_000, 10_000))
