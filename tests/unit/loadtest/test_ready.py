"""`loadtest.ready`: connections that scenarios keep while they are idle."""

from __future__ import annotations

import asyncio
from typing import cast

from loadtest.http import Origin
from loadtest.ready import Poster, Readiness
from loadtest.server import Server

from atoll.machinery.process import pki
from atoll.machinery.process.tls import client_context, server_context
from harness.waits import until


class Served:
    """What a poster knows of a server: where it is."""

    def __init__(self, port: int, authority: bytes) -> None:
        self.origin = Origin("127.0.0.1", port, client_context(authority), "")


async def test_a_poster_opens_another_connection_when_its_own_was_closed_while_it_was_idle() -> None:
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        if len(opened) > 1:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
        writer.close()

    ca = pki.make_ca("serving")
    tls = server_context(pki.make_serving(ca, ["localhost"]))
    async with asyncio.timeout(10), await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        port = listening.sockets[0].getsockname()[1]
        poster = await Poster(cast(Server, Served(port, ca.certificate)), Readiness()).open()

        async def lost() -> bool:
            return poster._connection.lost

        await until(lost, "the first connection is closed")
        assert await poster.send("POST", "/") == 201
        poster.close()
    assert len(opened) == 2
