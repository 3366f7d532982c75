"""Fencing tokens: what an older token asks is refused once a newer one has written, wherever the writer runs."""

from __future__ import annotations

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


async def test_of_too_many_writers_the_one_heard_first_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_rows, "MAX_WRITERS", 2)
    store = open_store(store_options(tmp_path / "store"))
    try:
        for writer in ("first", "second", "third"):
            await store.submit([put(key(writer))], [FencingToken(writer, 7)])
        with pytest.raises(GuardFailed):
            await store.submit([put(key("x"))], [FencingToken("second", 6)])
        await store.submit([put(key("y"))], [FencingToken("first", 6)])
    finally:
        await store.close()
