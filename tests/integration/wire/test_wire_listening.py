"""Addresses: shared ports, taken ports, Unix sockets."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient
from harness.servers.wire_server import Serve, echo


async def test_two_servers_share_a_port_if_both_ask_for_it() -> None:
    def told(name: bytes) -> Server:
        return Server(lambda exchange: exchange.reply(200, [], name), Limits())

    servers = [told(b"one"), told(b"two")]
    port = await servers[0].start("127.0.0.1", 0, reuse_port=True)
    assert await servers[1].start("127.0.0.1", port, reuse_port=True) == port
    answers = set()
    for _ in range(200):
        client = await RawClient.connect(port)
        answers.add((await client.ask("/", headers="Connection: close\r\n")).body)
        client.close()
        if len(answers) == 2:
            break
    assert answers == {b"one", b"two"}
    for server in servers:
        await server.drain(1)


async def test_a_taken_port_is_an_error(serve: Serve) -> None:
    running = await serve(echo)
    other = Server(echo, Limits())
    with pytest.raises(OSError, match="in use"):
        await other.start("127.0.0.1", running.port)


async def test_a_unix_socket_is_private_and_a_stale_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    seen: list[str] = []

    def handler(exchange: Exchange) -> None:
        seen.append(exchange.request.peer.address)
        exchange.reply(200, [], b"hello")

    for _ in range(2):  # The second start finds the file of the first.
        server = Server(handler, Limits())
        await server.start_unix(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client = HttpClient(Origin(unix_path=str(path)))
        assert (await client.request("GET", "/")).body == b"hello"
        await client.close()
        await server.drain(1)
    assert seen == ["unix", "unix"]


async def test_a_unix_socket_somebody_listens_on_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    first, second = Server(echo, Limits()), Server(echo, Limits())
    await first.start_unix(path)
    with pytest.raises(OSError, match="another process"):
        await second.start_unix(path)
    client = HttpClient(Origin(unix_path=path))
    assert (await client.request("GET", "/")).status == 200
    await client.close()
    await first.drain(1)
    await asyncio.sleep(0)
