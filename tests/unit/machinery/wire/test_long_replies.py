"""Replies are written in pieces of a TLS record, as a connection keeps the memory of its longest write."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server

PIECE_BYTES = Limits().piece_bytes


class Written(asyncio.Transport):
    """A transport that keeps what is written; `writelines` hands over what is too long for pieces."""

    def __init__(self) -> None:
        super().__init__({"socket": None})
        self.pieces: list[bytes] = []
        self.whole: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def writelines(self, list_of_data: object) -> None:
        self.whole.extend(cast(list[bytes], list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("size", [100, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])
async def test_a_reply_is_written_in_pieces(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    found = await replied(body[:size])
    assert found.whole == []
    assert max(map(len, found.pieces)) <= PIECE_BYTES
    assert b"".join(found.pieces).partition(b"\r\n\r\n")[2] == body[:size]


async def test_pieces_are_as_long_as_the_server_allows() -> None:
    found = await replied(bytes(1000), Limits(piece_bytes=400))
    assert [len(each) for each in found.pieces[:-1]] == [400, 400]
    assert b"".join(found.pieces).endswith(b"\r\n\r\n" + bytes(1000))


async def test_a_very_long_reply_is_written_as_it_is() -> None:
    body = bytes(64 * PIECE_BYTES)
    found = await replied(body)
    assert found.pieces == []
    assert found.whole[-1] is body


async def replied(body: bytes, limits: Limits | None = None) -> Written:
    """What is written of a reply to one request."""

    def handler(exchange: Exchange) -> None:
        exchange.reply(200, [], body)

    server, transport = Server(handler, limits or Limits(), None), Written()
    await server.start("127.0.0.1", 0)
    try:
        connection = server.make_connection()
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.connection_lost(None)
    finally:
        await server.drain(0)
    return transport
