"""The bounded dictionary: what it evicts, and when."""

from __future__ import annotations

from atoll.machinery.meta.lru import LruCache


def test_the_least_recently_used_goes_when_the_bound_is_passed() -> None:
    cache: LruCache[str, int] = LruCache(3)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert cache.values() == [0, 1, 2] and cache.get("a") == 0
    cache.put("d", 3)
    assert cache.values() == [2, 0, 3] and cache.get("b") is None


def test_weights_are_charged_and_given_back() -> None:
    cache: LruCache[str, bytes] = LruCache(10, len)
    cache.put("a", b"xxxx")
    cache.put("a", b"xxxxxx")
    cache.put("b", b"xxxx")
    assert len(cache) == 2
    cache.put("c", b"x")
    assert cache.values() == [b"xxxx", b"x"]
    cache.drop("b")
    cache.put("d", b"x" * 9)
    assert len(cache) == 2


def test_the_newest_entry_stays_however_heavy() -> None:
    cache: LruCache[str, bytes] = LruCache(1, len)
    for key in "ab":
        cache.put(key, b"xxxx")
    assert (len(cache), cache.get("b")) == (1, b"xxxx")
