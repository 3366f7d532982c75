"""Rejected requests, and the server's survival: invalid bytes, too much data, slow clients, too many connections."""

from __future__ import annotations

import asyncio
import json

import pytest

from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from harness.clients.raw_http import Raw, RawClient, until
from harness.servers.in_process.wire_server import Serve, echo

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


async def refusal(client: RawClient) -> Raw:
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/json"
    status = json.loads(answer.body)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == answer.status
    assert await client.rest() == b""
    return answer


@pytest.mark.parametrize(
    "data",
    [
        b"rubbish\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    ],
)
async def test_bad_bytes_get_a_status_and_a_closed_connection(serve: Serve, data: bytes) -> None:
    running = await serve(echo)
    client = await running.connect()
    await client.send(data)
    assert (await refusal(client)).status == 400
    await until(lambda: running.server.connections == 0)


async def test_good_requests_before_bad_bytes_are_answered_first(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    await client.send(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" * 2 + b"rubbish\r\n\r\n")
    assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    assert (await refusal(client)).status == 400


async def test_bad_bytes_behind_an_unfinished_reply_wait_for_it(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    client = await (await serve(exchanges.append)).connect()
    await client.send(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
    await until(lambda: exchanges)
    await client.send(b"rubbish\r\n\r\n")
    exchanges[0].reply(200, [])
    assert (await client.answer()).status == 200
    assert (await refusal(client)).status == 400


async def test_a_body_above_the_limit_is_refused_before_it_is_read(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    await client.send(POST + b"Content-Length: 3145729\r\nExpect: 100-continue\r\n\r\n")
    status = json.loads((await refusal(client)).body)
    assert status["message"] == "Request entity too large: limit is 3145728"
    assert (status["reason"], status["code"]) == ("RequestEntityTooLarge", 413)


async def test_a_client_still_sending_a_body_too_large_sees_the_refusal(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    await client.send(POST + b"Content-Length: 4194304\r\n\r\n")
    for _ in range(64):
        await client.send(b"x" * 65536)
        await asyncio.sleep(0.001)
    assert (await refusal(client)).status == 413


async def test_a_chunked_body_above_the_limit_is_refused(serve: Serve) -> None:
    client = await (await serve(echo, Limits(body_bytes=1000))).connect()
    await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n" + b"x" * 500 + b"\r\n")
    await client.send(b"1f5\r\n" + b"x" * 501 + b"\r\n0\r\n\r\n")
    assert (await refusal(client)).status == 413


async def test_who_never_stops_sending_is_closed_all_the_same(serve: Serve) -> None:
    running = await serve(echo, Limits(body_bytes=1000, linger_s=60))
    client = await running.connect()

    async def flood() -> None:
        while True:
            await client.send(b"x" * 65536)

    await client.send(POST + b"Content-Length: 100000000\r\n\r\n")
    sending = asyncio.ensure_future(flood())
    await until(lambda: running.server.connections == 0)
    assert isinstance((await asyncio.gather(sending, return_exceptions=True))[0], ConnectionError)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: " + b"a" * 200_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 600 + b"\r\n", 431),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    ],
)
async def test_heads_have_limits(serve: Serve, data: bytes, code: int) -> None:
    client = await (await serve(echo)).connect()
    client.writer.write(data)
    assert (await refusal(client)).status == code


FAST = Limits(header_timeout_s=0.2, body_timeout_s=0.2, idle_timeout_s=0.2)


async def test_headers_that_trickle_are_cut_at_the_deadline(serve: Serve) -> None:
    running = await serve(echo, Limits(header_timeout_s=0.3, idle_timeout_s=60))
    client = await running.connect()

    async def trickle() -> None:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n")
        while True:
            await client.send(b"X: y\r\n")
            await asyncio.sleep(0.02)

    sending = asyncio.ensure_future(trickle())
    assert (await client.answer()).status == 408
    await until(lambda: running.server.connections == 0)
    sending.cancel()


async def test_a_body_that_does_not_come_is_cut_at_the_deadline(serve: Serve) -> None:
    client = await (await serve(echo, Limits(body_timeout_s=0.2))).connect()
    await client.send(POST + b"Content-Length: 10\r\n\r\nabc")
    assert (await refusal(client)).status == 408


@pytest.mark.parametrize("said", [b"", b"\r\n\r\n"])
async def test_a_connection_that_asks_nothing_is_closed_without_a_word(serve: Serve, said: bytes) -> None:
    client = await (await serve(echo, FAST)).connect()
    await client.send(said)
    assert await client.rest() == b""


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(serve: Serve) -> None:
    exchanges: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/busy":
            exchanges.append(exchange)
        else:
            echo(exchange)

    running = await serve(handler, Limits(idle_timeout_s=0.2))
    busy, idle = await running.connect(), await running.connect()
    await busy.send(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await idle.ask("/")).status == 200
    assert await idle.rest() == b""
    exchanges[0].reply(200, [], b"still here")
    assert (await busy.answer()).body == b"still here"


async def test_above_the_limit_of_connections_the_next_waits_for_a_place(serve: Serve) -> None:
    running = await serve(echo, Limits(connections=2))
    first, second = await running.connect(), await running.connect()
    assert [(await c.ask("/")).status for c in (first, second)] == [200, 200]
    third = await running.connect()
    asking = asyncio.ensure_future(third.ask("/"))
    await asyncio.wait([asking], timeout=0.2)
    assert not asking.done()
    assert running.server.connections == 2
    first.close()
    assert (await asking).status == 200


async def test_bodies_of_all_requests_together_have_a_limit(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    running = await serve(exchanges.append, Limits(bodies_bytes=1500))
    one, two, three = [await running.connect() for _ in range(3)]
    body = POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000
    await one.send(body)
    await until(lambda: len(exchanges) == 1)
    await two.send(body)
    answer = await refusal(two)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    exchanges[0].reply(200, [])
    assert (await one.answer()).status == 200
    await three.send(body)
    await until(lambda: len(exchanges) == 2)


async def test_an_abandoned_body_is_released(serve: Serve) -> None:
    running = await serve(echo, Limits(bodies_bytes=1500))
    for _ in range(5):
        client = await running.connect()
        await client.send(POST + b"Content-Length: 1001\r\n\r\n" + b"x" * 1000)
        await until(lambda: running.server.connections == 1)
        client.close()
        await until(lambda: running.server.connections == 0)
    answer = await (await running.connect()).ask("/", "POST", b"x" * 1000)
    assert answer.status == 200
