"""Streamed replies: chunks, the end and the cut, backpressure, and a client that disconnects."""

from __future__ import annotations

import asyncio
import socket

import pytest

from atoll.machinery.wire.connection import Connection
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.wire_server import Running, Serve

GET = b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n"


class Streams:
    """A handler that starts a stream for each request and keeps it."""

    def __init__(self) -> None:
        self.open: list[Exchange] = []
        self.closed = 0

    def __call__(self, exchange: Exchange) -> None:
        exchange.on_close(self._gone)
        exchange.start(200, [("Content-Type", "application/json")])
        self.open.append(exchange)

    def _gone(self) -> None:
        self.closed += 1


async def test_the_head_goes_out_at_once(serve: Serve) -> None:
    client = await (await serve(Streams())).connect()
    await client.send(GET)
    status, headers = await client.head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    assert "content-length" not in headers


async def test_all_writes_of_a_loop_turn_are_one_chunk(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    await client.send(GET)
    await client.head()
    for part in (b"a", b"", b"b", b"c"):
        streams.open[0].write(part)
    assert await client.chunk() == b"abc"
    streams.open[0].write(b"d")
    assert await client.chunk() == b"d"


async def test_a_long_write_is_a_chunk_of_its_own_behind_the_head(serve: Serve) -> None:
    parts = [b"a" * 70_000, b"b" * 200_000]

    def handler(exchange: Exchange) -> None:
        exchange.spawn(write(exchange))

    async def write(exchange: Exchange) -> None:
        exchange.start(200, [])
        for part in parts:
            exchange.write(part)
            await asyncio.sleep(0)
        exchange.finish()

    client = await (await serve(handler)).connect()
    for _ in range(2):
        await client.send(GET)
        assert (await client.head())[0] == 200
        assert [await client.chunk() for _ in range(3)] == [*parts, b""]
    await client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert (await client.head())[0] == 200
    assert await client.rest() == b"".join(parts)


async def test_what_is_written_before_the_end_comes_before_it(serve: Serve) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.write(b"abc")
        exchange.finish()
        exchange.write(b"too late")

    client = await (await serve(handler)).connect()
    await client.send(GET)
    assert (await client.answer()).body == b"abc"
    await client.send(GET)
    assert (await client.answer()).body == b"abc"


async def test_a_finished_stream_leaves_the_connection_for_the_next_request(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    for number in range(3):
        await client.send(GET)
        await client.head()
        streams.open[number].finish()
        assert await client.chunk() == b""
    assert streams.closed == 0


async def test_an_aborted_stream_has_no_last_chunk(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    await client.send(GET)
    await client.head()
    streams.open[0].write(b"abc")
    assert await client.chunk() == b"abc"
    streams.open[0].abort()
    assert await client.rest() == b""
    assert streams.closed == 0
    assert streams.open[0].closed


async def test_a_stream_whose_task_raises_is_cut(serve: Serve) -> None:
    def handler(exchange: Exchange) -> None:
        async def later() -> None:
            exchange.start(200, [])
            exchange.write(b"abc")
            await asyncio.sleep(0)
            raise KeyError("in the middle")

        exchange.spawn(later())

    client = await (await serve(handler)).connect()
    await client.send(GET)
    assert b"0\r\n\r\n" not in await client.rest()


async def test_http_1_0_gets_the_stream_bare_and_the_end_is_the_close(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    _, headers = await client.head()
    assert "transfer-encoding" not in headers
    assert headers["connection"] == "close"
    streams.open[0].write(b"abc")
    streams.open[0].finish()
    assert await client.rest() == b"abc"


async def test_a_client_that_leaves_cancels_the_task_and_is_told_once(serve: Serve) -> None:
    ended: list[str] = []

    def handler(exchange: Exchange) -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        exchange.on_close(lambda: ended.append("closed"))
        exchange.start(200, [])
        exchange.spawn(forever())

    client = await (await serve(handler)).connect()
    await client.send(GET)
    await client.head()
    client.close()
    await until(lambda: len(ended) == 2)
    assert ended == ["closed", "cancelled"]


async def test_after_the_client_left_writes_are_dropped_and_drain_raises(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    await client.send(GET)
    await until(lambda: streams.open)
    client.close()
    await until(lambda: streams.closed)
    (exchange,) = streams.open
    assert exchange.closed
    exchange.write(b"x")
    with pytest.raises(ConnectionResetError):
        await exchange.drain()
    exchange.finish()
    exchange.abort()
    late: list[str] = []
    exchange.on_close(lambda: late.append("told at once"))
    assert late == ["told at once"]


async def test_a_client_that_leaves_behind_pipelined_bytes_is_noticed(serve: Serve) -> None:
    streams = Streams()
    running = await serve(streams)
    client = await running.connect()
    await client.send(GET + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
    await until(lambda: streams.open)
    client.close()
    await until(lambda: running.server.connections == 0)
    assert (streams.closed, len(streams.open)) == (1, 1)


async def test_an_error_in_on_close_does_not_stop_the_others(serve: Serve) -> None:
    told: list[str] = []

    def raises() -> None:
        raise KeyError("in a callback")

    def handler(exchange: Exchange) -> None:
        exchange.on_close(raises)
        exchange.on_close(lambda: told.append("second"))
        exchange.start(200, [])

    client = await (await serve(handler)).connect()
    await client.send(GET)
    await client.head()
    client.close()
    await until(lambda: told)


async def test_a_task_for_a_client_already_gone_never_begins(serve: Serve) -> None:
    begun: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    def handler(exchange: Exchange) -> None:
        async def work() -> None:
            begun.append("work")

        exchange.start(200, [])
        exchange.abort()
        tasks.append(exchange.spawn(work()))

    client = await (await serve(handler)).connect()
    await client.send(GET)
    assert await client.rest() == b""
    await until(lambda: tasks and tasks[0].done())
    assert not begun


async def test_many_streams_each_get_every_event(serve: Serve) -> None:
    streams = Streams()
    running = await serve(streams)
    clients = [await running.connect() for _ in range(300)]
    for client in clients:
        await client.send(GET)
    await until(lambda: len(streams.open) == 300)
    for number in range(3):
        for exchange in streams.open:
            exchange.write(b"event %d\n" % number)
    for client in clients:
        await client.head()
        assert await client.chunk() == b"event 0\nevent 1\nevent 2\n"


async def blocked_writer(serve: Serve, limits: Limits) -> tuple[Running, list[int], list[str]]:
    """A server that writes to each client as much as drain permits."""
    sent: list[int] = []
    ends: list[str] = []

    def handler(exchange: Exchange) -> None:
        async def pour() -> None:
            try:
                while True:
                    exchange.write(b"x" * 100_000)
                    await exchange.drain()
                    sent.append(100_000)
            except ConnectionResetError:
                ends.append("reset")

        exchange.on_close(lambda: ends.append("closed"))
        exchange.start(200, [])
        exchange.spawn(pour())

    return await serve(handler, limits), sent, ends


async def quiet(counts: list[int]) -> int:
    """Wait until something was added, and nothing more for a while."""
    before = -1
    while not counts or len(counts) != before:
        before = len(counts)
        await asyncio.sleep(0.1)
    return before


async def test_drain_waits_for_a_client_that_does_not_read(serve: Serve) -> None:
    running, sent, ends = await blocked_writer(serve, Limits())
    client = await running.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(GET)
    stuck = await quiet(sent)
    assert 0 < sum(sent) < 16_000_000
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await client.head()
    while len(sent) < stuck + 50:
        assert set(await client.chunk()) == {ord("x")}
    assert not ends


async def test_a_task_of_somebody_else_waiting_in_drain_is_told_that_the_client_left(serve: Serve) -> None:
    streams = Streams()
    client = await (await serve(streams)).connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(GET)
    await until(lambda: streams.open)

    async def pour() -> None:
        while True:
            streams.open[0].write(b"x" * 100_000)
            await streams.open[0].drain()
            assert not streams.open[0].closed

    pouring = asyncio.ensure_future(pour())
    done, _ = await asyncio.wait([pouring], timeout=0.3)
    assert not done
    client.close()
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(60):
            await pouring


async def test_a_client_that_takes_nothing_is_cut_after_the_stall_limit(serve: Serve) -> None:
    running, _, ends = await blocked_writer(serve, Limits(stall_timeout_s=0.4))
    client = await running.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(GET)
    await until(lambda: running.server.connections == 0, "the cut")
    assert ends[0] == "closed"
    assert running.server.counts.cut_clients == 1


@pytest.mark.long
async def test_a_slow_client_that_does_read_is_not_cut(serve: Serve) -> None:
    running, _, ends = await blocked_writer(serve, Limits(stall_timeout_s=60.0))
    sock = socket.create_connection(("127.0.0.1", running.port))
    # A small window keeps the client's position and the server's close together.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client = RawClient(*await asyncio.open_connection(sock=sock, limit=65536))
    running.clients.append(client)
    await client.send(GET)
    await client.head()
    (connection,) = running.server._connections
    assert isinstance(connection, Connection)
    now_s, seen = running.server.now(), 0
    running.server.now = lambda: now_s
    for _ in range(5):
        while (taken := connection._written_bytes - connection._transport.get_write_buffer_size()) <= seen:
            await client.chunk()
        now_s, seen = now_s + 59.0, taken
        connection.check(now_s)
    assert not ends


async def test_a_reply_that_nobody_takes_is_cut_after_the_stall_limit(serve: Serve) -> None:
    big = b"x" * 50_000_000
    running = await serve(lambda exchange: exchange.reply(200, [], big), Limits(stall_timeout_s=0.4))
    client = await running.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(GET)
    await until(lambda: running.server.connections == 0, "the cut")


async def test_a_writer_that_never_drains_is_cut_at_the_buffer_limit(serve: Serve) -> None:
    streams = Streams()
    running = await serve(streams, Limits(stream_buffer_bytes=1_000_000))
    client = await running.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(GET)
    await until(lambda: streams.open)
    written = 0
    while not streams.closed:
        streams.open[0].write(b"x" * 50_000)
        written += 50_000
        await asyncio.sleep(0)
    assert written < 30_000_000
    assert streams.open[0].closed
    assert running.server.counts.cut_clients == 1
