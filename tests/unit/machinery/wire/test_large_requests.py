"""Large requests of the client leave in parts, one in each turn of the loop, as fast as the transport takes them."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.wire.client_connection import CHUNK_BYTES, ClientConnection, encode_request
from atoll.machinery.wire.pending_response import ClientLimits, ConnectionLost, PendingResponse

OBJECT = bytes(5 * CHUNK_BYTES)
ANSWER = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"


class Taking(asyncio.Transport):
    """A transport that keeps what is written, and may say that it is full."""

    def __init__(self, connection: ClientConnection, *, full_at: int = 1 << 30) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self._connection, self._full_at = connection, full_at

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        if len(self.written) == self._full_at:
            self._connection.pause_writing()

    def abort(self) -> None:
        self._connection.connection_lost(None)

    def is_closing(self) -> bool:
        return False


def sending(*, full_at: int = 1 << 30) -> tuple[ClientConnection, Taking, PendingResponse]:
    """A connection that sends a large request."""
    connection = ClientConnection(ClientLimits())
    transport = Taking(connection, full_at=full_at)
    connection.connection_made(transport)
    incoming = PendingResponse(streaming=False, body_limit=1 << 20)
    request = encode_request("POST", "/", (), (b"{", OBJECT, b"}"), "a")
    connection.send(request, incoming, head_only=False)
    return connection, transport, incoming


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_small_request_is_one_part() -> None:
    (request,) = encode_request("POST", "/", (), (b"{", b"}"), "a")
    assert request == b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


async def test_a_turn_of_the_loop_sends_one_part_of_a_request() -> None:
    _, transport, _ = sending()
    assert len(transport.written) == 1
    await asyncio.sleep(0)
    assert len(transport.written) == 2
    await turns()
    assert max(map(len, transport.written)) == CHUNK_BYTES
    head, _, body = b"".join(transport.written).partition(b"\r\n\r\n")
    assert body == b"{" + OBJECT + b"}"
    assert f"Content-Length: {len(body)}".encode() in head


async def test_nothing_is_sent_while_the_transport_is_full() -> None:
    connection, transport, _ = sending(full_at=3)
    await turns()
    assert len(transport.written) == 3
    connection.resume_writing()
    await turns()
    assert b"".join(transport.written).endswith(OBJECT + b"}")


async def test_an_early_answer_ends_the_request_and_its_connection() -> None:
    connection, transport, incoming = sending(full_at=2)
    await turns()
    connection.data_received(ANSWER)
    assert await incoming.whole() == b""
    assert incoming.status == 413
    assert not connection.reusable
    connection.resume_writing()
    await turns()
    assert len(transport.written) == 2


async def test_a_request_whose_connection_ends_fails() -> None:
    connection, transport, incoming = sending(full_at=2)
    connection.connection_lost(ConnectionResetError("gone"))
    with pytest.raises(ConnectionLost):
        await incoming.whole()
    await turns()
    assert len(transport.written) <= 2
