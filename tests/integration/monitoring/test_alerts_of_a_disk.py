"""A disk that fills up under a running shard: its alerts fire in turn, and it takes writes again once there is room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.prometheus import begun_to_fire
from harness.servers.shard_process import ShardProcess
from harness.servers.small_disk import leave, small_disk
from integration.monitoring.scraped import MAPS, WAIT_S

pytestmark = pytest.mark.long

#: Of a disk whose last twentieth is more than the reserve of a store.
DISK_BYTES = 16 << 30
_SERIES = re.compile(r"^atoll_store_(room_bytes|disk_bytes|full) (\S+)$", re.MULTILINE)
IN_TURN = ["AtollDiskAt70", "AtollDiskAt85", "AtollDiskAt95", "AtollStoreFull"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    with small_disk(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as made:
        yield made


def fires(texts: list[str]) -> dict[str, int]:
    """What of a disk they begin to fire: whether a machine is busy does not count."""
    return {alert: count for alert, count in begun_to_fire(texts).items() if alert in IN_TURN}


def test_a_disk_that_fills_up_fires_each_of_its_alerts_once_and_heals_with_room(disk: Path) -> None:
    with ShardProcess(disk) as shard:
        api = Api(shard, "root")

        def scraped(least: float, most: float, is_full: bool = False) -> str:
            """What it shows, once so much of its disk is room and it is full or not."""

            def text() -> str:
                shown = shard.get("/metrics", "shard-admin")[1].decode()
                of = {name: float(value) for name, value in _SERIES.findall(shown)}
                return shown if least <= of["room_bytes"] / of["disk_bytes"] < most and of["full"] == is_full else ""

            return str(eventually(text, f"room is below {most} of the disk", WAIT_S))

        found = [scraped(0.8, 1.0)]
        # What its stream of events may still grow by is no room: up to 1 GiB, less once the disk is nearly full.
        for share, most in ((0.27, 0.3), (0.14, 0.15), (0.04, 0.05)):
            leave(disk, share)
            found.append(scraped(0.0, most))
            assert fires(found) == dict.fromkeys(IN_TURN[: len(found) - 1], 1)
        api.post(MAPS, configmap("before"), expect=201)
        leave(disk, 0.01)
        found.append(scraped(0.0, 0.02, is_full=True))
        assert api.post(MAPS, configmap("refused"), expect=507).json["code"] == 507
        assert fires(found) == dict.fromkeys(IN_TURN, 1)
        leave(disk, 0.9)
        found.append(scraped(0.8, 1.0))
        api.post(MAPS, configmap("after"), expect=201)
        assert fires(found[-1:]) == {}
