"""Addresses: shared ports, taken ports, Unix sockets."""

from __future__ import annotations

import pytest

from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient
from harness.servers.in_process.wire_server import Serve, echo


async def test_two_servers_share_a_port_if_both_ask_for_it() -> None:
    def server_of(name: bytes) -> Server:
        return Server(lambda exchange: exchange.reply(200, [], name), Limits())

    servers = [server_of(b"one"), server_of(b"two")]
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
