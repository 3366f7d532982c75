"""Shutdown of a server: requests that can finish in time are not cut, and no task is left."""

from __future__ import annotations

import asyncio
import socket

import pytest

from atoll.machinery.wire import server as server_module
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.wire_server import Serve, echo

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def drained(server: Server) -> None:
    """Drain with a long limit."""
    async with asyncio.timeout(60):
        await server.drain(300)


async def test_idle_connections_are_closed_and_new_ones_refused(serve: Serve) -> None:
    running = await serve(echo)
    used, fresh = await running.connect(), await running.connect()
    assert (await used.ask("/")).status == 200
    await until(lambda: running.server.connections == 2)
    await drained(running.server)
    assert (await used.rest(), await fresh.rest()) == (b"", b"")
    assert running.server.connections == 0
    with pytest.raises(ConnectionRefusedError):
        await running.connect()


async def test_who_was_connected_before_may_send_one_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than any pause of a busy machine.
    monkeypatch.setattr(server_module, "FIRST_REQUEST_S", 60.0)
    running = await serve(echo)
    accepted = await running.connect()
    await until(lambda: running.server.connections == 1)
    waiting: list[socket.socket] = []

    async def connect_and_drain() -> None:
        # The system has connected it, and the loop does not get to accept it before.
        waiting.append(socket.create_connection(("127.0.0.1", running.port)))
        await drained(running.server)

    draining = asyncio.ensure_future(connect_and_drain())
    await until(lambda: running.server.draining)
    for client in (accepted, RawClient(*await asyncio.open_connection(sock=waiting[0]))):
        answer = await client.ask("/")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.rest() == b""
        client.close()
    await draining


async def test_a_request_that_waits_in_the_socket_of_an_idle_connection_is_answered(serve: Serve) -> None:
    """The loop does not get to read it before the server drains."""
    running = await serve(echo)
    client = socket.create_connection(("127.0.0.1", running.port))
    used = RawClient(*await asyncio.open_connection(sock=client.dup()))
    assert (await used.ask("/")).status == 200

    async def send_and_drain() -> None:
        client.sendall(GET)
        await drained(running.server)

    draining = asyncio.ensure_future(send_and_drain())
    assert (await used.rest()).startswith(b"HTTP/1.1 200 OK\r\n")
    await draining
    used.close()
    client.close()


async def test_a_request_under_way_finishes_and_says_that_the_connection_closes(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    running = await serve(exchanges.append)
    client = await running.connect()
    await client.send(GET)
    await until(lambda: exchanges)
    draining = asyncio.ensure_future(drained(running.server))
    await until(lambda: running.server.draining)
    exchanges[0].reply(200, [], b"done")
    answer = await client.answer()
    assert (answer.body, answer.headers["connection"]) == (b"done", "close")
    assert await client.rest() == b""
    await draining


async def test_a_request_half_sent_is_still_answered(serve: Serve) -> None:
    running = await serve(echo)
    client = await running.connect()
    assert (await client.ask("/")).status == 200
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.head())[0] == 100
    draining = asyncio.ensure_future(drained(running.server))
    await until(lambda: running.server.draining)
    await client.send(b"abc")
    assert (await client.answer()).headers["connection"] == "close"
    await draining


async def test_streams_are_asked_to_end_and_end_properly(serve: Serve) -> None:
    begun: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        exchange.on_drain(exchange.finish)
        exchange.start(200, [])
        begun.append(exchange)

    running = await serve(handler)
    client = await running.connect()
    await client.send(GET)
    await client.head()
    await drained(running.server)
    assert await client.chunk() == b""
    assert await client.rest() == b""


async def test_a_stream_begun_while_draining_is_asked_at_once(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    running = await serve(exchanges.append)
    client = await running.connect()
    await client.send(GET)
    await until(lambda: exchanges)
    draining = asyncio.ensure_future(drained(running.server))
    await until(lambda: running.server.draining)
    exchanges[0].start(200, [])
    exchanges[0].on_drain(exchanges[0].finish)
    assert (await client.answer()).body == b""
    await draining


async def test_what_does_not_end_is_cut_at_the_deadline(serve: Serve) -> None:
    ended: list[str] = []

    def handler(exchange: Exchange) -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("task")

        exchange.on_close(lambda: ended.append("stream"))
        exchange.start(200, [])
        exchange.spawn(forever())

    running = await serve(handler)
    client = await running.connect()
    await client.send(GET)
    await client.head()
    await running.server.drain(0.1)
    assert ended == ["stream", "task"]
    assert b"0\r\n\r\n" not in await client.rest()
    assert running.server.connections == 0


async def test_a_task_that_works_on_after_its_reply_is_waited_for(serve: Serve) -> None:
    gate = asyncio.Event()
    done: list[bool] = []

    def handler(exchange: Exchange) -> None:
        async def work() -> None:
            exchange.reply(200, [])
            await gate.wait()
            done.append(True)

        exchange.spawn(work())

    running = await serve(handler)
    client = await running.connect()
    assert (await client.ask("/")).status == 200
    draining = asyncio.ensure_future(drained(running.server))
    await client.rest()
    gate.set()
    await draining
    assert done == [True]


async def test_a_task_that_outlives_the_deadline_is_cancelled(serve: Serve) -> None:
    ended: list[str] = []

    def handler(exchange: Exchange) -> None:
        async def forever() -> None:
            exchange.reply(200, [])
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        exchange.spawn(forever())

    running = await serve(handler)
    client = await running.connect()
    assert (await client.ask("/")).status == 200
    async with asyncio.timeout(60):
        await running.server.drain(0.1)
    assert ended == ["cancelled"]


async def test_a_server_may_listen_on_several_addresses_and_all_end() -> None:
    server = Server(echo, Limits())
    ports = [await server.start("127.0.0.1", 0) for _ in range(2)]
    ports.append(await server.start("::1", 0))
    clients = [await RawClient.connect(port) for port in ports[:2]]
    assert [(await client.ask("/")).status for client in clients] == [200, 200]
    await drained(server)
    for port in ports[:2]:
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect(port)
    for client in clients:
        client.close()


async def test_draining_twice_is_harmless(serve: Serve) -> None:
    running = await serve(echo)
    await running.server.drain(1)
    await running.server.drain(1)


async def test_requests_in_progress_that_are_refused_are_cut_and_the_others_go_on(serve: Serve) -> None:
    exchanges: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchanges.append(exchange)

    running = await serve(handler)
    idle, clients = await running.connect(), [await running.connect() for _ in range(2)]
    for name, client in zip("ab", clients, strict=True):
        await client.send(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % name.encode())
        await client.head()
    running.server.cut_requests(lambda request: request.target == b"/a")
    await until(lambda: running.server.connections == 2)
    gone, kept = exchanges
    assert (gone.closed, kept.closed) == (True, False)
    kept.finish()
    await clients[1].send(GET)
    await idle.send(GET)
    await until(lambda: len(exchanges) == 4)
