"""Responses of a backend that go on unchanged, and those that are parsed first."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.proxy.backend_connection import MAX_HEAD_BYTES, BackendConnection, ResponseHead

TYPE = b"Content-Type: application/json\r\n"


class _Transport:
    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        """No socket."""

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None: ...


class _Sink:
    """A ResponseSink that keeps what it was given."""

    upgrades = False

    def __init__(self, *, passes: bool = True) -> None:
        self.passes = passes
        self.whole: list[tuple[int, bytes]] = []
        self.heads: list[ResponseHead] = []
        self.parts: list[bytes] = []
        self.ended = False
        self.lost: list[Exception] = []

    def interim(self, head: ResponseHead) -> None: ...

    def response_head(self, head: ResponseHead, data: bytes) -> None:
        self.heads.append(head)
        self.parts.append(data)

    def passes_whole(self) -> bool:
        return self.passes

    def whole_response(self, status: int, data: bytes) -> None:
        self.whole.append((status, data))

    def response_data(self, data: bytes) -> None:
        self.parts.append(data)

    def response_end(self) -> None:
        self.ended = True

    def response_lost(self, error: Exception, *, begun: bool) -> None:
        self.lost.append(error)

    def backend_writable(self) -> None: ...


def begun(sink: _Sink, *, head_only: bool = False) -> BackendConnection:
    connection = BackendConnection()
    connection.connection_made(cast(asyncio.BaseTransport, cast(Any, _Transport())))
    connection.begin(sink, head_only=head_only, endless=False)
    return connection


def response(headers: bytes, body: bytes = b"{}", first: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return first + b"\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("status", [200, 201, 404, 409, 503])
def test_a_whole_plain_response_goes_on_unchanged(status: int) -> None:
    sink = _Sink()
    connection = begun(sink)
    data = response(TYPE + b'Warning: 299 - "te: connection: close"\r\n', first=b"HTTP/1.1 %d Any" % status)
    connection.data_received(data)
    assert sink.whole == [(status, data)]
    assert connection.reusable
    assert connection.used
    connection.begin(sink, head_only=False, endless=False)
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert sink.ended


@pytest.mark.parametrize(
    "headers",
    [
        b"Connection: close\r\n",
        b"connection: X-Own\r\n",
        b"Keep-Alive: timeout=5\r\n",
        b"Proxy-Authenticate: Basic\r\n",
        b"TE: trailers\r\n",
        b"Trailer: X\r\n",
        b"Upgrade: h2c\r\n",
        b"X-Empty:\r\n",
        b"X-Odd:value\r\n",
        b"X-Odd:  value\r\n",
        b"X-Odd: a\tb\r\n",
        b"X-Odd: \xc3\xa4\r\n",
    ],
)
def test_a_response_with_another_header_is_parsed(headers: bytes) -> None:
    sink = _Sink()
    begun(sink).data_received(response(headers + TYPE))
    assert not sink.whole
    assert [head.status for head in sink.heads] == [200]
    assert b"".join(sink.parts) == b"{}"
    assert sink.ended


@pytest.mark.parametrize(
    "data",
    [
        response(b"Content-Length: 2\r\n"),
        response(b"Content-Length: 3\r\n"),
        response(b"Transfer-Encoding: chunked\r\n"),
        response(TYPE) + b"HTTP/1.1 200 OK\r\n",
        response(b"X\x00: a\r\n"),
        response(b"X : a\r\n"),
        response(b"X: a\nY: b\r\n"),
    ],
)
def test_a_response_of_unclear_framing_is_refused(data: bytes) -> None:
    sink = _Sink()
    connection = begun(sink)
    connection.data_received(data)
    assert not sink.whole
    assert sink.lost
    assert not connection.reusable


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_is_parsed(status: int) -> None:
    sink = _Sink()
    begun(sink).data_received(response(TYPE, b"", b"HTTP/1.1 %d X" % status))
    assert not sink.whole
    assert [head.status for head in sink.heads] == [status]


def test_a_response_in_two_pieces_is_parsed() -> None:
    for cut in (5, 30, -1):
        sink, data = _Sink(), response(TYPE)
        connection = begun(sink)
        connection.data_received(data[:cut])
        connection.data_received(data[cut:])
        assert not sink.whole
        assert b"".join(sink.parts) == b"{}"
        assert sink.ended


def test_what_must_not_go_on_unchanged_is_parsed() -> None:
    sink = _Sink(passes=False)
    begun(sink).data_received(response(TYPE))
    assert not sink.whole
    assert sink.ended
    sink = _Sink()
    begun(sink, head_only=True).data_received(response(TYPE, b""))
    assert not sink.whole
    assert sink.ended


def test_the_head_of_a_whole_response_has_a_limit() -> None:
    sink = _Sink()
    begun(sink).data_received(response(b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n"))
    assert not sink.whole
    assert "too large" in str(sink.lost[0])


def test_the_read_buffer_of_a_quiet_watch_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, given_back = begun(_Sink()), [0] * 0
    monkeypatch.setattr(read_buffer, "give_back", lambda transport: given_back.append(transport is not None))
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert connection._headers == []

    def look(times: int) -> int:
        for number in range(times):
            connection.check(float(number), 60.0, 60.0, 60.0)
        return len(given_back)

    assert look(1) == 0, "something came since the look before"
    assert look(3) == 1
    connection.data_received(b"1\r\na\r\n")
    assert look(1) == 1
    assert look(3) == 2
