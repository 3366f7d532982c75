"""Fencing tokens: what an older token asks is refused once a newer one has written, wherever the writer runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.storage.contract import GuardFailed, Store
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.writing import fence_rows
from harness.data.stores import delete, key, put, store_options


async def test_after_a_newer_token_nothing_is_written_with_an_older_one(store: Store) -> None:
    await store.submit([put(key("a"))], [FencingToken("edge", 5)])
    [revision] = await store.submit([put(key("b"))], [FencingToken("edge", 6)])
    for mutation in (put(key("c")), delete(key("b"), revision)):
        with pytest.raises(GuardFailed) as refused:
            await store.submit([mutation], [FencingToken("edge", 5)])
        assert refused.value.guard == FencingToken("edge", 5)
    await store.submit([put(key("d"))], [FencingToken("edge", 6)])


async def test_a_token_concerns_its_writer_alone_and_a_bad_one_writes_nothing(store: Store) -> None:
    await store.submit([put(key("a"))], [FencingToken("edge", 6)])
    await store.submit([put(key("b"))], [FencingToken("other", 1)])
    with pytest.raises(GuardFailed):
        await store.submit([put(key("c"))], [FencingToken("third", -1)])


async def test_a_write_that_is_refused_leaves_no_token(store: Store) -> None:
    with pytest.raises(GuardFailed):
        await store.submit([put(key("a"))], [FencingToken("edge", 9), FencingToken("bad", -1)])
    await store.submit([put(key("a"))], [FencingToken("edge", 1)])


async def refused(store: Store, token: FencingToken) -> bool:
    """Whether a write with this token is refused; else it is made."""
    try:
        await store.submit([put(key(f"{token.home}-{token.writer}-{token.number}"))], [token])
    except GuardFailed:
        return True
    return False


@pytest.fixture
async def own_store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose writer runs in this process."""
    store = open_store(store_options(tmp_path / "store"))
    yield store
    await store.close()


async def test_a_writer_is_one_of_its_home(store: Store) -> None:
    await store.submit([put(key("a"))], [FencingToken("edge", 6, "home")])
    assert await refused(store, FencingToken("edge", 5, "home"))
    assert not await refused(store, FencingToken("edge", 5, "other"))


async def test_of_too_many_writers_of_a_home_the_one_heard_first_is_forgotten_and_none_of_another(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_rows, "MAX_OF_HOME", 2)
    for home, writer in (("edge", "a"), ("tenant", "first"), ("tenant", "second"), ("tenant", "third")):
        assert not await refused(own_store, FencingToken(writer, 7, home))
    assert await refused(own_store, FencingToken("a", 6, "edge"))
    assert await refused(own_store, FencingToken("second", 6, "tenant"))
    assert await refused(own_store, FencingToken("third", 6, "tenant"))
    assert not await refused(own_store, FencingToken("first", 6, "tenant"))


async def test_of_too_many_writers_of_all_homes_those_of_the_largest_are_forgotten(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_rows, "MAX_WRITERS", 5)
    monkeypatch.setattr(fence_rows, "FORGOTTEN_AT_ONCE", 1)
    writers = [("edge", "a"), ("edge", "b"), *(("tenant", f"t{number}") for number in range(3))]
    for home, writer in (*writers, ("another", "c")):
        assert not await refused(own_store, FencingToken(writer, 7, home))
    for home, writer in writers:
        assert await refused(own_store, FencingToken(writer, 6, home)) == (writer != "t0"), writer
