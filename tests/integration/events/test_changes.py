"""Changes over a real stream: a subscriber receives the log, or a list and then the log."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from atoll.events import LATEST
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.subjects import stream_name
from harness.clients.stream_subscriber import Copy, Subscriber
from harness.models.forged_events import forgeries, inject, stored
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import publishing
from harness.servers.nats import NatsServer, eventually

GADGETS = ResourceType("gadgets.example.com", "gadgets", "3f" * 32)


def key(number: int) -> ObjectKey:
    return ObjectKey(GADGETS if number % 5 == 0 else CONFIGMAPS, f"c{number % 3}", "default", f"m{number % 7}")


def write(log: ShardLog, count: int) -> None:
    for _ in range(count):
        number = len(log.entries)
        if number % 11 == 10 and key(number) in log.objects:
            log.delete(key(number))
        else:
            log.put(key(number), data={"number": f"{number:06d}"})


async def caught_up(copy: Copy) -> None:
    await eventually(lambda: copy.objects == copy.expected())


async def test_three_filters_each_receive_their_part_of_the_log(tmp_path: Path) -> None:
    log = ShardLog()
    one = Copy(log)
    two = Copy(log, lambda key: key.cluster == "c1")
    three = Copy(log, lambda key: key.type == GADGETS)
    selections: tuple[dict[str, str], ...] = ({}, {"cluster": "c1"}, {"identity": GADGETS.identity})
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 700)
        await running.drained()
        names = nats.operator["consumers"]
        copies = (one, two, three)
        subscribers = [
            Subscriber(nats.credentials_file, copy, consumer=name, **selection)
            for selection, name, copy in zip(selections, names, copies, strict=False)
        ]
        write(log, 300)
        for copy in copies:
            await eventually(lambda p=copy: p.revisions == p.expected_revisions())  # type: ignore[misc]
            assert copy.objects == copy.expected()
            assert copy.gaps == []
        for subscriber in subscribers:
            await subscriber.__aexit__()


async def test_from_the_latest_it_lists_first_and_then_hears_what_follows(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log, position=LATEST)
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 100)
        await running.drained()
        async with Subscriber(nats.credentials_file, copy):
            await caught_up(copy)
            write(log, 100)
            await eventually(lambda: len(copy.events) == 100)
    assert copy.gaps == [Gap.NEW]
    assert copy.objects == copy.expected()
    assert copy.revisions == copy.expected_revisions()[100:]


@pytest.mark.long
async def test_a_consumer_stopped_anywhere_goes_on_from_its_mark(tmp_path: Path) -> None:
    log, dice = ShardLog(), random.Random(3)
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats, publishing(log, nats):
        for _ in range(5):
            write(log, 400)
            reached = len(copy.events) + dice.randrange(1, 300)
            async with Subscriber(nats.credentials_file, copy):
                await eventually(lambda reached=reached: len(copy.events) >= reached)  # type: ignore[misc]
        async with Subscriber(nats.credentials_file, copy):
            await eventually(lambda: copy.revisions == copy.expected_revisions())
    assert copy.gaps == []


@pytest.mark.long
async def test_it_rides_out_kills_of_the_server(tmp_path: Path) -> None:
    log, stop = ShardLog(), asyncio.Event()
    copy = Copy(log)

    async def keep_writing() -> None:
        while not stop.is_set():
            write(log, 10)
            await asyncio.sleep(0.001)

    async with (
        NatsServer(tmp_path, backoff=Backoff(0.01, 5.0, least=1.0)) as nats,
        publishing(log, nats),
        Subscriber(nats.credentials_file, copy),
    ):
        writing = asyncio.ensure_future(keep_writing())
        for _ in range(3):
            reached = len(copy.events) + 500
            await eventually(lambda reached=reached: len(copy.events) > reached)  # type: ignore[misc]
            await nats.kill()
        stop.set()
        await writing
        await caught_up(copy)
    if not copy.gaps:
        assert copy.revisions == copy.expected_revisions()


async def test_a_deleted_store_makes_it_reread(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 200)
        await running.drained()
        async with Subscriber(nats.credentials_file, copy):
            await eventually(lambda: len(copy.events) == 200)
            await nats.stop()
            nats.delete_store()
            write(log, 50)
            await nats.start()
            await caught_up(copy)
            await running.drained()
            write(log, 20)
            await caught_up(copy)
    assert copy.gaps[0] in (Gap.STREAM, Gap.RESYNC, Gap.REWOUND)


@pytest.mark.long
@pytest.mark.parametrize("number", [30, 99])
async def test_a_flipped_bit_ends_in_the_truth(tmp_path: Path, number: int) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("changes", "root"), b'"number":"%06d"' % number)
        await nats.start()
        async with publishing(log, nats) as running, Subscriber(nats.credentials_file, copy):
            await eventually(lambda: bool(copy.gaps))
            await caught_up(copy)
            await running.drained()
            write(log, 30)
            await caught_up(copy)


async def test_a_consumer_of_one_cluster_notices_a_lost_message_at_the_next_one(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log, lambda key: key.cluster == "c1")
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
        lost = next(
            at for at, entry in enumerate(log.entries) if at > 40 and entry.operation != 3 and entry.key.cluster == "c1"
        )
        await nats.stop()
        nats.flip_bit(stream_name("changes", "root"), b'"number":"%06d"' % lost)
        await nats.start()
        async with Subscriber(nats.credentials_file, copy, cluster="c1"):
            await eventually(lambda: copy.gaps == [Gap.MISSING])
            await caught_up(copy)


async def test_a_consumer_of_everything_notices_a_lost_message_that_nothing_follows_on_its_subject(
    tmp_path: Path,
) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            for number in range(20):
                log.put(ObjectKey(CONFIGMAPS, f"only{number}", "default", "m"), data={"number": f"{number:06d}"})
            await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("changes", "root"), b'"number":"000010"')
        await nats.start()
        async with Subscriber(nats.credentials_file, copy):
            await eventually(lambda: copy.gaps == [Gap.SKIPPED])
            await caught_up(copy)


async def test_a_stream_that_was_written_otherwise_up_to_the_mark_is_noticed(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 50)
            await running.drained()
        await nats.stop()
        shutil.copytree(nats.directory / "store", tmp_path / "copy")
        await nats.start()
        async with publishing(log, nats) as running, Subscriber(nats.credentials_file, copy):
            write(log, 10)
            await eventually(lambda: len(copy.events) == 60)
        await nats.stop()
        nats.delete_store()
        shutil.copytree(tmp_path / "copy", nats.directory / "store")
        await nats.start()
        log.compact(log.entries[-5].revision)
        async with publishing(log, nats) as running:
            write(log, 40)
            await running.drained()
        async with Subscriber(nats.credentials_file, copy):
            await eventually(lambda: copy.gaps[:1] == [Gap.REWRITTEN])
            await caught_up(copy)


async def test_a_new_lineage_makes_it_reread(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats), Subscriber(nats.credentials_file, copy):
            write(log, 50)
            await eventually(lambda: len(copy.events) == 50)
        restored = log.reopened(lineage="b2")
        copy.log = restored
        async with publishing(restored, nats), Subscriber(nats.credentials_file, copy):
            write(restored, 50)
            await eventually(lambda: copy.gaps[:1] == [Gap.LINEAGE])
            await caught_up(copy)


async def test_a_foreign_message_is_ignored(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 20)
            await running.drained()
        connection = await nats.connect()
        await connection.client.jetstream().publish("atoll.changes.root.core.core.configmaps.c1", b"{}")
        await connection.close()
        async with Subscriber(nats.credentials_file, copy):
            await eventually(lambda: copy.revisions == copy.expected_revisions())
    assert copy.gaps == []


async def test_forged_and_replayed_events_are_dropped(tmp_path: Path) -> None:
    log = ShardLog()
    copy = Copy(log)
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running, Subscriber(nats.credentials_file, copy):
        write(log, 20)
        await running.drained()
        connection = await nats.connect()
        stream = stream_name("changes", "root")
        last = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        evil = ShardLog().put(ObjectKey(CONFIGMAPS, "c1", "default", "evil"))
        for message in (*forgeries("changes", log.identity, evil, last + 1), await stored(connection, stream, 3)):
            await inject(connection, message)
        await connection.close()
        write(log, 20)
        await eventually(lambda: copy.revisions == copy.expected_revisions())
    assert copy.gaps == []


async def test_a_file_without_keys_has_nothing_verified(tmp_path: Path) -> None:
    """Earlier versions wrote such a file."""
    log = ShardLog()
    copy = Copy(log)
    async with (
        NatsServer(tmp_path, event_keys=()) as nats,
        publishing(log, nats),
        Subscriber(nats.credentials_file, copy),
    ):
        write(log, 20)
        await eventually(lambda: copy.revisions == copy.expected_revisions())
