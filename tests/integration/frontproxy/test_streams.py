"""Streams through the front proxy: a close on one side closes the other, reading follows the pace of writing, and a
truncated response is never complete. Watches are tested with a shard that takes them as streams of few connections, and
with an older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.wire.limits import Limits
from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.front_proxy import BEARER, Front, Line, client_tls, front, scripted

ORG = "/clusters/root:org"
WATCH = f"GET {ORG}/api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n".encode()
LIST = f"GET {ORG}/api/v1/configmaps HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n".encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"6\r\nevent\n\r\n"
UPGRADE = f"POST {ORG}/exec HTTP/1.1\r\nHost: a\r\n{BEARER}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n".encode()
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class Held:
    """A backend's connections with a received request, each answered by the test."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.heads: list[bytes] = []

    async def __call__(self, line: Line) -> None:
        self.heads.append(await line.head())
        self.lines.append(line)
        await asyncio.Event().wait()

    async def first(self) -> Line:
        await until(lambda: self.lines, "the request reached the backend")
        return self.lines[0]


@asynccontextmanager
async def held(
    tmp_path: Path, limits: Limits | None = None, *, streams: bool = False
) -> AsyncIterator[tuple[Front, Held]]:
    hold = Held()
    async with (
        scripted(hold, streams=streams) as backend,
        front(tmp_path, {"east": backend.url}, limits=limits) as proxy,
    ):
        yield proxy, hold


Watched = Callable[..., AbstractAsyncContextManager[tuple[Front, Held]]]


@pytest.fixture(params=[True, False], ids=["streams", "older shard"])
def watched(request: pytest.FixtureRequest) -> Watched:
    """`held`, for a watch: over a stream, or over a connection of its own."""
    return partial(held, streams=request.param)


