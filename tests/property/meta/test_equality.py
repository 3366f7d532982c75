"""Equality of JSON values equals a comparison type by type."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from atoll.machinery.meta.equality import same

SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 0.0, 1.0, -0.0, 2.5, "", "1", "true"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=8
)


def equal(a: Any, b: Any) -> bool:
    """The equality of structured-merge-diff, type by type."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


def variants(value: Any) -> st.SearchStrategy[Any]:
    """The same value with numbers of another type, or booleans for numbers, at some places."""
    if isinstance(value, dict):
        return st.fixed_dictionaries({key: variants(each) for key, each in reversed(value.items())})
    if isinstance(value, list):
        return st.tuples(*map(variants, value)).map(list)
    others = [1, 1.0, True] if value == 1 else [0, 0.0, False] if value == 0 else [value]
    return st.sampled_from([value, *others])


@settings(deadline=None)
@given(VALUES.flatmap(lambda value: st.tuples(st.just(value), variants(value) | VALUES)))
def test_equality_is_that_of_json(pair: tuple[Any, Any]) -> None:
    assert same(*pair) is same(*reversed(pair)) is equal(*pair)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1.0, True),
        ({"a": [1]}, {"a": [1.0]}, True),
        (1, True, False),
        (0, False, False),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": [1.0, 1]}, {"a": [1, True]}, False),
        ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([], {}, False),
        (None, False, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_a_number_equals_an_equal_number_at_any_depth_and_never_a_boolean(a: Any, b: Any, expected: bool) -> None:
    assert same(a, b) is expected
