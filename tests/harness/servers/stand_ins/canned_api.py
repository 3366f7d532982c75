"""An HTTPS server with prepared answers, which looks like the API to a client.

The wire is the product's own; only the answers are canned. Each route has a list of answers, of which the last is
given again and again; `received` keeps every request as (method, path, query).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.process import pki, tls
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server

JSON = [("content-type", "application/json")]
#: An object to answer with, an error to raise, or a script that answers the exchange itself.
Answer = Object | ApiError | Callable[[Exchange], Awaitable[None]]


class ReceivedRequest:
    """One received request."""

    def __init__(self, exchange: Exchange) -> None:
        request, parts = exchange.request, urlsplit(exchange.request.target.decode())
        self.method, self.path, self.query = request.method, parts.path, dict(parse_qsl(parts.query))
        self.headers, self.body = request.headers, request.body


class CannedApi:
    """Routes by "METHOD /path"; anything else is a 404 Status."""

    def __init__(self) -> None:
        self.routes: dict[str, list[Answer]] = {}
        self.requests: list[ReceivedRequest] = []
        self.port, self.ca = 0, b""

    def on(self, route: str, *answers: Answer) -> None:
        self.routes[route] = list(answers)

    def paths(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.requests]

    def __call__(self, exchange: Exchange) -> None:
        received = ReceivedRequest(exchange)
        self.requests.append(received)
        answers = self.routes.get(f"{received.method} {received.path}")
        answer = (answers.pop(0) if len(answers) > 1 else answers[0]) if answers else NotFound("no such thing")
        if isinstance(answer, ApiError):
            exchange.reply(answer.code, JSON, encode_json(answer.status()))
        elif isinstance(answer, dict):
            exchange.reply(200, JSON, encode_json(answer))
        else:
            exchange.spawn(answer(exchange))  # type: ignore[arg-type]

    def kubeconfig(self, directory: Path, path: str = "/clusters/root", **user: Any) -> Path:
        """A kubeconfig for this server."""
        (directory / "ca.crt").write_bytes(self.ca)
        server = f"https://127.0.0.1:{self.port}{path}"
        document = {
            "clusters": [{"name": "root", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
            "users": [{"name": "kcp-admin", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "root", "context": {"cluster": "root", "user": "kcp-admin"}}],
            "current-context": "root",
        }
        file = directory / "config"
        file.write_text(yaml.safe_dump(document))
        return file


@asynccontextmanager
async def serving(api: CannedApi) -> Any:
    """Serve it over TLS on a free port; client certificates of its own authority are taken."""
    ca = pki.make_ca("canned")
    context = tls.server_context(pki.make_serving(ca, ["127.0.0.1"]), ca.certificate)
    server = Server(api, Limits(), context)
    api.port, api.ca = await server.start("127.0.0.1", 0), ca.certificate
    try:
        yield api
    finally:
        await server.drain(0)


def watching(*events: Object, then: str = "hold") -> Callable[[Exchange], Awaitable[None]]:
    """A watch that sends events and then holds the connection, ends it ("end") or cuts it ("cut")."""

    async def script(exchange: Exchange) -> None:
        exchange.start(200, JSON)
        for event in events:
            exchange.write(encode_json(event) + b"\n")
        await exchange.drain()
        if then == "end":
            exchange.finish()
        elif then == "cut":
            await asyncio.sleep(0)
            exchange.abort()
        else:
            gone = asyncio.Event()
            exchange.on_close(gone.set)
            exchange.on_drain(gone.set)
            await gone.wait()

    return script


def thing(name: str, revision: int, cluster: str = "", **more: Any) -> Object:
    """A small object as a server sends it."""
    annotations = {"annotations": {"kcp.io/cluster": cluster}} if cluster else {}
    return {"kind": "Thing", "metadata": {"name": name, "resourceVersion": str(revision), **annotations}, **more}


def event(type: str, obj: Object) -> Object:
    return {"type": type, "object": obj}


def bookmark(revision: int, *, end: bool = False) -> Object:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return event("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": str(revision), **annotations}})
