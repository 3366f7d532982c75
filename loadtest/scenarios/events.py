"""How late are events of subscribers that are not the operator, and what do many of them cost?

Each reads thin events of one workspace's ConfigMaps with plain nats-py through the event gateway, which runs inside the
shard's process. An event's age is that of its revision, which is taken before the commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
from nats.aio.client import Client as Nats
from nats.errors import TimeoutError as NothingCame

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, WORKSPACES, Bench, config_map, percentile, workspace
from loadtest.report import Row
from loadtest.server import Server

RBAC = "rbac.authorization.k8s.io"
ACCOUNTS = Resource("", "v1", "serviceaccounts")
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", namespaced=False)
WRITES_A_SECOND, DEADLINE_S = 100, 30
#: Subscriptions of one identity, at most.
SLOTS = 32
CONNECTING, WRITING = 16, 16


class Subscription(msgspec.Struct, frozen=True):
    """What a client needs."""

    answer: Object
    token: str

    async def connect(self) -> Nats:
        nats = Nats()
        options = {"token": self.token, "inbox_prefix": self.answer["inboxPrefix"], "allow_reconnect": False}
        await nats.connect(self.answer["servers"], connect_timeout=DEADLINE_S, **options)
        return nats


async def run(bench: Bench) -> list[Row]:
    async with bench.server() as server, server.client() as client:
        rows = [*await _making(client, bench.size(20, SLOTS)), *await _ages(server, client, bench)]
        rows += await _connects(client, bench.size(200, 2000))
        return rows + await _crowd(server, client, bench)


async def _crowd(server: Server, client: Client, bench: Bench) -> list[Row]:
    """Many subscribers: how long they take, what they need, and what writes are left beside them."""
    seconds, each = bench.seconds(3, 10), bench.size(5, 10)
    before, memory = await _writes(server, seconds), _memory(server)
    found = [await _subscribed(client, f"crowd-{number}", each) for number in range(bench.size(10, 100))]
    everybody = [subscription for group in found for subscription in group]
    began = time.perf_counter()
    async with _reading(everybody) as connected:
        own, nats = (now - then for now, then in zip(_memory(server), memory, strict=True))
        beside = await _writes(server, seconds)
    # The machine may do something else than before.
    alone = (before + await _writes(server, seconds)) / 2
    share, note = beside / alone * 100, f"{alone:.0f}/s alone"
    return [
        Row(f"  {len(everybody):,} subscribers connected", connected - began, "s", 60),
        Row("  memory of the gateway for them", own, "MB", 150, note=f"NATS {nats:.0f} MB"),
        Row("  share of writes/s that is left", share, "%", 67, more=True, note=note),
    ]


def _memory(server: Server) -> tuple[float, float]:
    """Private megabytes of the shard's process, which the gateway runs in, and of NATS."""
    own, *started = processes.tree(server.pid)
    return processes.memory([own]).private / 1e6, processes.memory(started).private / 1e6


async def _events(client: Client, cluster: str, method: str, path: str, body: Object) -> Object:
    service = client.view(client.target.service_url("events"), cluster)
    return await service.request(method, path, body=body)


async def _subscribed(client: Client, name: str, count: int) -> list[Subscription]:
    """The subscriptions of an account of a workspace: an identity has a bounded number of them."""
    await client.create(WORKSPACES, workspace(name))
    path = f"root:{name}"
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get(WORKSPACES, name)).get("status", {}).get("phase") != "Ready":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    inside = client.cluster(path)
    await inside.create(
        ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}, "default"
    )
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    await inside.create(BINDINGS, {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]})
    body = {"spec": {"expirationSeconds": 3600}}
    made = await inside.request("POST", ACCOUNTS.path("default", "reader", "token"), body=body)
    target = msgspec.structs.replace(client.target, headers=(("authorization", f"Bearer {made['status']['token']}"),))
    async with Client(target, path) as own:
        return [await _subscribe(own, path, f"load-{number}") for number in range(count)]


async def _subscribe(client: Client, cluster: str, name: str) -> Subscription:
    answer = await _events(client, cluster, "POST", "/subscriptions", {"name": name, "resources": ["configmaps"]})
    token = await _events(client, cluster, "POST", "/token", {})
    return Subscription(answer, token["token"])