async def test_events_arrive_as_they_are_sent(watched: Watched, tmp_path: Path) -> None:
    async with watched(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(WATCH)
        line = await hold.first()
        await line.say(CHUNKED)
        assert (await client.head())[0] == 200
        for _ in range(3):
            await line.say(EVENT)
            assert await client.chunk() == b"event\n"
        await line.say(b"0\r\n\r\n")
        assert await client.chunk() == b""


async def test_a_client_that_leaves_ends_its_watch_at_the_shard(watched: Watched, tmp_path: Path) -> None:
    async with watched(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(WATCH)
        line = await hold.first()
        await line.say(CHUNKED + EVENT)
        await client.head()
        client.close()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(line.reader.read(), 30) == b""
        await until(lambda: proxy.backend_connections == 0)


async def test_a_client_that_leaves_before_any_answer_is_not_answered_for(tmp_path: Path) -> None:
    async with held(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(LIST)
        line = await hold.first()
        client.close()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(line.reader.read(), 30) == b""


@pytest.mark.parametrize("how", ["closed", "cut"])
async def test_a_watch_that_a_shard_leaves_ends_without_the_last_chunk(
    watched: Watched, tmp_path: Path, how: str
) -> None:
    async with watched(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(WATCH)
        line = await hold.first()
        await line.say(CHUNKED + EVENT)
        assert (await client.head())[0] == 200
        assert await client.chunk() == b"event\n"
        line.writer.close() if how == "closed" else line.cut()
        assert await client.rest() == b""


async def test_a_body_that_a_shard_leaves_is_shorter_than_it_was_said_to_be(tmp_path: Path) -> None:
    async with held(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(LIST)
        line = await hold.first()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        assert (await client.head())[1]["content-length"] == "100"
        line.cut()
        assert await client.rest() == b"abc"


async def test_draining_ends_watches_behind_a_whole_chunk_and_lets_lists_end(watched: Watched, tmp_path: Path) -> None:
    async with watched(tmp_path) as (proxy, hold):
        watching, between, listing = [await proxy.connect() for _ in range(3)]
        for count, (client, request) in enumerate(((watching, WATCH), (between, WATCH), (listing, LIST)), 1):
            await client.send(request)
            await until(partial(lambda count: len(hold.lines) == count, count))
        for line in hold.lines:
            await line.say(CHUNKED + EVENT)
        await hold.lines[1].say(EVENT[:5])
        for client in (watching, between, listing):
            assert (await client.head())[0] == 200
            assert await client.chunk() == b"event\n"
        assert await between.reader.readexactly(5) == EVENT[:5]
        draining = asyncio.create_task(proxy.server.drain(60))
        assert await watching.rest() == b"0\r\n\r\n"
        await hold.lines[1].say(EVENT[5:])
        assert await between.rest() == EVENT[5:] + b"0\r\n\r\n"
        await hold.lines[2].say(EVENT + b"0\r\n\r\n")
        assert await listing.rest() == EVENT + b"0\r\n\r\n"
        await draining


# Upgrades


@asynccontextmanager
async def switched(tmp_path: Path, early: bytes = b"", greeting: bytes = b"") -> AsyncIterator[tuple[RawClient, Line]]:
    """A client and a backend after a switch of protocols."""
    async with held(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(UPGRADE + b"Content-Length: 0\r\n\r\n" + early)
        line = await hold.first()
        assert b"upgrade: SPDY/3.1\r\n" in hold.heads[0]
        assert b"connection: upgrade\r\n" in hold.heads[0]
        await line.say(SWITCHED + greeting)
        status, headers = await client.head()
        assert (status, headers["upgrade"], headers["connection"]) == (101, "SPDY/3.1", "Upgrade")
        yield client, line


async def test_after_an_upgrade_bytes_pass_both_ways(tmp_path: Path) -> None:
    async with switched(tmp_path, early=b"early\0", greeting=b"hello\r\n") as (client, line):
        assert await client.reader.readexactly(7) == b"hello\r\n"
        assert await line.reader.readexactly(6) == b"early\0"
        for turn in range(10):
            await client.send(b"GET / HTTP/1.1\r\n\r\n%d" % turn)
            assert await line.reader.readexactly(19) == b"GET / HTTP/1.1\r\n\r\n%d" % turn
            await line.say(b"\x80\x03%d" % turn)
            assert await client.reader.readexactly(3) == b"\x80\x03%d" % turn


async def test_whoever_ends_an_upgraded_connection_ends_it_for_both(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    async with switched(tmp_path / "1") as (client, line):
        await line.say(b"bye")
        line.writer.close()
        assert await client.rest() == b"bye"
    async with switched(tmp_path / "2") as (client, line):
        await client.send(b"bye")
        client.writer.close()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(line.reader.read(), 30) == b"bye"


async def test_an_upgrade_that_is_not_granted_is_answered_and_nothing_behind_it_is_a_request(tmp_path: Path) -> None:
    async with held(tmp_path) as (proxy, hold):
        client = await proxy.connect()
        await client.send(UPGRADE + b"\r\n" + LIST)
        line = await hold.first()
        await line.say(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        answer = await client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (403, b"no", "close")
        assert await client.rest() == b""
        assert len(hold.heads) == 1


# Memory: far more is on offer than what is held between the two; sockets hold some megabytes beside.

_OFFERED, _HELD = 256 << 20, 48 << 20


async def _until_stuck(sent: list[int]) -> None:
    """Wait until the socket accepts nothing for a second."""
    async with asyncio.timeout(60):
        before = -1
        while before != sent[0]:
            before = sent[0]
            await asyncio.sleep(1)


async def _pour(write: asyncio.StreamWriter, sent: list[int]) -> None:
    piece = b"x" * 65536
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while sent[0] < _OFFERED:
            write.write(piece)
            await write.drain()
            sent[0] += len(piece)


async def test_a_client_that_reads_nothing_stops_the_shard(tmp_path: Path) -> None:
    async with held(tmp_path) as (proxy, hold):
        # Of a stream nothing is read unasked, but up to twice this.
        client = await proxy.connect(limit=65536)
        await client.send(LIST)
        line = await hold.first()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _OFFERED)
        sent = [0]
        pouring = asyncio.create_task(_pour(line.writer, sent))
        await _until_stuck(sent)
        assert sent[0] < _HELD
        await client.head()
        for _ in range(_HELD // 65536):
            await client.reader.readexactly(65536)
        await until(lambda: sent[0] > _HELD // 2, "the shard goes on")
        pouring.cancel()


@pytest.mark.long
async def test_a_shard_that_takes_nothing_stops_the_client(tmp_path: Path) -> None:
    async with switched(tmp_path) as (client, line):
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sent = [0]
        pouring = asyncio.create_task(_pour(client.writer, sent))
        await _until_stuck(sent)
        assert sent[0] < _HELD
        pouring.cancel()


async def test_a_client_that_reads_nothing_for_long_is_cut_with_its_watch(watched: Watched, tmp_path: Path) -> None:
    async with watched(tmp_path, Limits(stall_timeout_s=0.5)) as (proxy, hold):
        with socket.create_connection(("127.0.0.1", proxy.port)) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with await asyncio.to_thread(client_tls().wrap_socket, plain, server_hostname="localhost") as client:
                client.sendall(WATCH)
                line = await hold.first()
                await line.say(CHUNKED)
                sent = [0]
                pouring = asyncio.create_task(_pour_chunks(line, sent))
                await until(lambda: proxy.backend_connections == 0, "the watch is left")
                pouring.cancel()


async def _pour_chunks(line: Line, sent: list[int]) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while sent[0] < _OFFERED:
            await line.say(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent[0] += 65536
