"""Correlation of new and old values: which values are unchanged, and the old item of each new item."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kinds.rules.correlation import CorrelatedValue, Correlation, OldItems, unchanged

STRING = {"type": "string"}
ITEM = {"type": "object", "properties": {"k": STRING, "v": STRING}}
MAP_LIST = {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
ATOMIC = {"type": "array", "items": ITEM}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "value", "old", "same"),
    [
        (STRING, "a", "a", True),
        (STRING, "a", "b", False),
        ({"type": "boolean"}, True, 1, False),
        (ITEM, {"k": "a"}, {"k": "a"}, True),
        (ITEM, {"k": "a"}, {"k": "a", "v": "b"}, False),
        (MAP_LIST, [{"k": "a"}, {"k": "b"}], [{"k": "b"}, {"k": "a"}], True),
        (MAP_LIST, [{"k": "a"}], [{"k": "b"}], False),
        (ATOMIC, [{"k": "a"}, {"k": "b"}], [{"k": "b"}, {"k": "a"}], False),
        (ATOMIC, [{"k": "a"}], [{"k": "a"}], True),
        (OPEN, {"x": 1}, {"x": 1}, False),
        (STRING, None, None, True),
        (ITEM, {"k": "a"}, None, False),
    ],
)
def test_a_part_is_unchanged_if_all_that_its_schema_knows_is(schema: Any, value: Any, old: Any, same: bool) -> None:
    assert unchanged(schema, value, old) is same


def test_old_items_are_found_by_key_and_the_first_wins() -> None:
    old = OldItems(MAP_LIST, [{"k": "a", "v": "1"}, {"k": "a", "v": "2"}, {"v": "3"}, "odd"])
    assert old.find({"k": "a", "v": "9"}) == {"k": "a", "v": "1"}
    assert old.find({"k": "b"}) is None
    assert old.find({"v": "3"}) is None
    assert old.find("odd") is None
    assert OldItems(ATOMIC, [{"k": "a"}]).find({"k": "a"}) is None


def test_where_a_part_has_no_past_the_nearest_part_above_decides() -> None:
    value, old = {"l": [{"k": "a"}]}, {"l": [{"k": "a"}]}
    schema = {"type": "object", "properties": {"l": ATOMIC}}
    below = Correlation(CorrelatedValue(schema, value, old)).key("l").item({"k": "a"}, None)
    assert below.is_same()
    changed = {"l": [{"k": "b"}]}
    assert not Correlation(CorrelatedValue(schema, changed, old)).key("l").item({"k": "b"}, None).is_same()


def test_the_version_and_kind_of_the_root_have_no_past() -> None:
    schema = {"type": "object", "properties": {"kind": STRING, "a": STRING}}
    root = Correlation(CorrelatedValue(schema, {"kind": "A", "a": "x"}, {"kind": "A", "a": "x"}))
    assert not root.key("kind").is_same()
    assert root.key("a").is_same()


def test_a_new_object_has_no_past() -> None:
    assert not Correlation(None).key("a").is_same()
