"""Reading through a pull consumer: all there is, whatever bounds cut it into requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.stream.connection import Connection, ConsumerTaken, Unavailable
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, Message, PullConsumer, stream_sequence
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.publisher.stream_admin import ensure_stream
from harness.servers.nats import NatsServer, eventually
from harness.waits import until

STREAM = "atoll-changes-root"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        yield server


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    connection = await server.connect()
    await ensure_stream(connection, definition("changes", "root"))
    for _ in range(200):
        await connection.client.jetstream().publish("atoll.changes.root.-", b"x" * 1000)
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "bounds", [BatchLimits(), BatchLimits(7), BatchLimits(200), BatchLimits(size_bytes=2500), BatchLimits(50, 10_000)]
)
async def test_everything_is_read_before_it_says_that_there_is_no_more(
    connection: Connection, bounds: BatchLimits
) -> None:
    reader = PullConsumer(connection, STREAM, "reading", bounds)
    await reader.open({"deliver_policy": "all"})
    found: list[int] = []
    while batch := await reader.batch(wait_s=0):
        assert len(batch) <= bounds.messages
        found += [stream_sequence(message.reply) for message in batch]
    assert found == list(range(1, 201))
    await reader.close()


async def test_it_waits_no_longer_than_asked_and_then_gives_what_comes(connection: Connection) -> None:
    reader = PullConsumer(connection, STREAM, "reading")
    await reader.open({"deliver_policy": "new"})
    assert await reader.batch(wait_s=0.05) == []
    await connection.client.jetstream().publish("atoll.changes.root.-", b"new")
    assert [message.data for message in await reader.batch(wait_s=5)] == [b"new"]
    await reader.close()


async def test_what_no_batch_returned_is_drained_and_the_request_taken_back(
    server: NatsServer, connection: Connection
) -> None:
    """A megabyte is sent, and not read from the socket yet."""
    reader, other = PullConsumer(connection, STREAM, "reading"), await server.connect()
    await reader.open({"deliver_policy": "all"})
    found: list[Message] = []
    while len(found) < 200:
        found += await reader.batch()

    async def sent() -> bool:
        info = await other.api(f"CONSUMER.INFO.{STREAM}.reading")
        return bool(info["delivered"]["stream_seq"] == 300)

    socket: Any = connection.client._transport
    socket._io_writer.transport.pause_reading()
    for _ in range(100):
        await other.publish("atoll.changes.root.-", b"x" * 10_000)
    await until(sent, "it was sent")
    socket._io_writer.transport.resume_reading()
    found += await reader.drain()
    assert [stream_sequence(message.reply) for message in found] == list(range(1, 301))
    assert (await other.api(f"CONSUMER.INFO.{STREAM}.reading"))["num_waiting"] == 0
    await reader.close()
    await other.close()


async def test_a_consumer_that_somebody_deletes_is_an_error(connection: Connection) -> None:
    reader = PullConsumer(connection, STREAM, "reading")
    await reader.open({"deliver_policy": "new"})
    assert await reader.batch(wait_s=0) == []
    await connection.api(f"CONSUMER.DELETE.{STREAM}.reading")
    with pytest.raises(Unavailable):
        await reader.batch(wait_s=1)
    await reader.close()


@pytest.mark.long
async def test_closing_does_not_fail_although_nobody_answers(connection: Connection) -> None:
    """It waits for an answer for five seconds."""
    reader = PullConsumer(connection, STREAM, "reading")
    await reader.open({"deliver_policy": "new"})
    connection.api_prefix = "$JS.API.nobody"
    await reader.close()


@pytest.mark.parametrize("reply", ["", "x", "$JS.ACK.a.b.1.2.3", "$JS.API.a.b.1.2.3.4.5"])
def test_a_reply_of_nothing_delivered_is_refused(reply: str) -> None:
    with pytest.raises(ValueError, match="not delivered"):
        stream_sequence(reply)


def test_a_sequence_is_found_with_and_without_a_domain() -> None:
    assert stream_sequence("$JS.ACK.stream.consumer.1.42.7.170000.0") == 42
    assert stream_sequence("$JS.ACK.domain.hash.stream.consumer.1.42.7.170000.0.random") == 42


async def test_who_opens_it_anew_takes_it_and_the_other_is_told(connection: Connection) -> None:
    older, newer = (PullConsumer(connection, STREAM, "reading", BatchLimits(50)) for _ in range(2))
    await older.open({"deliver_policy": "all"})
    count = 0
    while count < 50:
        count += len(await older.batch(wait_s=0))
    await newer.open({"deliver_policy": "all"})
    # The older one asks by its name, and has what was for the newer one.
    with pytest.raises(ConsumerTaken):
        await older.batch(wait_s=0)
    with pytest.raises(ConsumerTaken):
        await newer.batch(wait_s=0)


async def test_one_that_waits_is_told_at_once(connection: Connection) -> None:
    older, newer = (PullConsumer(connection, STREAM, "reading") for _ in range(2))
    await older.open({"deliver_policy": "new"})
    waiting = asyncio.create_task(older.batch(wait_s=60))
    await eventually(lambda: older._outstanding > 0)
    await newer.open({"deliver_policy": "new"})
    with pytest.raises(ConsumerTaken):
        await waiting
    await newer.close()


@pytest.mark.parametrize("taken", [False, True])
async def test_that_nothing_is_left_is_no_proof_where_another_one_had_it(connection: Connection, taken: bool) -> None:
    older, newer = (PullConsumer(connection, STREAM, "reading") for _ in range(2))
    config = {"deliver_policy": "all", "filter_subjects": ["atoll.changes.root.>"]}
    await older.open(config)
    await newer.open(config)
    count, reader = 0, older if taken else newer
    while count < 200:
        count += len(await reader.batch(wait_s=0))
    assert await newer.batch(wait_s=0) == []
    if taken:
        for each in (older, newer):
            with pytest.raises(ConsumerTaken):
                await each.verify()
    else:
        await newer.verify()
    await newer.close()


async def test_a_reader_that_is_alone_is_whole_wherever_it_began(connection: Connection) -> None:
    reader = PullConsumer(connection, STREAM, "reading", BatchLimits(7))
    await reader.open({"deliver_policy": "by_start_sequence", "opt_start_seq": 42, "filter_subjects": ["a", "atoll.>"]})
    while await reader.batch(wait_s=0):
        pass
    assert reader.has_ended
    await reader.verify()
    await connection.client.jetstream().publish("atoll.changes.root.-", b"new")
    assert len(await reader.batch(wait_s=5)) == 1
    await reader.verify()
    await reader.close()


async def test_a_wait_that_is_ended_leaves_its_request_under_way(connection: Connection) -> None:
    reader = PullConsumer(connection, STREAM, "reading")
    await reader.open({"deliver_policy": "new"})
    waiting = asyncio.create_task(reader.batch(wait_s=60))
    await eventually(lambda: reader._outstanding > 0)
    reader.wake()
    assert await waiting == []
    assert not reader.has_ended, "what was sent for it may be on its way"
    await reader.close()
