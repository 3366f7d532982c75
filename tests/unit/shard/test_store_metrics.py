"""What a shard shows of its store's disk, clock and commits."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from atoll.machinery.storage.clock import MAX_STEP_S
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.store_metrics import StoreMetrics
from harness.data.stores import HandClock, key, put, store_options


async def test_room_commits_and_a_refused_clock_are_shown_and_one_commit_a_second_is_timed(tmp_path: Path) -> None:
    hand, registry = HandClock(), CollectorRegistry()
    store = open_store(store_options(tmp_path), clock=hand.clock())
    StoreMetrics(store, registry)

    def value(name: str) -> float:
        found = registry.get_sample_value(f"atoll_{name}")
        assert found is not None, name
        return found

    try:
        await store.submit([put(key("a"))])
        await store.submit([put(key("b"))])
        assert value("store_sync_duration_seconds_count") == 1, "the first of this second"
        hand.pass_time(2.0)
        await store.submit([put(key("c"))])
        assert value("store_sync_duration_seconds_count") == 2
        assert (value("store_commits_total"), value("store_submits_total"), value("store_full")) == (3, 3, 0)
        assert 0 < value("store_used_bytes") < value("store_disk_bytes")
        assert 0 < value("store_room_bytes") <= value("store_disk_bytes") + store.space.used_bytes
        assert filesystem.free_bytes(tmp_path) <= filesystem.size_bytes(tmp_path)
        assert value("clock_refused_step_seconds") == 0
        hand.wall_s += 2 * MAX_STEP_S
        assert value("clock_refused_step_seconds") == 2 * MAX_STEP_S
        hand.wall_s -= 2 * MAX_STEP_S
        assert value("clock_refused_step_seconds") == 0, "without a commit"
    finally:
        await store.close()
