"""A worker whose writer dies or fails: it reports no write that was not committed, and it waits for nothing in vain."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.workers.frames import WriterError
from atoll.machinery.storage.workers.worker_store import connect_store
from atoll.machinery.storage.writing.writer import StoreClosed
from harness.data.stores import create, key, put, store_options
from harness.servers.store_writer import LIMIT_S, StoreWriter


async def test_submits_fail_as_unknown_when_the_writer_dies_and_reads_go_on(tmp_path: Path) -> None:
    options = store_options(tmp_path / "store")
    with tempfile.TemporaryDirectory() as home:
        async with StoreWriter(options, socket := Path(home) / "s") as writer:
            store = await connect_store(options, socket)
            await create(store, "a")
            submits = [asyncio.create_task(store.submit([put(key(f"n{index}"))])) for index in range(200)]
            await asyncio.sleep(0)
            await writer.kill()
            done = await asyncio.gather(*submits, return_exceptions=True)
            await store.disconnected.wait()
            acknowledged = [f"n{index}" for index, result in enumerate(done) if isinstance(result, list)]
            assert all(isinstance(result, list | StoreClosed) for result in done)
            with store.snapshot() as snapshot:
                assert snapshot.get(key("a")) is not None
                assert all(snapshot.get(key(name)) is not None for name in acknowledged)
            with pytest.raises(StoreClosed):
                await store.submit([put(key("late"))])
            await store.close()
    assert fsck(options) == []


async def test_a_search_that_fails_in_the_writer_fails_in_the_worker(tmp_path: Path) -> None:
    options = store_options(tmp_path / "store")
    with tempfile.TemporaryDirectory() as home:
        async with StoreWriter(options, socket := Path(home) / "s"), asyncio.timeout(LIMIT_S):
            store = await connect_store(options, socket)
            with pytest.raises(WriterError, match="LookupError: no shards are known here"):
                await store.seek("faraway")
            await create(store, "a")
            await store.close()


async def test_a_call_is_answered_by_the_writers_process_and_fails_once_that_is_gone(tmp_path: Path) -> None:
    options = store_options(tmp_path / "store")
    with tempfile.TemporaryDirectory() as home:
        async with StoreWriter(options, socket := Path(home) / "s"), asyncio.timeout(LIMIT_S):
            store = await connect_store(options, socket)
            assert [await store.call(b"a"), await store.call(b"b")] == [b"A", b"B"]
            with pytest.raises(WriterError, match="LookupError: nothing is known here"):
                await store.call(b"bad")
            await store.close()
            with pytest.raises(StoreClosed):
                await store.call(b"a")
