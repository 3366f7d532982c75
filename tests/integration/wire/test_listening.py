"""Addresses: taken ports, Unix sockets."""

from __future__ import annotations

import pytest

from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.servers.in_process.wire_server import Serve, echo


async def test_a_taken_port_is_an_error(serve: Serve) -> None:
    running = await serve(echo)
    other = Server(echo, Limits())
    with pytest.raises(OSError, match="in use"):
        await other.start("127.0.0.1", running.port)
