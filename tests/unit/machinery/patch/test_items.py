"""Identity of list items: the same item always has the same path element, cached or not."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.patch.structuredmerge import items
from atoll.machinery.patch.structuredmerge.items import by_element, element_of, elements_of, grouped
from harness.data.patch_schemas import SCHEMA


def _type(name: str) -> Any:
    spec = SCHEMA.root.field("spec")
    assert spec is not None
    return spec.field(name)


def test_elements_of_a_list_are_those_of_its_items_again_and_again() -> None:
    keyed = _type("items")
    values: list[Any] = [{"name": "a"}, {"name": 'q"'}, {"name": "é"}, {"name": 5}, {"name": "x" * 300}, {"name": "a"}]
    for _ in range(2):
        assert elements_of(values, keyed) == [element_of(value, keyed) for value in values]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_cache", {str(number): {} for number in range(items._MAX_KEYS)})
    keyed = _type("items")
    for start in range(0, 3 * items._MAX_VALUES, 500):
        values = [{"name": f"n{number}"} for number in range(start, start + 500)]
        assert elements_of(values, keyed) == [element_of(value, keyed) for value in values]
    many = [{"name": f"m{number}"} for number in range(2 * items._MAX_VALUES)]
    assert len(elements_of(many, keyed) or []) == len(many)
    assert len(items._cache) <= items._MAX_KEYS
    assert all(len(found) <= items._MAX_VALUES for found in items._cache.values())


@pytest.mark.parametrize("value", [[{"image": "x"}], [5], [None], [{"name": "a"}, "b"]])
def test_a_list_with_an_item_that_has_no_key_has_no_elements(value: list[Any]) -> None:
    assert elements_of(value, _type("items")) is None
    assert by_element(value, _type("items")) is None
    assert grouped(value, _type("items")) is None


def test_a_list_with_two_of_an_item_is_grouped_and_not_told_apart() -> None:
    twice = [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]
    assert by_element(twice, _type("items")) is None
    assert grouped(twice, _type("items")) == {'k:{"name":"a"}': twice}
    assert by_element(["p", "q"], _type("set")) == {'v:"p"': "p", 'v:"q"': "q"}
