"""The bound of the changes stream: a part of the disk, or the minimum while the store is full.

The room of the store excludes the space that the stream may still fill.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.stream.connection import Unavailable
from atoll.standalone import stream_quota
from atoll.standalone.stream_quota import LEAST_BYTES, StreamQuota
from harness.data.stores import store_options

GIB = 1 << 30


def keep_free(store: LmdbStore, reserve_bytes: int) -> None:
    """Set the disk space that the store keeps free."""
    store.options = store_options(Path(store.options.directory), reserve_bytes=reserve_bytes)
    store.space._options = store.options


@pytest.mark.parametrize(
    "disk_bytes, bound", [(256 * GIB, GIB), (8 * GIB, GIB // 2), (520 << 20, 520 << 16), (100 << 20, LEAST_BYTES)]
)
async def test_the_stream_takes_a_part_of_the_disk(tmp_path: Path, disk_bytes: int, bound: int) -> None:
    store = open_store(store_options(tmp_path / "store"))
    quota = StreamQuota(tmp_path / "nats", store, disk_bytes)
    assert quota.max_bytes == max(bound, LEAST_BYTES)
    assert store.space.claimed_bytes == quota.max_bytes
    await store.close()


async def test_what_the_stream_may_still_grow_by_is_no_room_of_the_store(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    messages = tmp_path / "nats/store/jetstream/SHARD/streams/atoll-changes-root/msgs"
    messages.mkdir(parents=True)
    quota = StreamQuota(tmp_path / "nats", store, 8 * GIB)
    (messages / "1.blk").write_bytes(b"x" * (1 << 20))
    assert not quota.update()
    assert store.space.claimed_bytes == GIB // 2 - (1 << 20)
    # Only the claim reduces the room of the store.
    with_claim, claimed = store.space.room_bytes, store.space.claimed_bytes
    store.space.claimed_bytes = 0
    store.space.measure()
    assert store.space.room_bytes - with_claim > claimed // 2
    await store.close()


async def test_the_streams_of_one_server_share_one_part_and_all_are_claimed(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    quota = StreamQuota(tmp_path / "nats", store, 8 * GIB)
    assert quota.max_bytes == GIB // 2
    for shard in ("root", "shard-1"):
        messages = tmp_path / f"nats/store/jetstream/{shard}/streams/atoll-changes-{shard}/msgs"
        messages.mkdir(parents=True)
        (messages / "1.blk").write_bytes(b"x" * (1 << 20))
    assert quota.update()
    assert (quota.max_bytes, store.space.claimed_bytes) == (GIB // 4, GIB // 2 - (2 << 20))
    assert not quota.update()
    await store.close()


async def test_a_full_store_leaves_the_stream_the_least_until_there_is_room_again(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    quota = StreamQuota(tmp_path / "nats", store, 256 * GIB)
    keep_free(store, 1 << 60)
    assert quota.update()
    assert (quota.max_bytes, store.space.claimed_bytes, store.space.full) == (LEAST_BYTES, LEAST_BYTES, True)
    keep_free(store, store.space.room_bytes * 2 // 3 + (1 << 60))
    assert not quota.update()
    # The room covers the reserve, but not twice the reserve: the bound stays.
    store.space.measure()
    keep_free(store, (store.space.room_bytes + store.space.claimed_bytes) * 2 // 3)
    assert not quota.update()
    assert (quota.max_bytes, store.space.full) == (LEAST_BYTES, False)
    keep_free(store, 1)
    assert quota.update()
    assert (quota.max_bytes, store.space.full) == (GIB, False)
    await store.close()


async def test_a_stream_that_cannot_be_resized_now_is_resized_later(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    quota = StreamQuota(tmp_path / "nats", store, 256 * GIB)
    keep_free(store, 1 << 60)
    sizes: list[int] = []

    async def resize(max_bytes: int) -> None:
        sizes.append(max_bytes)
        keep_free(store, 1)
        if len(sizes) == 2:
            raise StopAsyncIteration
        raise Unavailable("not now")

    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await quota.run(resize)
    assert sizes == [LEAST_BYTES, GIB]
    await store.close()


async def test_a_store_that_becomes_full_gets_the_claim_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_quota, "_INTERVAL_S", 3600.0)
    store = open_store(store_options(tmp_path / "store"))
    quota = StreamQuota(tmp_path / "nats", store, 256 * GIB)
    resized: asyncio.Queue[int] = asyncio.Queue()
    running = asyncio.create_task(quota.run(resized.put))
    try:
        await asyncio.sleep(0)
        assert store.space.claimed_bytes == GIB
        # The claim alone is what the reserve lacks.
        keep_free(store, store.space.room_bytes + GIB // 2)
        store.space.measure()
        assert store.space.full
        assert await asyncio.wait_for(resized.get(), 60) == LEAST_BYTES
        assert (store.space.claimed_bytes, store.space.full) == (LEAST_BYTES, False)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()
