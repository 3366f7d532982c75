"""A disk that is full under NATS: nats-server refuses a stream whose write failed until it is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.process.tasks import stop
from atoll.standalone.site.restart_requests import RestartRequests
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import QUICK, Running, read_stream
from harness.servers.nats import NatsServer, eventually
from harness.servers.small_disk import fill, leave, small_disk

DISK_BYTES = 4 << 30
KEY = ObjectKey(CONFIGMAPS, "c1", "default", "m")


def write(log: ShardLog, count: int) -> None:
    for _ in range(count):
        log.put(KEY, data={"number": f"{len(log.entries):06d}"})


@pytest.mark.long
@pytest.mark.parametrize("place", ["shard", "site", "elsewhere"])
async def test_a_server_whose_disk_was_full_has_everything_once_it_was_restarted(tmp_path: Path, place: str) -> None:
    log, following = ShardLog(), None
    with small_disk(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        async with NatsServer(disk) as nats:
            # A shard restarts its own server by itself, that of a site is its supervisor's, any other its operator's.
            requests = RestartRequests(disk / "nats")
            restart = {"shard": nats.server.restart, "site": requests.send, "elsewhere": None}[place]
            if place == "site":
                following = asyncio.create_task(requests.follow(nats.server.restart))
            running = Running(log, nats.access, msgspec.structs.replace(QUICK, restart_server=restart))
            try:
                write(log, 300)
                await running.drained()
                fill(disk)
                write(log, 300)
                said = disk / "nats" / "server.log"
                await eventually(lambda: "no space left on device" in said.read_text())
                leave(disk, 0.9)
                write(log, 300)
                if place == "elsewhere":
                    await nats.server.restart()
                await running.drained()
                events = await read_stream(nats, "changes")
            finally:
                await running.stop()
                if following is not None:
                    await stop(following)
    found = [event.revision for _, event in events if event.key is not None]
    assert found == [entry.revision for entry in log.entries]
