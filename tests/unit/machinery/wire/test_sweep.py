"""The sweep: a server looks at all connections every few seconds, and at those that close soon each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.exchange import Exchange, HeaderSet, HttpRequest
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import BackendLimits, Backends
from atoll.machinery.wire.server import Server
from unit.machinery.wire.test_long_replies import Written


class Open:
    """A connection that counts how often it is looked at."""

    is_new = False

    def __init__(self) -> None:
        self.looks = 0

    def check(self, now: float) -> None:
        self.looks += 1

    def drain(self) -> None: ...

    def cut(self) -> None: ...

    def cut_request(self, refused: Callable[[HttpRequest], bool]) -> None: ...


class Closing(Written):
    """A transport that is closed at some time."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Swept:
    """A server whose sweeps happen when the test says."""

    def __init__(self, server: Server) -> None:
        self.server, self.now_s = server, 1000.0
        server.now = lambda: self.now_s
        self.sweep()

    def sweep(self) -> None:
        self.server._sweep()
        assert self.server._sweep_timer is not None
        self.server._sweep_timer.cancel()

    def go_on(self, seconds: float) -> None:
        """Let time pass, with the sweeps in it."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += self.server._sweep_s
            self.sweep()


@asynccontextmanager
async def swept(limits: Limits) -> AsyncIterator[Swept]:
    found = Swept(Server(lambda exchange: None, limits))
    yield found
    for each in list(found.server._connections):
        found.server.closed(each)
    await found.server.drain(0)


async def test_a_quiet_connection_is_looked_at_every_few_seconds() -> None:
    async with swept(Limits()) as found:
        quiet, closing = Open(), Open()
        for each in (quiet, closing):
            found.server.opened(each)
        found.server.lingers(closing)
        found.go_on(20.0)
        assert 7 <= quiet.looks <= 9
        assert closing.looks == 80
        found.server.closed(closing)
        found.go_on(5.0)
        assert closing.looks == 80


@pytest.mark.parametrize(("header_s", "most"), [(10.0, 2.5), (1.0, 0.25)])
async def test_a_limit_is_kept_to_a_quarter_of_it(header_s: float, most: float) -> None:
    async with swept(Limits(header_timeout_s=header_s)) as found:
        connection, transport = found.server.make_connection(), Closing()
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\n")
        found.go_on(header_s - most)
        assert not transport.is_closed
        found.go_on(2 * most)
        assert transport.is_closed


async def test_a_refused_client_is_waited_for_no_longer_than_a_moment() -> None:
    async with swept(Limits(body_bytes=10)) as found:
        connection, transport = found.server.make_connection(), Closing()
        connection.connection_made(transport)
        connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
        assert b" 413 " in transport.pieces[0]
        assert not transport.is_closed
        found.go_on(1.25)
        assert transport.is_closed


async def test_a_quiet_connection_keeps_nothing_for_its_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[object] = []
    monkeypatch.setattr(read_buffer, "give_back", given_back.append)
    known: list[HeaderSet] = []

    def handler(exchange: Exchange) -> None:
        assert exchange.request.header_set is not None
        exchange.request.header_set.fields = exchange.request.header_set.credentials = "derived"
        known.append(exchange.request.header_set)
        exchange.start(200, []) if exchange.request.target == b"/watch" else exchange.reply(200, [])

    async with swept(Limits()) as found:
        found.server.handler = handler
        connection, transport = found.server.make_connection(), Written()
        connection.connection_made(transport)
        given_back.clear()
        for number in range(10):
            connection.data_received(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
            found.go_on(5.0)
        assert len({id(each) for each in known}) == 1, "it is in use"
        assert given_back == []
        found.go_on(30.0)
        assert given_back == [transport], "once"
        connection.data_received(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0)  # The head of a stream leaves at the end of the turn.
        assert known[-1] is not known[0], "the head was read anew"
        found.go_on(30.0)
        assert given_back == [transport] * 2
        assert (known[-1].fields, known[-1].credentials) == (None, None)
        assert known[-1].headers == {"host": ["a"]}


async def test_the_date_is_that_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with swept(Limits()) as found:
        for second, text in ((0.9, "00:00:00"), (1.1, "00:00:01"), (61.0, "00:01:01")):
            monkeypatch.setattr(time, "time", lambda second=second: second)
            found.sweep()
            assert text in found.server.date, found.server.date


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        (BackendLimits(), 4.0),
        (BackendLimits(silence_timeout_s=1.0), 0.25),
        (BackendLimits(upgraded_silence_timeout_s=2.0), 0.5),
        (BackendLimits(stall_timeout_s=2.0), 0.5),
        (BackendLimits(body_timeout_s=2.0), 0.5),
        (BackendLimits(idle_timeout_s=2.0), 0.5),
        (BackendLimits(head_timeout_s=2.0), 0.5),
    ],
)
async def test_backends_are_looked_at_four_times_within_their_shortest_limit(
    limits: BackendLimits, seconds: float
) -> None:
    backends = Backends(limits)
    try:
        assert backends._timer.when() - backends._loop.time() == pytest.approx(seconds, abs=0.1)
    finally:
        backends.close()
