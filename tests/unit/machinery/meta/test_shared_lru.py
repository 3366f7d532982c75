"""The cache whose entries share parts: what it weighs, what it evicts, and when a part is made again."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import msgspec
import pytest

from atoll.machinery.meta.shared_lru import Shared, SharedLru


class Piece(msgspec.Struct, weakref=True):
    size_bytes: int


class Holder(msgspec.Struct):
    own_bytes: int
    held: Sequence[Piece] = ()

    def parts(self) -> Sequence[Piece]:
        return self.held


def test_a_part_weighs_once_while_any_entry_holds_it() -> None:
    cache: SharedLru[str, Holder] = SharedLru(1000)
    piece = Piece(500)
    for key in "abc":
        cache.put(key, Holder(10, (piece, piece)))
    assert cache.size_bytes == 530
    cache.drop("a")
    cache.put("b", Holder(10))
    assert cache.size_bytes == 520
    cache.drop("c")
    assert cache.size_bytes == 10
    cache.put("d", Holder(10, (piece,)))
    cache.clear()
    assert cache.size_bytes == 0
    cache.put("e", Holder(10, (piece,)))
    assert cache.size_bytes == 510


def test_entries_go_least_recently_used_first_until_the_weight_fits() -> None:
    cache: SharedLru[str, Holder] = SharedLru(1000)
    piece = Piece(300)
    for key in "abc":
        cache.put(key, Holder(100, (piece,)))
    assert cache.get("a") is not None
    cache.put("d", Holder(100, (Piece(400),)))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    cache.put("e", Holder(5000))
    assert (len(cache), cache.size_bytes) == (1, 5000)


def test_a_part_is_found_by_its_content_while_it_is_held() -> None:
    shared: Shared[Piece] = Shared()
    made = shared.of({"a": 1, "b": 2}, lambda: Piece(1))
    assert shared.of({"b": 2, "a": 1}, lambda: pytest.fail("made again")) is made
    other = shared.of({"a": 1, "b": 3}, lambda: Piece(2))
    assert (other.size_bytes, len(shared)) == (2, 2)
    del made, other
    gc.collect()
    assert len(shared) == 0
