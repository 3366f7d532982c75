"""The publish window over a real connection: the acknowledged messages are a prefix of the sent ones."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.stream.connection import Connection, Unavailable, Unresponsive
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.publisher.publish_window import (
    AckPosition,
    OutgoingMessage,
    OutOfSequence,
    PublishWindow,
    WindowLimits,
)
from atoll.machinery.stream.publisher.stream_admin import ensure_stream
from harness.servers.nats import NatsServer

SUBJECT = "atoll.changes.root.core.core.configmaps.c1"
LIMITS = WindowLimits()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        yield server


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    connection = await server.connect()
    await ensure_stream(connection, definition("changes", "root"))
    yield connection
    await connection.close()


async def opened(connection: Connection, limits: WindowLimits = LIMITS, sequence: int = 0) -> PublishWindow:
    pipeline = PublishWindow(connection, limits, AckPosition(0, sequence, 0))
    await pipeline.open()
    return pipeline


def message(revision: int, message_id: str = "", size: int = 10) -> OutgoingMessage:
    return OutgoingMessage(SUBJECT, b"x" * size, [], revision, message_id or f"id-{revision}")


async def test_what_is_sent_is_acknowledged_in_order(connection: Connection) -> None:
    pipeline = await opened(connection)
    for revision in range(1, 3001):
        await pipeline.send([message(revision)], revision)
    await pipeline.drain()
    assert (pipeline.acked, pipeline.in_flight, pipeline.acks) == (AckPosition(3000, 3000, 3000), 0, 3000)
    await pipeline.close()


async def test_messages_that_are_sent_together_are_acknowledged_by_the_last(connection: Connection) -> None:
    pipeline = await opened(connection)
    await pipeline.send([message(1)], 1)
    await pipeline.drain()
    await pipeline.send([message(revision) for revision in range(2, 33)], 40)
    assert pipeline.in_flight == 31
    await pipeline.drain()
    assert (pipeline.acked, pipeline.in_flight, pipeline.acks) == (AckPosition(40, 32, 32), 0, 32)
    await pipeline.close()


@pytest.mark.parametrize("refused", [0, 15, 30])
async def test_of_messages_that_are_sent_together_none_behind_a_refused_one_is_acknowledged(
    connection: Connection, refused: int
) -> None:
    pipeline = await opened(connection)
    await pipeline.send([message(1)], 1)
    await pipeline.drain()
    # The server swallows a second message with the same id.
    ids = ["id-1" if index == refused else f"new-{index}" for index in range(31)]
    await pipeline.send([message(index + 2, found) for index, found in enumerate(ids)], 40)
    with pytest.raises(OutOfSequence):
        await pipeline.drain()
    assert pipeline.acked == AckPosition(1, 1, 1)
    info = await connection.api("STREAM.INFO.atoll-changes-root")
    assert info["state"]["messages"] == 1 + refused
    await pipeline.close()


async def test_until_the_first_acknowledgement_each_message_asks_for_its_own(connection: Connection) -> None:
    pipeline = await opened(connection)
    await pipeline.send([message(1), message(2, "id-1"), message(3)], 3)
    with pytest.raises(OutOfSequence):
        await pipeline.drain()
    assert pipeline.acked == AckPosition(0, 1, 1)
    await pipeline.close()


@pytest.mark.parametrize("limits", [WindowLimits(messages=5), WindowLimits(size_bytes=5 * 2300)])
async def test_no_more_is_in_flight_than_allowed(connection: Connection, limits: WindowLimits) -> None:
    pipeline = await opened(connection, limits)
    for begin in (1, 200):
        most = 0
        for revision in range(begin, begin + 199):
            await pipeline.send([message(revision, size=1000)], revision)
            most = max(most, pipeline.in_flight)
        # What is acknowledged makes room again.
        assert most == 5
        await pipeline.drain()
    await pipeline.close()


async def test_one_message_above_the_bound_still_goes_alone(connection: Connection) -> None:
    pipeline = await opened(connection, WindowLimits(size_bytes=10))
    await pipeline.send([message(1, size=5000)], 1)
    await pipeline.send([message(2, size=5000)], 2)
    await pipeline.drain()
    assert pipeline.acked.revision == 2
    await pipeline.close()


async def test_skipped_revisions_are_done_when_those_before_them_are(connection: Connection) -> None:
    pipeline = await opened(connection)
    pipeline.skip(1)
    assert pipeline.acked == AckPosition(1, 0, 0)
    await pipeline.send([message(2)], 2)
    pipeline.skip(3)
    assert pipeline.acked.revision == 1
    await pipeline.drain()
    assert pipeline.acked == AckPosition(3, 1, 2)
    await pipeline.close()


async def test_a_stream_that_ends_elsewhere_stops_everything_behind_the_refusal(connection: Connection) -> None:
    first, second = await opened(connection), await opened(connection)
    await first.send([message(1)], 1)
    await first.drain()
    with pytest.raises(OutOfSequence):
        for revision in range(2, 50):
            await second.send([message(revision)], revision)
        await second.drain()
    assert second.acked == AckPosition(0, 0, 0)
    info = await connection.api("STREAM.INFO.atoll-changes-root")
    assert info["state"]["messages"] == 1
    for pipeline in (first, second):
        await pipeline.close()


@pytest.mark.parametrize("strangers", [1, 2, 7])
async def test_nothing_of_a_window_is_stored_behind_a_strangers_message(
    server: NatsServer, connection: Connection, strangers: int
) -> None:
    pipeline = await opened(connection)
    other = await server.connect()
    for revision in range(1, 101):
        await pipeline.send([message(revision)], revision)
    await pipeline.drain()
    for _ in range(strangers):
        await other.client.jetstream().publish(SUBJECT, b"stranger")
    with pytest.raises(OutOfSequence):
        for revision in range(101, 201):
            await pipeline.send([message(revision)], revision)
        await pipeline.drain()
    # Requested after all messages in flight, on the same connection.
    info = await connection.api("STREAM.INFO.atoll-changes-root")
    assert info["state"]["messages"] == 100 + strangers
    await pipeline.close()
    await other.close()


async def test_a_duplicate_that_the_server_swallows_is_not_taken_for_stored(connection: Connection) -> None:
    pipeline = await opened(connection)
    await pipeline.send([message(1, "same")], 1)
    await pipeline.send([message(2, "same")], 2)
    with pytest.raises(OutOfSequence):
        await pipeline.drain()
    assert pipeline.acked.revision == 1
    await pipeline.close()


async def test_a_server_that_falls_silent_is_noticed(server: NatsServer, connection: Connection) -> None:
    pipeline = await opened(connection, WindowLimits(stall_s=0.2))
    await server.freeze()
    try:
        await pipeline.send([message(1)], 1)
        with pytest.raises(Unresponsive):
            await pipeline.drain()
    finally:
        server.thaw()
    await pipeline.close()


async def test_silence_is_noticed_by_looking_as_well_as_by_waiting(server: NatsServer, connection: Connection) -> None:
    pipeline = await opened(connection, WindowLimits(stall_s=0.05))
    await server.freeze()
    try:
        await pipeline.send([message(1)], 1)
        with pytest.raises(Unresponsive):
            await pipeline.wait_beside(asyncio.get_running_loop().create_future(), 0.1)
    finally:
        server.thaw()
    await pipeline.close()


async def test_a_wait_beside_a_window_ends_with_what_it_waits_for_and_as_soon_as_the_window_breaks(
    connection: Connection,
) -> None:
    pipeline, loop = await opened(connection), asyncio.get_running_loop()
    commit: asyncio.Future[None] = loop.create_future()
    loop.call_soon(commit.set_result, None)
    await pipeline.wait_beside(commit, None)
    loop.call_soon(pipeline.fail, Unavailable("broken"))
    with pytest.raises(Unavailable, match="broken"):
        await pipeline.wait_beside(loop.create_future(), None)
    await pipeline.close()


async def test_a_lost_connection_is_noticed_at_once(server: NatsServer, connection: Connection) -> None:
    pipeline = await opened(connection, WindowLimits(stall_s=100.0))
    await server.freeze()
    await pipeline.send([message(1)], 1)
    os.kill(server.server.pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await pipeline.drain()
    await pipeline.close()


async def test_a_subject_that_no_stream_keeps_is_an_error(server: NatsServer) -> None:
    connection = await server.connect()
    pipeline = await opened(connection)
    await pipeline.send([message(1)], 1)
    with pytest.raises(Unavailable):
        await pipeline.drain()
    await pipeline.close()
    await connection.close()
