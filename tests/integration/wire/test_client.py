"""The client against the product's server and against faulty servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from atoll.machinery.wire.client import BadResponse, ClientLimits, ConnectionLost, HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Exchange
from harness.clients.raw_http import until
from harness.servers.in_process.wire_server import Running, Serve, echo

Connect = Callable[..., HttpClient]
Script = Callable[..., Awaitable[int]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect a client to a port; it is closed at the end."""
    made: list[HttpClient] = []

    def make(port: int, limits: ClientLimits | None = None) -> HttpClient:
        made.append(HttpClient(Origin("127.0.0.1", port), limits))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    """A server that sends given bytes, one entry a connection, after each request head; None sends nothing."""
    servers: list[asyncio.Server] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(*connections: list[bytes | None]) -> int:
        lines = iter(connections)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            for answer in next(lines, []):
                try:
                    await reader.readuntil(b"\r\n\r\n")
                except asyncio.IncompleteReadError:
                    break
                if answer is None:
                    await reader.read()
                else:
                    writer.write(answer)
            writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        return int(servers[-1].sockets[0].getsockname()[1])

    yield start
    for writer in writers:
        writer.transport.abort()
    for server in servers:
        server.close()
        await server.wait_closed()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_response_has_status_headers_and_body(serve: Serve, connect: Connect) -> None:
    running = await serve(lambda exchange: exchange.reply(404, [("X-A", "1"), ("x-a", "2")], b"nothing"))
    response = await connect(running.port).request("GET", "/")
    assert (response.status, response.headers["x-a"], response.body) == (404, ["1", "2"], b"nothing")
    assert (response.header("x-a"), response.header("absent", "none")) == ("1", "none")


async def test_one_after_another_uses_one_connection(serve: Serve, connect: Connect) -> None:
    ports: set[int] = set()

    def handler(exchange: Exchange) -> None:
        ports.add(exchange.request.peer.port)
        echo(exchange)

    running = await serve(handler)
    client = connect(running.port)
    for method in ("GET", "HEAD", "POST", "DELETE", "HEAD", "PUT"):
        await client.request(method, "/", body=b"x" if method in ("POST", "PUT") else b"")
    async with await client.stream("GET", "/") as stream:
        await stream.read()
    await client.request("GET", "/")
    assert len(ports) == 1


async def test_requests_in_flight_are_bounded_and_the_rest_waits(serve: Serve, connect: Connect) -> None:
    exchanges: list[Exchange] = []

    def arrived(count: int) -> bool:
        return len(exchanges) == count

    running = await serve(exchanges.append)
    client = connect(running.port, ClientLimits(connections=2))
    asked = [asyncio.ensure_future(client.request("GET", f"/{number}")) for number in range(5)]
    for answered in range(5):
        await until(partial(arrived, min(answered + 2, 5)))
        # A connection that the client closed counts until the server has read its end; one too many would stay.
        await until(lambda: running.server.connections <= 2)
        assert arrived(min(answered + 2, 5))
        exchanges[answered].reply(200, [])
    assert [response.status for response in await asyncio.gather(*asked)] == [200] * 5


async def test_idle_connections_are_closed_after_their_time(serve: Serve, connect: Connect) -> None:
    running = await serve(echo)
    client = connect(running.port, ClientLimits(idle_timeout_s=0.05))
    await asyncio.gather(*(client.request("GET", "/") for _ in range(3)))
    await until(lambda: running.server.connections == 0)
    assert (await client.request("GET", "/")).status == 200


async def test_a_get_is_sent_again_when_the_pooled_connection_had_died(script: Script, connect: Connect) -> None:
    # The second request on the first connection is read and never answered: the connection just closes.
    client = connect(await script([OK, b""], [OK]))
    assert (await client.request("GET", "/")).status == 200
    assert (await client.request("GET", "/")).body == b"ok"


async def test_a_stream_is_begun_again_when_the_pooled_connection_had_died(script: Script, connect: Connect) -> None:
    client = connect(await script([OK, b""], [OK]))
    assert (await client.request("GET", "/")).status == 200
    async with await client.stream("GET", "/") as stream:
        assert await stream.read() == b"ok"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_is_never_sent_twice(script: Script, connect: Connect, method: str) -> None:
    client = connect(await script([OK, b""], [OK]))
    await client.request("GET", "/")
    with pytest.raises(ConnectionLost) as caught:
        await client.request(method, "/")
    assert not caught.value.begun


