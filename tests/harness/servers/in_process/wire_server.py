"""Servers of the wire layer on free ports, and a handler that echoes its request."""

from __future__ import annotations

import ssl
from typing import Protocol

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.wire.exchange import Exchange, Handler
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient


class Running:
    """A started server and the clients opened to it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.clients: list[RawClient] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> RawClient:
        client = await RawClient.connect(self.port, tls)
        self.clients.append(client)
        return client


class Serve(Protocol):
    """Start a server; it is drained when the test ends."""

    async def __call__(
        self, handler: Handler, limits: Limits | None = None, tls: ssl.SSLContext | None = None
    ) -> Running: ...


def echo(exchange: Exchange) -> None:
    """Reply with the request."""
    request = exchange.request
    told = {"method": request.method, "target": request.target.decode(), "body": request.body.decode()}
    exchange.reply(200, [("Content-Type", "application/json")], encode_json(told))
