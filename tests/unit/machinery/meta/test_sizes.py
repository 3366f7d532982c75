"""The weight of cached values: the size of everything that they hold, and its bound in a cache."""

from __future__ import annotations

import msgspec
import pytest

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.sizes import size_bytes

TEXT = "x" * 1000


class Held(msgspec.Struct):
    text: str


class Slotted:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    "value",
    [TEXT, [TEXT], (1, TEXT), {"a": TEXT}, {TEXT: "a"}, {"a": [(TEXT,)]}, {TEXT}, Held(TEXT), {"a": Slotted(TEXT)}],
)
def test_a_value_weighs_what_it_holds(value: object) -> None:
    assert 1000 < size_bytes(value) < 2000


def test_a_cache_of_heavy_values_holds_few_of_them() -> None:
    cache: LruCache[int, list[str]] = LruCache(10_000, size_bytes)
    for number in range(100):
        cache.put(number, [TEXT])
    assert 5 < len(cache) < 10
