"""Calls of processes beside a shard: its publisher, and a front proxy before it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from atoll.machinery.storage.published_log import PublishedLog
from harness.servers.in_process.front_proxy import BEARER, echoing, front
from harness.servers.in_process.publisher import publishing
from harness.servers.nats import NatsServer
from loadtest.bench import config_map
from loadtest.counted_shard import CountedShard
from loadtest.counting import CallCounter

#: What starting takes is the same for both numbers of events.
_FEW, _MANY, _SESSIONS = 50, 200, 4
_REQUESTS = 10
_MAPS = "/clusters/root/api/v1/namespaces/published/configmaps"
_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "published"}}


async def publish(shard: CountedShard, place: Path) -> float:
    """Calls of one event in both streams, by publishers that start with some hundred to publish."""
    found: dict[int, list[int]] = {_FEW: [], _MANY: []}
    names = count()
    await shard.ask("POST", "/clusters/root/api/v1/namespaces", _NAMESPACE)
    async with NatsServer(place) as nats:
        for events in (_FEW, _MANY) * _SESSIONS:
            for _ in range(events):
                await shard.ask("POST", _MAPS, config_map(f"c{next(names)}"))
            await shard.idle()
            with shard.counter.counting() as counted:
                async with publishing(PublishedLog(shard.store), nats) as running:
                    await running.drained()
            found[events].append(counted())
    return (min(found[_MANY]) - min(found[_FEW][1:])) / (_MANY - _FEW)


async def proxied_get(counter: CallCounter, place: Path) -> float:
    """Calls of a front proxy for one GET; the backend is a stand-in, whose HTTP server is counted too."""
    found = []
    async with echoing() as backend, front(place, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        for _ in range(_REQUESTS):
            with counter.counting() as counted:
                await client.ask("/clusters/root:org/api/v1/namespaces", headers=BEARER)
            found.append(counted())
    return min(found)
