"""Heads, refusals and gzip as bytes."""

from __future__ import annotations

import gzip
import json

import pytest

from atoll.machinery.meta.status import BadRequest, ServiceUnavailable
from atoll.machinery.wire import response
from atoll.machinery.wire.compress import accepts_gzip, gzip_if_accepted
from atoll.machinery.wire.exchange import Exchange, Headers
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.servers.in_process.wire_server import Running


def test_a_head_is_status_line_headers_framing_and_date_in_utf8() -> None:
    head = response.head(200, [("Warning", '299 - "é"')], "Content-Length: 0\r\n", "Date: now\r\n")
    assert head == 'HTTP/1.1 200 OK\r\nWarning: 299 - "é"\r\nContent-Length: 0\r\nDate: now\r\n\r\n'.encode()


def test_a_status_without_a_name_is_still_a_status_line() -> None:
    assert response.head(599, [], "", "").startswith(b"HTTP/1.1 599 \r\n")


@pytest.mark.parametrize("name", ["X\r\n", "X\n"])
def test_a_header_name_cannot_break_its_line(name: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        response.head(200, [(name, "a")], "", "")


def test_a_refusal_is_a_status_object_and_closes() -> None:
    head, _, body = response.refusal(BadRequest("no"), "").partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["message"] == "no"
    assert b"Retry-After: 1" in response.refusal(ServiceUnavailable("later"), "")


@pytest.mark.parametrize(
    ("values", "accepts"),
    [
        ([], False),
        (["gzip"], True),
        (["deflate, GZIP;q=0.5"], True),
        (["deflate", "gzip"], True),
        (["gzip;q=0"], False),
        (["gzip; q=0.000"], False),
        (["gzip;q=1.0"], True),
        (["xgzip, identity"], False),
    ],
)
def test_gzip_is_accepted_by_name_and_weight(values: list[str], accepts: bool) -> None:
    assert accepts_gzip(values) is accepts


async def answered(asking: str, size: int) -> tuple[Headers, bytes]:
    """Return the headers and body that a compressing server sends for a body of `size` bytes in two parts."""
    parts = [b"a" * (size // 2), b"b" * (size - size // 2)]
    sent: list[Headers] = []

    def handler(exchange: Exchange) -> None:
        async def work() -> None:
            headers, body = await gzip_if_accepted(exchange, [("X", "y")], parts)
            sent.append(headers)
            exchange.reply(200, headers, body)

        exchange.spawn(work())

    server = Server(handler, Limits())
    running = Running(server, await server.start("127.0.0.1", 0))
    client = await running.connect()
    answer = await client.ask("/", headers=asking)
    client.close()
    await server.drain(5)
    packed = answer.headers.get("content-encoding") == "gzip"
    assert (gzip.decompress(answer.body) if packed else answer.body) == b"".join(parts)
    return sent[0], answer.body


async def test_big_bodies_are_compressed_when_asked() -> None:
    headers, body = await answered("Accept-Encoding: gzip\r\n", 131073)
    assert list(headers) == [("X", "y"), ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    assert len(body) < 10_000


@pytest.mark.parametrize(("asking", "size"), [("Accept-Encoding: gzip\r\n", 131072), ("", 200_000)])
async def test_small_bodies_and_who_does_not_ask_are_left_alone(asking: str, size: int) -> None:
    headers, body = await answered(asking, size)
    assert list(headers) == [("X", "y")]
    assert len(body) == size
