"""The publisher over the shard's own store: subscribers receive what was committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from atoll.events import changes
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, SECRETS
from atoll.machinery.storage import sealing
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.published_log import PublishedLog
from atoll.machinery.stream.events import Event, Operation
from harness.data.stores import delete, key, put, store_options
from harness.servers.in_process.publisher import QUICK, publishing, read_stream
from harness.servers.nats import NatsServer, eventually
from harness.servers.processes import contents_below

CLUSTER = ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster")


@pytest.fixture
def options(tmp_path: Path) -> StoreOptions:
    key_file = tmp_path / "keys.json"
    sealing.ensure_key_file(key_file)
    return store_options(tmp_path / "store", sealed_types=(SECRETS,), key_file=str(key_file))


@pytest.fixture
async def store(options: StoreOptions) -> AsyncIterator[LmdbStore]:
    store = open_store(options)
    yield store
    await store.close()


async def write(store: LmdbStore, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await store.submit([put(key(f"m{number}", cluster=f"c{number % 3}"), data=f"value {number}")])


def stored(store: LmdbStore) -> list[tuple[int, bytes]]:
    return [(entry.revision, entry.value) for entry in store.tail(0, 100_000)]


def files_with(directory: Path, text: bytes) -> list[Path]:
    return [path for path, held in contents_below(directory).items() if text in held]


async def objects(nats: NatsServer) -> list[Event]:
    """The changes of objects in the stream: neither fences, which a start writes, nor resyncs."""
    return [event for _, event in await read_stream(nats, "changes") if event.key is not None]


async def test_a_subscriber_receives_the_stores_log_byte_for_byte(tmp_path: Path, store: LmdbStore) -> None:
    received: list[tuple[int, bytes]] = []
    async with NatsServer(tmp_path) as nats, publishing(PublishedLog(store), nats):
        await write(store, 150)
        async with asyncio.timeout(60), aclosing(changes(nats.credentials_file)) as events:
            writing = asyncio.ensure_future(write(store, 150, 150))
            async for event in events:
                assert event.operation != "RESYNC"
                received.append((event.revision, event.payload))
                if len(received) == 300:
                    break
        await writing
        sent = [event for _, event in await read_stream(nats, "changes")]
    assert received == stored(store)
    assert [(event.revision, event.payload) for event in sent] == stored(store)
    assert all(event.intact and event.hole > 0 for event in sent)


async def test_deletes_and_secrets_travel_as_they_are_stored(tmp_path: Path, store: LmdbStore) -> None:
    secret = key("s", type=SECRETS)
    async with NatsServer(tmp_path) as nats, publishing(PublishedLog(store), nats) as running:
        [first] = await store.submit([put(secret, data="canary-77aa")])
        await store.submit([put(secret, expected=first, data="canary-77ab")])
        [plain] = await store.submit([put(key("m"), data="x")])
        await store.submit([delete(key("m"), plain)])
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
    assert [(event.operation, event.sealed, event.intact) for event in events] == [
        (Operation.ADDED, True, True),
        (Operation.MODIFIED, True, True),
        (Operation.ADDED, False, True),
        (Operation.DELETED, False, True),
    ]
    assert events[3].payload == events[2].payload.replace(b"%d" % plain, b"%d" % events[3].revision)
    assert not files_with(tmp_path, b"canary")


async def test_the_state_stream_follows_the_stores_objects(tmp_path: Path, store: LmdbStore) -> None:
    role = key("r", cluster="c1", namespace="", type=ResourceType("rbac.authorization.k8s.io", "clusterroles"))
    annotated = {"annotations": {"internal.kcp.io/replicate": "apis.kcp.io"}}
    async with NatsServer(tmp_path) as nats, publishing(PublishedLog(store), nats) as running:
        await store.submit([put(CLUSTER)])
        [at] = await store.submit([put(role, metadata=annotated)])
        await running.drained()
        assert len(await read_stream(nats, "state")) == 2
        await store.submit([put(role, expected=at)])
        await running.drained()
        held = {event.key: event.operation for _, event in await read_stream(nats, "state")}
    assert held == {CLUSTER: Operation.ADDED, role: Operation.DELETED}


@pytest.mark.long
async def test_a_store_opened_again_goes_on_and_a_deleted_stream_is_filled_again(
    tmp_path: Path, options: StoreOptions
) -> None:
    async with NatsServer(tmp_path) as nats:
        store = open_store(options)
        async with publishing(PublishedLog(store), nats) as running:
            await store.submit([put(CLUSTER)])
            await write(store, 100)
            await running.drained()
        await store.close()
        store = open_store(options)
        async with publishing(PublishedLog(store), nats) as running:
            await write(store, 100, 100)
            await running.drained()
            assert [(event.revision, event.payload) for event in await objects(nats)] == stored(store)
            await nats.stop()
            nats.delete_store()
            await nats.start()
            await eventually(lambda: running.publisher.changes.stats.restarts == 1)
            await eventually(lambda: running.publisher.state.stats.restarts == 1)
            await running.drained()
            events = [event for _, event in await read_stream(nats, "changes")]
            assert events[0].operation is Operation.RESYNC
            assert [(event.revision, event.payload) for event in await objects(nats)] == stored(store)
            assert CLUSTER in {event.key for _, event in await read_stream(nats, "state")}
        await store.close()


async def test_the_store_learns_what_is_published(tmp_path: Path, store: LmdbStore) -> None:
    async with NatsServer(tmp_path) as nats, publishing(PublishedLog(store), nats, QUICK):
        await write(store, 10)
        last = store.tail(0)[-1].revision
        await eventually(lambda: store.published == last)
