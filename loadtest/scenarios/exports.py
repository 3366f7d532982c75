"""What do 10,000 exports on three shards cost, and is binding one as fast with them as with a few?

Bindings are to exports of all shards, from a workspace on one. The time is from the POST of an APIBinding to the watch
event that shows it Bound, before the many exports and with them. The CPU of an export is that of all shards, with
identity, endpoint slice, replication and cache server; of the first tenth and of the last. Memory is that without
mapped pages.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import Api
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, binding, export, phase, schema
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import BASE
from harness.servers.site import Site
from loadtest import processes
from loadtest.bench import Bench, percentile, sound
from loadtest.http import Origin, closed_loop
from loadtest.report import Row

SHARDS, CLIENTS, PER_PROVIDER, PARTS = 3, 4, 100, 10
SETTLE_S, LIMIT_S = 5, 1800.0


class Offer(msgspec.Struct, frozen=True):
    """An export in a provider's workspace."""

    shard: str
    cluster: str
    plural: str


_RequestOf: TypeAlias = Callable[[Origin, Offer], bytes]


class Exporters:
    """Providers' workspaces on all shards, and what they offer."""

    def __init__(self, site: Site, cache: CacheProcess, count: int) -> None:
        self.site, self.cache = site, cache
        names = list(zip(cycle(site.shards), range(max(count // PER_PROVIDER, SHARDS)), strict=False))
        self._clusters = [(shard, place(site, shard).cluster) for shard, _ in names]

    def offers(self, prefix: str, count: int) -> list[Offer]:
        """Return that many exports to make, spread over the workspaces."""
        pairs = zip(range(count), cycle(self._clusters), strict=False)
        return [Offer(shard, cluster, f"{prefix}{number}s") for number, (shard, cluster) in pairs]

    async def make(self, offers: Sequence[Offer]) -> float:
        """Make exports on all shards at once; return the CPU seconds until all other processes have them."""
        before = self._cpu_s()
        for made in (_schema_request, _export_request):
            await asyncio.gather(*(self._send(shard, made, offers) for shard in self.site.shards))
        await asyncio.gather(*(self._arrived(offer) for offer in offers[-SHARDS:]))
        return self._cpu_s() - before

    async def _send(self, shard: str, made: _RequestOf, offers: Sequence[Offer]) -> None:
        endpoint = self.site.shards[shard].endpoint("shard-admin")
        origin = Origin("127.0.0.1", urlsplit(endpoint.url).port or 0, endpoint.tls(), "")
        requests = [made(origin, offer) for offer in offers if offer.shard == shard]
        if requests:
            sound(await closed_loop(origin, iter(requests), CLIENTS, LIMIT_S))

    async def _arrived(self, offer: Offer) -> None:
        """Return when the cache server shows the identity of an export."""
        path = f"{BASE}/shards/{offer.shard}/clusters/{offer.cluster}{EXPORTS}/{offer.plural}"
        async with asyncio.timeout(LIMIT_S):
            while b"identityHash" not in (await self.cache.ask(path)).body:  # noqa: ASYNC110  (another process)
                await asyncio.sleep(0.1)

    def _cpu_s(self) -> float:
        return sum(map(processes.cpu_s, [self.cache.pid, *(shard.pid for shard in self.site.shards.values())]))

    async def memory_mb(self) -> tuple[float, float]:
        """Return what the cache server holds, and the shards together."""
        await asyncio.sleep(SETTLE_S)
        shards = [shard.pid for shard in self.site.shards.values()]
        return processes.memory([self.cache.pid]).private / 1e6, processes.memory(shards).private / 1e6


async def run(bench: Bench) -> list[Row]:
    directory, count, rounds = bench.place(), bench.size(1000, 10_000), bench.size(30, 60)
    try:
        async with Site(directory, shards=SHARDS, proxy=False) as site:
            access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
            with CacheProcess(directory / "cache", access) as cache:
                await cache.ready()
                return await _measured(await asyncio.to_thread(Exporters, site, cache, count), count, rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _measured(exporters: Exporters, count: int, rounds: int) -> list[Row]:
    consumer = await asyncio.to_thread(place, exporters.site, "shard-1")
    few = exporters.offers("few", rounds)
    await exporters.make(few)
    before_ms = await asyncio.to_thread(_bound_ms, consumer, few)
    cache_before, shards_before = await exporters.memory_mb()
    part, offers, spent = max(count // PARTS, 1), exporters.offers("kind", count), list[float]()
    began = time.perf_counter()
    for start in range(0, count, part):
        some = offers[start : start + part]
        spent.append(await exporters.make(some) / len(some) * 1000)
    took_s = time.perf_counter() - began
    cache_after, shards_after = await exporters.memory_mb()
    with_ms = await asyncio.to_thread(_bound_ms, consumer, offers[:: max(count // rounds, 1)][:rounds])
    return [
        _bound(f"a few exports, {SHARDS} shards", before_ms),
        _bound(f"{count:,} exports", with_ms),
        Row("  exports made, until all processes have them", count / took_s, "/s", more=True),
        Row("  CPU an export, the first tenth", spent[0], "ms"),
        Row("  CPU an export, the last tenth", spent[-1], "ms"),
        Row("  memory of the cache server", cache_after, "MB", note=f"{cache_before:.0f} before"),
        Row("  memory of the shards together", shards_after, "MB", note=f"{shards_before:.0f} before"),
    ]


def _bound(with_what: str, took_ms: list[float]) -> Row:
    note = f"p95 {percentile(took_ms, 0.95):.0f} ms"
    return Row(f"APIBinding, POST to Bound, {with_what}: p50", percentile(took_ms, 0.5), "ms", note=note)


def place(site: Site, shard: str) -> Api:
    """A user of system:masters in a new workspace on a shard."""
    root = site.root.api("root")
    made = ready(root, workspace(root, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"], "shard-admin")


def _bound_ms(consumer: Api, offers: Sequence[Offer]) -> list[float]:
    return [_round(consumer, offer) for offer in offers]


def _round(consumer: Api, offer: Offer) -> float:
    selector = f"fieldSelector=metadata.name%3D{offer.plural}&watch=1"
    with consumer.watch(f"{BINDINGS}?{selector}") as events:
        began = time.perf_counter()
        consumer.post(BINDINGS, binding(offer.cluster, offer.plural))
        while phase(events.next().object) != "Bound":
            pass
        return (time.perf_counter() - began) * 1000


def _schema_request(origin: Origin, offer: Offer) -> bytes:
    return origin.request("POST", f"/clusters/{offer.cluster}{SCHEMAS}", encode_json(schema(offer.plural)))


def _export_request(origin: Origin, offer: Offer) -> bytes:
    body = encode_json(export(offer.plural, schema(offer.plural)))
    return origin.request("POST", f"/clusters/{offer.cluster}{EXPORTS}", body)
