"""A front proxy in the test's own event loop, over real sockets, and the backends behind it.

    async with front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        await client.ask("/clusters/root:org/api/v1/namespaces", headers=BEARER)

`root:org` (1org) lies on `east`, `root:other` (2other) on `west`, `root` on `root`; a shard without a URL is not there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.process import FrontProxy, load_files
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.process import pki, tls
from atoll.machinery.process.private_files import Pair
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.multiplex.chosen import ChosenProtocol
from atoll.machinery.wire.multiplex.frames import ALPN
from atoll.machinery.wire.multiplex.server_session import ServerSession
from atoll.machinery.wire.multiplex.stream import StreamTransport
from atoll.machinery.wire.proxy.backend import BackendLimits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient
from harness.data.front_proxy_rows import SHARDS, WORKSPACES, ProxyRows
from harness.data.stores import store_options
from harness.servers.in_process.joined_streams import StreamHost

SERVING_CA, PROXY_CA, CLIENT_CA = pki.make_ca("serving"), pki.make_ca("proxies"), pki.make_ca("clients")
_SERVING = pki.make_serving(SERVING_CA, ["127.0.0.1", "localhost"])
_PROXY = pki.make_client(PROXY_CA, "front-proxy", ())
#: Tokens of users of the proxy: `alice-token` is alice's, and so on.
USERS = ("alice", "bob")
BEARER = "Authorization: Bearer alice-token\r\n"
NOWHERE = "https://127.0.0.1:1"


def bearer(user: str) -> str:
    """The header of a user."""
    return f"Authorization: Bearer {user}-token\r\n"


def server_tls() -> ssl.SSLContext:
    """TLS as a shard serves it: with a certificate of the site, and a request for the proxy's."""
    return tls.server_context(_SERVING, PROXY_CA.certificate)


def client_tls(pair: Pair | None = None) -> ssl.SSLContext:
    return tls.client_context(SERVING_CA.certificate, pair)


def claims(assertion: str) -> Object:
    """The claims of an assertion, unverified."""
    part = assertion.split(".")[1]
    found: Object = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


class Front:
    """A running proxy."""

    def __init__(self, proxy: FrontProxy, server: Server, port: int, rows: ProxyRows) -> None:
        self.proxy, self.server, self.port, self.rows = proxy, server, port, rows
        self.clients: list[RawClient] = []

    async def connect(self, pair: Pair | None = None, *, limit: int = 1 << 24) -> RawClient:
        client = await RawClient.connect(self.port, client_tls(pair), limit=limit)
        self.clients.append(client)
        return client

    @property
    def backend_connections(self) -> int:
        """Open connections to backends."""
        return sum(backend.connections for backend in self.proxy.backends.all())


@asynccontextmanager
async def front(
    directory: Path,
    shards: dict[str, str],
    *,
    backends: BackendLimits | None = None,
    limits: Limits | None = None,
    published: bool = True,
    **settings: Any,
) -> AsyncIterator[Front]:
    """A proxy that knows three shards at these URLs, or nothing yet (`published` False). `settings` are those of
    `atoll front-proxy`."""
    store = open_store(store_options(directory / "store"))
    rows = ProxyRows(store)
    if published:
        await publish(rows, {name: shards.get(name, NOWHERE) for name in (ROOT, "east", "west")})
    files = files_in(directory)
    config = FrontProxyConfig(root_directory=str(directory), **{**files, **settings})
    loaded = load_files(config)
    proxy = FrontProxy(config, store, loaded, backends)
    server = Server(proxy.handler, limits or Limits(), loaded.trusted.context(loaded.serving), proxy.connection)
    running = Front(proxy, server, await server.start("127.0.0.1", 0), rows)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        await server.drain(0)
        await proxy.close()
        await store.close()


def files_in(directory: Path) -> dict[str, Any]:
    """Write the files of a proxy; return the settings that name them."""
    given = {
        "proxy_client_cert_file": _PROXY.certificate,
        "proxy_client_key_file": _PROXY.key,
        "root_ca_file": SERVING_CA.certificate,
        "client_ca_file": CLIENT_CA.certificate,
        "tls_cert_file": _SERVING.certificate,
        "tls_private_key_file": _SERVING.key,
        "token_auth_file": "".join(f"{user}-token,{user},{user}-uid,team-{user}\n" for user in USERS).encode(),
    }
    for name, data in given.items():
        (directory / name).write_bytes(data)
    paths: dict[str, Any] = {name: str(directory / name) for name in given}
    return {**paths, "client_ca_file": (paths["client_ca_file"],)}


async def publish(rows: ProxyRows, urls: dict[str, str]) -> None:
    """Write the rows that the shards of a site publish."""
    for name, type in (("tenancy.kcp.io", WORKSPACES), ("shards.core.kcp.io", SHARDS)):
        await rows.write(API_EXPORTS, ROOT, name, {"status": {"identityHash": type.identity}})
    for name, url in urls.items():
        await rows.write(SHARDS, ROOT, name, {"spec": {"baseURL": url}})
    await rows.cluster(ROOT, ROOT)
    await rows.workspace(ROOT, "org", "1org", "east")
    await rows.workspace(ROOT, "other", "2other", "west")


class Shard:
    """A backend that records its requests, each with its connection."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.url = f"https://127.0.0.1:{port}"
        self.seen: list[Object] = []


@asynccontextmanager
async def echoing(port: int = 0, limits: Limits | None = None) -> AsyncIterator[Shard]:
    """A shard whose answers are JSON of method, target, headers, body and the client's port; statuses by `?status=`."""

    def handler(exchange: Exchange) -> None:
        request = exchange.request
        target = request.target.decode()
        told = {
            "method": request.method,
            "target": target,
            "headers": dict(request.headers),
            "body": request.body.decode(),
            "port": request.peer.port,
        }
        shard.seen.append(told)
        status = int(target.partition("status=")[2][:3] or 200)
        body = b"" if status in (204, 304) else encode_json(told)
        exchange.reply(status, [("Content-Type", "application/json")], body)

    server = Server(handler, limits or Limits(), server_tls())
    shard = Shard(server, await server.start("127.0.0.1", port))
    try:
        yield shard
    finally:
        await server.drain(0)


class Line:
    """A backend's end of one connection, controlled by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.is_stream = isinstance(writer.transport, StreamTransport)

    async def head(self) -> bytes:
        """The head of the next request."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        self.writer.transport.abort()


class Scripted:
    """A backend whose connections a test scripts."""

    def __init__(self, port: int, streams: StreamHost) -> None:
        self.port, self.url = port, f"https://127.0.0.1:{port}"
        self.connections = 0
        #: Counts the connections that carry streams.
        self.streams = streams
        self.lines: list[Line] = []


@asynccontextmanager
async def scripted(script: Callable[[Line], Awaitable[None]], *, streams: bool = False) -> AsyncIterator[Scripted]:
    """Run `script` for each connection; when it returns the connection is closed. With `streams` watches come as
    streams of few connections, each a `Line`."""
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        line = Line(reader, writer)
        found.lines.append(line)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await script(line)
        line.writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def line() -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(1 << 22, loop), accepted, loop)

    host = StreamHost(line)
    context = server_tls()
    if streams:
        context.set_alpn_protocols([ALPN])
    server = await loop.create_server(
        lambda: ChosenProtocol(line, lambda: ServerSession(cast(Host, host), lambda _: True)),
        "127.0.0.1",
        0,
        ssl=context,
    )
    found = Scripted(server.sockets[0].getsockname()[1], host)
    try:
        yield found
    finally:
        server.close()
        for each in found.lines:
            each.cut()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