async def test_a_get_is_not_sent_again_on_a_fresh_connection_or_after_a_byte(script: Script, connect: Connect) -> None:
    fresh = connect(await script([b""], [OK]))
    with pytest.raises(ConnectionLost):
        await fresh.request("GET", "/")
    begun = connect(await script([OK, b"HTTP/1.1 2"], [OK]))
    await begun.request("GET", "/")
    with pytest.raises(ConnectionLost) as caught:
        await begun.request("GET", "/")
    assert caught.value.begun


async def test_a_connection_the_server_closed_is_not_used_though_the_loop_has_not_seen_it(connect: Connect) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        client = connect(listener.getsockname()[1])

        async def answer() -> socket.socket:
            accepted, _ = await loop.sock_accept(listener)
            await loop.sock_recv(accepted, 4096)
            await loop.sock_sendall(accepted, OK)
            return accepted

        first = asyncio.ensure_future(answer())
        await client.request("GET", "/")
        second = asyncio.ensure_future(answer())
        (await first).close()
        # No iteration of the loop between the close and the write.
        assert (await client.request("POST", "/")).status == 200
        (await second).close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nX: y",
    ],
)
async def test_a_response_cut_short_is_an_error(script: Script, connect: Connect, answer: bytes) -> None:
    client = connect(await script([answer]))
    with pytest.raises(ConnectionLost) as caught:
        await client.request("GET", "/")
    assert caught.value.begun


async def test_without_framing_the_end_of_the_connection_is_the_end(script: Script, connect: Connect) -> None:
    client = connect(await script([b"HTTP/1.1 200 OK\r\n\r\nall of it"]))
    assert (await client.request("GET", "/")).body == b"all of it"


