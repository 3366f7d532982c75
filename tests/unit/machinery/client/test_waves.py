"""What comes soon after another leaves with the next wave, all of it together, and what comes alone at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.waves import Waves
from atoll.machinery.process.tasks import stop
from harness.servers.stand_ins.canned_api import CannedApi, serving, thing

CONFIGMAPS = Resource("", "v1", "configmaps")
AT = "/clusters/root/api/v1/namespaces/default/configmaps"
#: None leaves by itself in a test.
NEVER_S = 3600.0


async def turns() -> None:
    """Let everybody go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


def leave(waves: Waves) -> None:
    """Have the next wave leave now."""
    assert waves._next is not None
    waves._leave(waves._next)


async def test_what_comes_after_another_leaves_with_all_that_wait_and_one_that_ends_holds_up_nobody() -> None:
    waves = Waves(NEVER_S)
    with pytest.raises(StopIteration):
        waves.join().send(None)
    waiting = [asyncio.create_task(waves.join()) for _ in range(5)]
    await turns()
    assert not any(each.done() for each in waiting)
    await stop(waiting.pop())
    leave(waves)
    await turns()
    assert all(each.done() for each in waiting)
    after = asyncio.create_task(waves.join())
    await turns()
    assert not after.done(), "a wave has just left"
    leave(waves)
    await after
    waves._free_at_s = 0.0
    with pytest.raises(StopIteration):
        waves.join().send(None)


async def test_waves_leave_by_themselves() -> None:
    waves, loop = Waves(0.05), asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(4 * 0.15 + 5):
        await waves.join()
        await asyncio.gather(waves.join(), waves.join())
        await waves.join()
    assert loop.time() - began_s >= 0.099


@pytest.fixture
async def api() -> AsyncIterator[CannedApi]:
    async with serving(CannedApi()) as api:
        yield api


async def test_writes_of_all_clusters_leave_in_waves_and_reads_at_once(api: CannedApi, tmp_path: Path) -> None:
    other = AT.replace("root", "other")
    for route in (f"GET {AT}/a", f"PUT {AT}/a", f"PUT {other}/a", f"DELETE {other}/a"):
        api.on(route, thing("a", 1))
    waves, obj = Waves(NEVER_S), {"metadata": {"name": "a", "namespace": "default"}}
    async with Client(Kubeconfig.load(str(api.kubeconfig(tmp_path))).target()) as plain:
        client = plain.within(waves)
        await client.update(CONFIGMAPS, obj)
        async with asyncio.timeout(20):
            await client.get(CONFIGMAPS, "a", "default")
        beside = client.cluster("other")
        waiting = [
            asyncio.create_task(beside.update(CONFIGMAPS, obj)),
            asyncio.create_task(beside.delete(CONFIGMAPS, "a", "default")),
        ]
        await turns()
        await plain.update(CONFIGMAPS, obj)
        assert api.paths() == [f"PUT {AT}/a", f"GET {AT}/a", f"PUT {AT}/a"]
        leave(waves)
        await asyncio.gather(*waiting)
        assert sorted(api.paths()[3:]) == [f"DELETE {other}/a", f"PUT {other}/a"]
