"""Calls of processes beside a shard: its publisher, and a front proxy before it."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.storage.published_log import PublishedLog
from harness.servers.in_process.front_proxy import BEARER, echoing, front
from harness.servers.in_process.publisher import publishing
from harness.servers.nats import NatsServer
from loadtest.bench import config_map
from loadtest.counted_shard import CountedShard
from loadtest.counting import CallCounter

_EVENTS, _SESSIONS = 200, 5
_REQUESTS = 10
_MAPS = "/clusters/root/api/v1/namespaces/published/configmaps"
_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "published"}}


async def publish(shard: CountedShard, place: Path) -> float:
    """Calls of one event in both streams, by a publisher that starts with some hundred to publish."""
    found = []
    await shard.ask("POST", "/clusters/root/api/v1/namespaces", _NAMESPACE)
    async with NatsServer(place) as nats:
        for session in range(_SESSIONS):
            for number in range(_EVENTS):
                await shard.ask("POST", _MAPS, config_map(f"c{session}-{number}"))
            await shard.idle()
            with shard.counter.counting() as counted:
                async with publishing(PublishedLog(shard.store), nats) as running:
                    await running.drained()
            found.append(counted())
    return min(found[1:]) / _EVENTS


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
