"""Calls of processes beside a shard: its publisher, and a front proxy before it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec

from atoll.machinery.storage.contract import StoreIdentity
from atoll.machinery.storage.lmdb_store import LmdbStore
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


class _OpenedLog(PublishedLog):
    """The log of a store as a process has it that opened the file some time after its first one."""

    def __init__(self, store: LmdbStore, later_s: int) -> None:
        super().__init__(store)
        self._identity = msgspec.structs.replace(store.identity, epoch=store.identity.epoch + later_s)

    @property
    def identity(self) -> StoreIdentity:
        return self._identity


async def publish(shard: CountedShard, place: Path) -> float:
    """Calls of one event in both streams, by publishers that start with some hundred to publish."""
    found: dict[int, list[int]] = {_FEW: [], _MANY: []}
    names = count()
    await shard.ask("POST", "/clusters/root/api/v1/namespaces", _NAMESPACE)
    async with NatsServer(place) as nats:
        for session, events in enumerate((_FEW, _MANY) * _SESSIONS):
            for _ in range(events):
                await shard.ask("POST", _MAPS, config_map(f"c{next(names)}"))
            await shard.idle()
            with shard.counter.counting() as counted:
                async with publishing(_OpenedLog(shard.store, session), nats) as running:
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
