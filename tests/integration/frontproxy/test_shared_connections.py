"""Watches of many clients over few connections to a shard: which requests share them, and how they fare together."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.machinery.wire.proxy.backend_streams import SPREAD
from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.front_proxy import BEARER, Front, Line, front, scripted

ORG = "/clusters/root:org"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"6\r\nevent\n\r\n"


def request(query: str = "?watch=1", method: str = "GET", headers: str = "", body: bytes = b"") -> bytes:
    """A request for ConfigMaps."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    line = f"{method} {ORG}/api/v1/configmaps{query} HTTP/1.1\r\nHost: a\r\n"
    return f"{line}{BEARER}{headers}{length}\r\n".encode() + body


class Held:
    """A shard whose watches begin, and are held; `lines` has them in their order."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    async def __call__(self, line: Line) -> None:
        await line.head()
        self.lines.append(line)
        await line.say(CHUNKED)
        await asyncio.Event().wait()


async def watching(proxy: Front, data: bytes = b"") -> RawClient:
    """A client whose watch has begun."""
    client = await proxy.connect(limit=65536)
    await client.send(data or request())
    assert (await client.head())[0] == 200
    return client


async def test_watches_share_connections_and_other_requests_do_not(tmp_path: Path) -> None:
    held = Held()
    async with scripted(held, streams=True) as shard, front(tmp_path, {"east": shard.url}) as proxy:
        for _ in range(SPREAD + 1):
            await watching(proxy)
        assert all(line.is_stream for line in held.lines)
        assert shard.streams.sessions == 2
        for data in (
            request(""),
            request(method="POST", body=b"{}"),
            request(method="DELETE"),
            request(body=b"{}"),
            request(headers="Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ):
            await watching(proxy, data)
            assert not held.lines[-1].is_stream, data
        assert shard.streams.sessions == 2


async def test_a_client_that_reads_nothing_does_not_stop_the_others(tmp_path: Path) -> None:
    held = Held()
    async with scripted(held, streams=True) as shard, front(tmp_path, {"east": shard.url}) as proxy:
        stopped, other = await watching(proxy), await watching(proxy)
        assert shard.streams.sessions == 1
        pouring = asyncio.create_task(pour(held.lines[0]))
        transport = held.lines[0].writer.transport
        await until(lambda: transport.get_write_buffer_size() > 65536, "the stream takes no more")
        for _ in range(100):
            await held.lines[1].say(EVENT)
            assert await other.chunk() == b"event\n"
        assert not pouring.done()
        for _ in range(1000):
            assert len(await stopped.chunk()) == 65536
        pouring.cancel()


async def pour(line: Line) -> None:
    while True:
        await line.say(b"10000\r\n" + b"x" * 65536 + b"\r\n")


async def test_when_a_shard_is_gone_its_watches_end_without_the_last_chunk(tmp_path: Path) -> None:
    held = Held()
    async with scripted(held, streams=True) as shard, front(tmp_path, {"east": shard.url}) as proxy:
        clients = [await watching(proxy) for _ in range(3)]
        shard.streams.cut()
        assert [await client.rest() for client in clients] == [b""] * 3
        await watching(proxy)
        assert shard.streams.sessions == 1


async def test_a_watch_that_met_the_end_of_a_shared_connection_is_sent_again(tmp_path: Path) -> None:
    heads: list[bool] = []

    async def script(line: Line) -> None:
        await line.head()
        heads.append(line.is_stream)
        if len(heads) == 2:
            line.cut()
        else:
            await line.say(CHUNKED)
            await asyncio.Event().wait()

    async with scripted(script, streams=True) as shard, front(tmp_path, {"east": shard.url}) as proxy:
        await watching(proxy)
        await watching(proxy)
        assert heads == [True, True, False]


async def test_a_stream_ends_with_its_response(tmp_path: Path) -> None:
    heads: list[bool] = []

    async def script(line: Line) -> None:
        await line.head()
        heads.append(line.is_stream)
        await line.say(b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}")
        # Its end: nothing else comes on it.
        if line.is_stream:
            assert await line.reader.read() == b""
        heads.append(line.is_stream)

    async with scripted(script, streams=True) as shard, front(tmp_path, {"east": shard.url}) as proxy:
        client = await proxy.connect()
        for data in (request(), request("")):
            await client.send(data)
            assert (await client.answer()).status == 410
            await until(lambda: len(heads) in {2, 4})
        assert heads == [True, True, False, False]
