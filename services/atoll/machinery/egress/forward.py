"""Forwards a client's request to a URL that a tenant named, and streams the response back.

The front proxy and shards use it for mounts, shards for virtual resources and remote shards. The rules are those of
every call (`guard`): https, resolved once, every address checked, connected by address. A `Relay` carries the bytes of
both bodies as they arrive. In addition: the identity headers are those given here and no others, headers of the hop
stay on the hop, a response cannot redirect the client, and the number of requests to one host is bounded. Invariant: a
response cut short on one side is cut short on the other.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import string
from collections.abc import Sequence
from urllib.parse import SplitResult, quote

import structlog

from atoll.machinery.egress.destinations import authority
from atoll.machinery.egress.errors import EgressError
from atoll.machinery.egress.guard import Egress
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.wire.client import ClientError, ClientLimits, HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Exchange, Headers
from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits, Backends, BackendUnreachable
from atoll.machinery.wire.proxy.backend_connection import BackendConnection, ReframingConnection, ResponseHead
from atoll.machinery.wire.proxy.relay import Relay
from atoll.machinery.wire.proxy.streaming import StreamingExchange

log = structlog.get_logger()

#: Hosts with connections kept for the next request.
MAX_HOSTS = 64
#: Requests to one host at a time; others wait for at most `_HOST_WAIT_S`.
MAX_REQUESTS, _HOST_WAIT_S = 256, 60.0
MAX_FETCHED = 1 << 20
_LIMITS = BackendLimits(
    connect_timeout_s=10.0,
    head_timeout_s=60.0,
    # Watches are long: the server's own bookmarks keep them from being silent for so long.
    silence_timeout_s=600.0,
    body_timeout_s=600.0,
    # The kubelet's default streamingConnectionIdleTimeout, for exec, attach and port-forward.
    upgraded_silence_timeout_s=4 * 3600.0,
)
_FETCH_LIMITS = ClientLimits(connections=16, streams=0, connect_timeout_s=10.0, body_bytes=MAX_FETCHED)
#: Headers of one hop, by RFC 9110 7.6.1, and those that our own side writes.
_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
        "expect",
    }
)
#: A location beside the requested one, as that of an OpenAPI document of another hash: no scheme, host or other path.
_BESIDE = re.compile(rb"[\w.~-]*\?[\w.~=&%-]*", re.ASCII)
#: These stay as they are; others are not allowed in a request target.
_ASCII = string.printable


class Forwarder:
    """Forwards requests with one set of authorities, and perhaps one client certificate of its own."""

    def __init__(self, egress: Egress, trust: ssl.SSLContext) -> None:
        self._egress, self._trust = egress, trust
        self._backends: Backends | None = None
        self._requests: dict[tuple[str, int], _HostRequests] = {}
        self._clients: LruCache[tuple[str, int, str], HttpClient] = LruCache(MAX_HOSTS)

    async def forward(
        self, exchange: Exchange, url: str, rest: bytes, headers: Headers, *, upgrades: bool = True
    ) -> int:
        """Send the exchange's request to `url` with `rest` (a path and query) appended; return the response's status.

        `upgrades`: the server may switch to another protocol. Raises EgressError before a response was begun. A
        response that breaks off cuts the client's connection.
        """
        assert isinstance(exchange, StreamingExchange), "the server of a forwarder streams"
        destination, addresses = await self._egress.resolve(url)
        host, port = destination.host, destination.port
        body = exchange.open_body()
        if not upgrades:
            body.upgrades = False
        name = authority(host, port)
        head = framing.request_head(
            exchange.request, _target(destination.parts, rest), name, headers, body, old=exchange.old
        )
        requests = self._requests.setdefault((host, port), _HostRequests())
        await requests.enter()
        try:
            return await self._relay(
                exchange, [Origin(each, port, self._trust, host, name) for each in addresses], head
            )
        finally:
            requests.leave()
            if not requests.count:
                self._requests.pop((host, port), None)

    async def fetch(self, url: str, rest: bytes, headers: Headers, timeout_s: float) -> bytes:
        """Return the body of a GET of `url` with `rest` appended, at most MAX_FETCHED bytes. Raises EgressError, also
        for any status but 200."""
        try:
            async with asyncio.timeout(timeout_s):
                destination, addresses = await self._egress.resolve(url)
                failure = EgressError("unreachable", "the host has no address")
                for address in addresses:
                    client = self._client(address, destination.port, destination.host)
                    try:
                        response = await client.request("GET", _target(destination.parts, rest), headers)
                    except Unreachable as error:
                        failure = EgressError("unreachable", str(error))
                        continue
                    if response.status != 200:
                        raise EgressError("status", f"the server responded with status {response.status}")
                    return response.body
                raise failure
        except TimeoutError:
            raise EgressError("timeout", "context deadline exceeded") from None
        except ClientError as error:
            raise EgressError("broken", str(error)) from error

    async def _relay(self, exchange: StreamingExchange, origins: Sequence[Origin], head: bytes) -> int:
        backend, connection = await self._connect(origins)
        if exchange.closed:
            backend.release(connection)
            return 0
        owner = _Forwarded()
        relay = Relay(exchange, backend, head, owner)
        relay.send_over(connection)
        try:
            return await owner.status
        except asyncio.CancelledError:
            relay.cut()
            raise

    async def _connect(self, origins: Sequence[Origin]) -> tuple[Backend, BackendConnection]:
        """A connection to the first address that can be reached. Raises EgressError."""
        if self._backends is None:
            self._backends = Backends(_LIMITS, ReframingConnection, MAX_HOSTS)
            self._egress.at_close(self._backends.close)
        failure = EgressError("unreachable", "the host has no address")
        for origin in origins:
            backend = self._backends.at_address(origin)
            try:
                return backend, backend.idle_connection() or await backend.connect()
            except BackendUnreachable as error:
                failure = EgressError("unreachable", f"cannot connect to {origin.authority}: {error}")
        raise failure

    def _client(self, address: str, port: int, host: str) -> HttpClient:
        client = self._clients.get((address, port, host))
        if client is None:
            client = HttpClient(Origin(address, port, self._trust, host, name=authority(host, port)), _FETCH_LIMITS)
            self._clients.put((address, port, host), client)
        return client


class _HostRequests:
    """The requests to one host."""

    def __init__(self) -> None:
        self.count = 0
        self._room = asyncio.Semaphore(MAX_REQUESTS)

    async def enter(self) -> None:
        """Wait for room for one more. Raises EgressError."""
        self.count += 1
        try:
            async with asyncio.timeout(_HOST_WAIT_S):
                await self._room.acquire()
        except BaseException as error:
            self.count -= 1
            if isinstance(error, TimeoutError):
                raise EgressError("timeout", "context deadline exceeded") from None
            raise

    def leave(self) -> None:
        self.count -= 1
        self._room.release()


class _Forwarded:
    """The `RelayOwner` of one request; `status` resolves when it ended."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def check(self, head: ResponseHead) -> None:
        """Refuse redirects: clients that follow send their credentials wherever the tenant says (CVE-2022-3172)."""
        if 300 <= head.status < 400:
            locations = [value for name, value in head.headers if name.lower() == b"location"]
            if not all(map(_BESIDE.fullmatch, locations)):
                raise EgressError("redirect", "the server attempted to redirect the request, which is not permitted")

    def failed(self, error: Exception) -> None:
        if self.status.done():
            return
        if isinstance(error, EgressError):
            self.status.set_exception(error)
        elif isinstance(error, TimeoutError):
            self.status.set_exception(EgressError("timeout", "context deadline exceeded"))
        else:
            self.status.set_exception(EgressError("unreachable", str(error)))

    def done(self, status: int) -> None:
        if not self.status.done():
            self.status.set_result(status)


def _target(parts: SplitResult, rest: bytes) -> str:
    return quote(parts.path.rstrip("/").encode() + rest, safe=_ASCII)


def hop_headers(connection: Sequence[str]) -> frozenset[str]:
    """Names (lower case) of headers that stay on the hop, given the Connection headers of a message."""
    return _HOP.union(part.strip().lower() for value in connection for part in value.split(",")) if connection else _HOP
