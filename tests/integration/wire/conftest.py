"""Servers on free ports, on the event loop that production uses."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from atoll.machinery.process import pki
from atoll.machinery.process import tls as tls_module
from atoll.machinery.process.private_files import Pair
from atoll.machinery.wire.exchange import Handler
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.servers.in_process.wire_server import Running, Serve


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    started: list[Running] = []

    async def start(handler: Handler, limits: Limits | None = None, tls: ssl.SSLContext | None = None) -> Running:
        server = Server(handler, limits or Limits(), tls)
        running = Running(server, await server.start("127.0.0.1", 0))
        started.append(running)
        return running

    yield start
    for running in started:
        for client in running.clients:
            client.close()
        await running.server.drain(0)


@pytest.fixture(scope="package")
def ca() -> Pair:
    return pki.make_ca("test ca")


@pytest.fixture(scope="package")
def server_tls(ca: Pair) -> ssl.SSLContext:
    return tls_module.server_context(pki.make_serving(ca, ["127.0.0.1", "localhost"]), ca.certificate)


@pytest.fixture(scope="package")
def client_tls(ca: Pair) -> ssl.SSLContext:
    return tls_module.client_context(ca.certificate)