async def test_interim_responses_are_passed_over(script: Script, connect: Connect) -> None:
    client = connect(await script([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX: y\r\n\r\n" + OK]))
    response = await client.request("GET", "/")
    assert (response.status, response.body) == (200, b"ok")
    assert "x" not in response.headers


async def test_a_response_nobody_asked_for_is_never_taken_for_the_next(script: Script, connect: Connect) -> None:
    client = connect(await script([OK + b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\nno"], [OK]))
    assert (await client.request("GET", "/")).body == b"ok"
    assert (await client.request("POST", "/")).body == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"a" * 2000,
    ],
)
async def test_responses_malformed_or_too_large_are_refused(script: Script, connect: Connect, answer: bytes) -> None:
    client = connect(await script([answer, None]), ClientLimits(header_bytes=1000, body_bytes=1000))
    with pytest.raises(BadResponse):
        await client.request("GET", "/")


async def test_every_wait_has_a_deadline(script: Script, connect: Connect) -> None:
    client = connect(await script([None], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", None], [OK[:-1], None]))
    with pytest.raises(TimeoutError):
        await client.request("GET", "/", timeout_s=0.1)
    stream = await client.stream("GET", "/", idle_timeout_s=0.1)
    async with stream:
        with pytest.raises(TimeoutError):
            await stream.read()
    with pytest.raises(TimeoutError):
        await client.request("GET", "/", timeout_s=0.1)


async def test_waiting_for_a_free_connection_counts(serve: Serve, connect: Connect) -> None:
    exchanges: list[Exchange] = []
    running = await serve(exchanges.append)
    client = connect(running.port, ClientLimits(connections=1))
    first = asyncio.ensure_future(client.request("GET", "/"))
    await until(lambda: exchanges)
    with pytest.raises(TimeoutError):
        await client.request("GET", "/", timeout_s=0.05)
    exchanges[0].reply(200, [])
    assert (await first).status == 200


async def test_a_request_given_up_closes_its_connection(serve: Serve, connect: Connect) -> None:
    running = await serve(lambda exchange: None)
    client = connect(running.port)
    with pytest.raises(TimeoutError):
        await client.request("GET", "/", timeout_s=0.05)
    await until(lambda: running.server.connections == 0)


async def test_nobody_there_is_unreachable(connect: Connect) -> None:
    with socket.socket() as holder, pytest.raises(Unreachable):
        holder.bind(("127.0.0.1", 0))
        await connect(holder.getsockname()[1]).request("GET", "/")


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/ HTTP/1.1\r\nX: y\r\n", []),
        ("GET", "/a b", []),
        ("GET\r\n", "/", []),
        ("GET", "/", [("X", "a\r\nY: b")]),
        ("GET", "/", [("X", "a\nY: b")]),
        ("GET", "/", [("X", "a\rY: b")]),
    ],
)
async def test_nothing_can_be_smuggled_into_a_request(
    connect: Connect, method: str, target: str, headers: list[tuple[str, str]]
) -> None:
    with pytest.raises(ValueError, match="line break"):
        await connect(1).request(method, target, headers)


def lines_of(parts: list[bytes]) -> Callable[[Exchange], None]:
    """A handler that sends each part in its own loop iteration."""

    def handler(exchange: Exchange) -> None:
        async def send() -> None:
            exchange.start(200, [])
            for part in parts:
                exchange.write(part)
                await asyncio.sleep(0.001)
            exchange.finish()

        exchange.spawn(send())

    return handler


async def test_lines_are_put_together_across_chunks(serve: Serve, connect: Connect) -> None:
    running = await serve(lines_of([b"one\ntw", b"o", b"\n\nfo", b"ur\nlast"]))
    async with await connect(running.port).stream("GET", "/") as stream:
        assert stream.status == 200
        assert [line async for line in stream.lines()] == [b"one", b"two", b"", b"four", b"last"]


async def test_a_line_above_the_limit_is_refused(serve: Serve, connect: Connect) -> None:
    running = await serve(lines_of([b"x" * 60, b"x" * 60]))
    client = connect(running.port, ClientLimits(line_bytes=100))
    async with await client.stream("GET", "/") as stream:
        with pytest.raises(BadResponse):
            [line async for line in stream.lines()]


async def test_a_stream_cut_by_the_server_is_an_error(serve: Serve, connect: Connect) -> None:
    def handler(exchange: Exchange) -> None:
        async def send() -> None:
            exchange.start(200, [])
            exchange.write(b"whole\npart")
            await asyncio.sleep(0.01)
            exchange.abort()

        exchange.spawn(send())

    running = await serve(handler)
    got: list[bytes] = []
    async with await connect(running.port).stream("GET", "/") as stream:
        with pytest.raises(ConnectionLost):
            async for line in stream.lines():
                got.append(line)
    assert got == [b"whole"]


async def watched(serve: Serve) -> tuple[Running, list[Exchange]]:
    exchanges: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchanges.append(exchange)

    return await serve(handler), exchanges


async def test_closing_a_stream_tells_the_server(serve: Serve, connect: Connect) -> None:
    running, exchanges = await watched(serve)
    stream = await connect(running.port).stream("GET", "/")
    stream.close()
    await until(lambda: exchanges[0].closed)
    with pytest.raises(ConnectionLost):
        await stream.read()


async def test_streams_do_not_take_the_places_of_requests(serve: Serve, connect: Connect) -> None:
    def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/watch":
            exchange.start(200, [])
        else:
            echo(exchange)

    running = await serve(handler)
    client = connect(running.port, ClientLimits(connections=1, streams=2))
    streams = [await client.stream("GET", "/watch") for _ in range(2)]
    assert (await client.request("GET", "/")).status == 200
    with pytest.raises(TimeoutError):
        await client.stream("GET", "/watch", timeout_s=0.05)
    streams[0].close()
    (await client.stream("GET", "/watch")).close()


async def test_a_reader_that_lags_holds_little(serve: Serve, connect: Connect) -> None:
    sent: list[int] = []

    def handler(exchange: Exchange) -> None:
        async def pour() -> None:
            exchange.start(200, [])
            for _ in range(400):
                exchange.write(b"x" * 100_000)
                await exchange.drain()
                sent.append(100_000)
            exchange.finish()

        exchange.spawn(pour())

    running = await serve(handler)
    async with await connect(running.port).stream("GET", "/") as stream:
        before = -1
        while len(sent) != before:
            before = len(sent)
            await asyncio.sleep(0.1)
        assert len(sent) < 400
        assert len(await stream.read()) == 40_000_000


async def test_closing_the_client_ends_what_is_under_way(serve: Serve, connect: Connect) -> None:
    running, exchanges = await watched(serve)
    client = connect(running.port)
    stream = await client.stream("GET", "/")
    await client.close()
    with pytest.raises(ConnectionLost):
        await stream.read()
    await until(lambda: exchanges[0].closed)
    with pytest.raises(Unreachable):
        await client.request("GET", "/")


async def test_connections_that_are_due_at_once_are_closed_and_harm_no_request(serve: Serve, connect: Connect) -> None:
    """The loop is late when it has much to do: what is due then runs at once, by a handle without a time."""
    server = await serve(echo)
    client = connect(server.port, ClientLimits(idle_timeout_s=0.0))
    loop = asyncio.get_running_loop()
    assert (await client.request("GET", "/")).status == 200
    for late_s in (1.0, 2.0, -60.0):
        client._reap_at(loop.time() - late_s)
    assert (await client.request("GET", "/")).status == 200
    await until(lambda: not client._idle)
