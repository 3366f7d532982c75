"""The disk of the NATS server of `atoll start --shards` is full for a while: what was written then is published later.

nats-server goes on refusing a stream whose write failed, so the site restarts it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from atoll.events import changes
from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
from harness.servers.small_disk import fill, leave, small_disk
from integration.site.test_start import StartedSite

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DISK_BYTES = 4 << 30
#: Four times what two failures of a publisher and a start of the server take on a busy machine.
LONG_S = 240.0
REFUSED = "no space left on device"


async def test_a_site_restarts_its_nats_server_once_its_disk_has_room_again(tmp_path: Path) -> None:
    site = StartedSite(tmp_path, "--shards", "1")
    site.root.mkdir(mode=0o700)
    with small_disk(tmp_path / "image", site.root / "nats", DISK_BYTES) as disk:
        try:
            await asyncio.to_thread(site.start)
            await asyncio.to_thread(_written_while_full, site, Kubectl(tmp_path, site.kubeconfig), disk)
            async with asyncio.timeout(LONG_S), aclosing(changes(site.root / "shards/root/stream.json")) as reading:
                async for event in reading:
                    if event.key is not None and event.key.name == "written-later":
                        break
        finally:
            await asyncio.to_thread(site.end)


def _written_while_full(site: StartedSite, kubectl: Kubectl, disk: Path) -> None:
    """Fill the disk until a stream has failed, make room again, and wait for another server."""
    before, written = site.processes()["nats"], 0
    fill(disk)

    def has_failed() -> bool:
        nonlocal written
        written += 1
        kubectl.ok("create", "configmap", f"w-{written}", f"--from-literal=k={'x' * 100_000}")
        return REFUSED in (disk / "server.log").read_text()

    eventually(has_failed, "a write of the server failed", LONG_S)
    leave(disk, 0.9)
    kubectl.ok("create", "configmap", "written-later")
    eventually(lambda: site.processes().get("nats", before) != before, "another server", LONG_S)
    assert "as a shard cannot publish" in site.err.read_text()
