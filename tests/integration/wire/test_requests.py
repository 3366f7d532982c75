"""Requests and whole replies on a real socket: order, framing, keep-alive, HEAD, Expect, failures of
handlers.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from atoll.machinery.wire.exchange import Exchange
from harness.clients.raw_http import until
from harness.servers.in_process.wire_server import Serve, echo

GET = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_reply_carries_status_headers_length_and_body(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    answer = await client.ask("/x?y=z", "POST", b"body")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["date"].endswith(" GMT")
    assert json.loads(answer.body) == {"method": "POST", "target": "/x?y=z", "body": "body"}


async def test_a_connection_serves_many_requests(serve: Serve) -> None:
    running = await serve(echo)
    client = await running.connect()
    for number in range(20):
        assert json.loads((await client.ask(f"/{number}")).body)["target"] == f"/{number}"
    assert running.server.connections == 1


async def test_bytes_may_come_one_by_one(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    head = b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    request = head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    for at in range(len(request)):
        await client.send(request[at : at + 1])
        await asyncio.sleep(0)
    assert json.loads((await client.answer()).body)["body"] == "abcde"


async def test_pipelined_requests_are_answered_in_order_though_the_first_takes_longest(serve: Serve) -> None:
    gate = asyncio.Event()
    begun: list[bytes] = []

    def handler(exchange: Exchange) -> None:
        begun.append(exchange.request.target)

        async def later() -> None:
            await gate.wait()
            exchange.reply(200, [], exchange.request.target)

        if exchange.request.target == b"/slow":
            exchange.spawn(later())
        else:
            exchange.reply(200, [], exchange.request.target)

    client = await (await serve(handler)).connect()
    await client.send(GET % b"/1" + GET % b"/slow" + GET % b"/2")
    await client.send(GET % b"/3")
    await until(lambda: begun == [b"/1", b"/slow"], "the slow request")
    gate.set()
    assert [(await client.answer()).body for _ in range(4)] == [b"/1", b"/slow", b"/2", b"/3"]


async def test_thousands_of_pipelined_requests_are_all_answered(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    client.writer.write(b"".join(GET % b"/%d" % number for number in range(5000)))
    for number in range(5000):
        assert json.loads((await client.answer()).body)["target"] == f"/{number}"


async def test_what_is_pipelined_behind_a_slow_request_is_left_in_the_socket(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    running = await serve(exchanges.append)
    client = await running.connect()
    await client.send(GET % b"/slow")
    await until(lambda: exchanges)
    flood = asyncio.ensure_future(client.send(GET % b"/more" * 2_000_000))
    await asyncio.wait([flood], timeout=0.5)
    assert not flood.done()
    assert len(exchanges) == 1
    flood.cancel()


@pytest.mark.long
async def test_what_was_left_in_the_socket_is_served_after_the_slow_request(serve: Serve) -> None:
    exchanges: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/slow":
            exchanges.append(exchange)
        else:
            exchange.reply(200, [], exchange.request.target)

    client = await (await serve(handler)).connect()
    client.writer.write(GET % b"/slow" + b"".join(GET % b"/%d" % number for number in range(20_000)))
    await until(lambda: exchanges)
    await asyncio.sleep(0.05)
    exchanges[0].reply(200, [], b"slow")
    assert (await client.answer()).body == b"slow"
    for number in range(20_000):
        assert (await client.answer()).body == b"/%d" % number


async def test_connection_close_is_said_and_done(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    answer = await client.ask("/", headers="Connection: close\r\n")
    assert answer.headers["connection"] == "close"
    assert await client.rest() == b""


async def test_http_1_0_closes_unless_asked_to_stay(serve: Serve) -> None:
    running = await serve(echo)
    client = await running.connect()
    await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (await client.answer()).headers["connection"] == "keep-alive"
    await client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert (await client.answer()).headers["connection"] == "close"
    assert await client.rest() == b""


async def test_head_has_the_length_of_get_and_no_body(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    length = len((await client.ask("/x")).body) + 1
    head = await client.ask("/x", "HEAD")
    assert (head.status, int(head.headers["content-length"])) == (200, length)
    assert (await client.ask("/next")).status == 200


async def test_a_head_of_a_stream_has_no_body(serve: Serve) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.write(b"data")
        exchange.finish()

    client = await (await serve(handler)).connect()
    assert (await client.ask("/", "HEAD")).headers["transfer-encoding"] == "chunked"
    assert (await client.ask("/")).body == b"data"


async def test_a_204_has_neither_body_nor_length(serve: Serve) -> None:
    client = await (await serve(lambda exchange: exchange.reply(204, []))).connect()
    assert "content-length" not in (await client.ask("/")).headers
    assert (await client.ask("/")).status == 204


async def test_a_body_of_many_parts_is_joined(serve: Serve) -> None:
    parts = [b"a" * 1000, b"b" * 100_000, b"c"]
    client = await (await serve(lambda exchange: exchange.reply(200, [], parts))).connect()
    assert (await client.ask("/")).body == b"".join(parts)


async def test_a_client_that_expects_it_is_asked_for_the_body(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    expecting = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    await client.send(expecting)
    assert (await client.head())[0] == 100
    await client.send(b"abc")
    assert json.loads((await client.answer()).body)["body"] == "abc"
    await client.send(expecting + b"abc")
    assert (await client.answer()).status == 200


async def test_100_continue_waits_for_the_reply_before_it(serve: Serve) -> None:
    exchanges: list[Exchange] = []
    client = await (await serve(exchanges.append)).connect()
    await client.send(
        GET % b"/first" + b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    )
    await until(lambda: exchanges)
    exchanges[0].reply(200, [])
    assert (await client.head())[0] == 200
    assert (await client.head())[0] == 100


async def test_an_upgrade_is_answered_plainly_and_the_socket_serves_nothing_more(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    upgrade = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    await client.send(upgrade + GET % b"/2")
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await client.rest() == b""


async def test_a_handler_that_raises_answers_500_and_the_connection_goes_on(serve: Serve) -> None:
    def handler(exchange: Exchange) -> None:
        async def later() -> None:
            raise KeyError("later")

        if exchange.request.target == b"/now":
            raise KeyError("now")
        if exchange.request.target == b"/later":
            exchange.spawn(later())
        else:
            echo(exchange)

    client = await (await serve(handler)).connect()
    for target in ("/now", "/later"):
        answer = await client.ask(target)
        assert answer.status == 500
        assert json.loads(answer.body)["reason"] == "InternalError"
        assert "Error(" not in answer.body.decode()
    assert (await client.ask("/well")).status == 200


async def test_a_task_that_ends_without_answering_is_a_500(serve: Serve) -> None:
    async def nothing() -> None:
        pass

    def handler(exchange: Exchange) -> None:
        exchange.spawn(nothing())

    client = await (await serve(handler)).connect()
    assert (await client.ask("/")).status == 500


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nX: b", "a\rb", "a\0b"])
async def test_a_header_cannot_be_smuggled_into_a_reply(serve: Serve, value: str) -> None:
    client = await (await serve(lambda exchange: exchange.reply(200, [("Location", value)]))).connect()
    answer = await client.ask("/")
    assert answer.status == 500
    assert "x" not in answer.headers


async def test_answering_twice_is_an_error_of_the_handler(serve: Serve) -> None:
    errors: list[RuntimeError] = []

    def handler(exchange: Exchange) -> None:
        exchange.reply(200, [], b"once")
        for again in (exchange.reply, exchange.start):
            try:
                again(200, [])
            except RuntimeError as error:
                errors.append(error)

    client = await (await serve(handler)).connect()
    assert (await client.ask("/")).body == b"once"
    assert len(errors) == 2