async def _making(client: Client, count: int) -> list[Row]:
    times = []
    for number in range(count):
        began = time.perf_counter()
        body = {"name": f"made-{number}", "resources": ["configmaps"]}
        await _events(client, "root", "POST", "/subscriptions", body)
        times.append(time.perf_counter() - began)
    for number in range(count):
        await _events(client, "root", "DELETE", f"/subscriptions/made-{number}", {})
    return [Row("events, a subscription made, p50", percentile(times, 0.5) * 1000, "ms", 20, note=f"{count} of them")]


async def _ages(server: Server, client: Client, bench: Bench) -> list[Row]:
    """Write at a fixed pace; the time from the revision of an event until its subscriber has it."""
    count = bench.size(4 * WRITES_A_SECOND, 20 * WRITES_A_SECOND)
    subscription, ages = await _subscribe(client, "root", "ages"), list[float]()
    nats = await subscription.connect()
    try:
        events = await _pull(nats, subscription)

        async def receive() -> None:
            while len(ages) < count:
                message = (await events.fetch(1, timeout=DEADLINE_S))[0]
                ages.append(time.time() - int((message.headers or {})["Atoll-Revision"]) / 1e6)
                await message.ack()

        receiving, began = asyncio.create_task(receive()), time.perf_counter()
        for number in range(count):
            await client.create(CONFIG_MAPS, config_map("e-", generate=True), "default")
            await asyncio.sleep(max(began + number / WRITES_A_SECOND - time.perf_counter(), 0))
        await receiving
    finally:
        await nats.close()
    note = f"{WRITES_A_SECOND} writes/s, {count:,} events"
    return [
        Row("  commit to subscriber, p50", percentile(ages, 0.5) * 1000, "ms", 10, note=note),
        Row("  commit to subscriber, p99", percentile(ages, 0.99) * 1000, "ms", 50),
    ]


async def _connects(client: Client, count: int) -> list[Row]:
    """Connect and hang up, some at a time, as many accounts: one may have a bounded number of connections."""
    subscriptions = [(await _subscribed(client, f"connects-{number}", 1))[0] for number in range(CONNECTING)]

    async def once(subscription: Subscription) -> None:
        nats = await subscription.connect()
        await nats.close()

    began = time.perf_counter()
    await _at_once([partial(once, subscriptions[number % CONNECTING]) for number in range(count)], CONNECTING)
    rate = count / (time.perf_counter() - began)
    return [Row("  connects through the callout", rate, "connects/s", 200, more=True)]


async def _writes(server: Server, seconds: float) -> float:
    """Writes a second, as fast as they go."""
    ends, done = time.perf_counter() + seconds, 0

    async def write() -> None:
        nonlocal done
        async with server.client() as client:
            while time.perf_counter() < ends:
                await client.create(CONFIG_MAPS, config_map("w-", generate=True), "default")
                done += 1

    began = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(WRITING)))
    return done / (time.perf_counter() - began)


@asynccontextmanager
async def _reading(subscriptions: Sequence[Subscription]) -> AsyncIterator[float]:
    """All connected and pulling; the moment at which the last one was."""
    async with AsyncExitStack() as stack:
        opened: list[tuple[Nats, Subscription]] = []

        async def connect(subscription: Subscription) -> None:
            nats = await subscription.connect()
            stack.push_async_callback(nats.close)
            opened.append((nats, subscription))

        await _at_once([lambda each=each: connect(each) for each in subscriptions], CONNECTING)  # type: ignore[misc]
        readers = [asyncio.create_task(_read(*each)) for each in opened]
        try:
            yield time.perf_counter()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


async def _read(nats: Nats, subscription: Subscription) -> None:
    events = await _pull(nats, subscription)
    while True:
        try:
            for message in await events.fetch(100, timeout=DEADLINE_S):
                await message.ack()
        except NothingCame:
            continue


async def _pull(nats: Nats, subscription: Subscription):  # type: ignore[no-untyped-def]
    answer = subscription.answer
    stream = nats.jetstream(prefix=answer["apiPrefix"])
    return await stream.pull_subscribe_bind(answer["consumer"], stream=answer["streams"][0]["stream"])


async def _at_once(work: Sequence[Callable[[], Awaitable[None]]], most: int) -> None:
    slots = asyncio.Semaphore(most)

    async def one(each: Callable[[], Awaitable[None]]) -> None:
        async with slots:
            await each()

    await asyncio.gather(*map(one, work))
