"""kill -9 of the shard at random moments under load: nothing acknowledged is lost, nothing promised is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from fault.scenarios.campaign import Plan, or_tell, validated_campaign
from harness.seeds import seed_of_run
from harness.servers.shard_process import ShardProcess

GATE, LONG, WORKERS = Plan(kills=3), Plan(kills=50), Plan(kills=10)
_THIS = "tests/fault/scenarios/test_kills.py"


async def test_killed_shard_keeps_every_promise(tmp_path: Path) -> None:
    seed = seed_of_run(1)
    history = await or_tell(validated_campaign(tmp_path, GATE, seed), seed, _THIS, tmp_path)
    assert sum(len(watch.sessions) for watch in history.watches) > 8 * GATE.kills


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_shard_killed_fifty_times_keeps_every_promise(tmp_path: Path) -> None:
    seed = seed_of_run(2)
    await or_tell(validated_campaign(tmp_path, LONG, seed), seed, _THIS, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_shard_with_workers_keeps_every_promise_when_its_writer_is_killed(tmp_path: Path) -> None:
    seed = seed_of_run(3)

    def start(directory: Path) -> ShardProcess:
        return ShardProcess(directory, "--workers", "2")

    await or_tell(validated_campaign(tmp_path, WORKERS, seed, start), seed, _THIS, tmp_path)
