"""A client's request passed on to a URL that a tenant named, and the answer streamed back.

Mounts and virtual resources use it. The same rules as for every other call (`guard`): https, resolved once, every
address judged, connected by address. Beside them: what identifies the caller is what the headers given here say and
nothing else, headers of the hop stay on the hop, and the number of requests under way to one host is bounded.
Invariant: an answer cut short on one side is cut short on the other.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import string
from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, quote

import msgspec
import structlog

from atoll.machinery.egress.guard import Egress, EgressError, authority
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.wire import response
from atoll.machinery.wire.client import ClientError, ClientLimits, ClientStream, HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Exchange, Headers

log = structlog.get_logger()

MAX_CLIENTS = 64
MAX_FETCHED = 1 << 20
#: Watches are long: the server's own bookmarks keep them from being silent for so long.
_LIMITS = ClientLimits(connections=0, streams=256, connect_timeout_s=10.0, stream_idle_timeout_s=600.0)
#: Of one hop, by RFC 9110 7.6.1, and those that our own side sets anew.
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
#: Beside what was asked for, as the address of an OpenAPI document of another hash: no scheme, no host, no other path.
_BESIDE = re.compile(r"[\w.~-]*\?[\w.~=&%-]*", re.ASCII)
#: Left as it came; what is beyond it is not allowed in a request target.
_ASCII = string.printable


class Forwarder:
    """Passes requests on, with one trust and one certificate of its own."""

    def __init__(self, egress: Egress, trust: ssl.SSLContext) -> None:
        self._egress, self._trust = egress, trust
        self._clients: LruCache[tuple[str, int, str], HttpClient] = LruCache(MAX_CLIENTS)

    async def forward(self, exchange: Exchange, url: str, rest: bytes, headers: Headers) -> int:
        """Send the exchange's request to `url` with `rest` (a path and query) behind it; gives the answer's status.

        Raises EgressError before anything was answered. An answer that breaks off cuts the client's connection.
        """
        parts, addresses = await self._egress.judged(url)
        request = exchange.request
        sent = _Sent(request.method, _target(parts, rest), headers, request.body)
        stream = await self._open(parts, addresses, sent)
        try:
            locations = stream.headers.get("location", ())
            if 300 <= stream.status < 400 and not all(map(_BESIDE.fullmatch, locations)):
                # Clients that follow take their credentials along to wherever the tenant says (CVE-2022-3172).
                raise EgressError("redirect", "the server attempted to redirect the request, which is not permitted")
            await _answer(exchange, stream)
        finally:
            stream.close()
        return stream.status

    async def fetch(self, url: str, rest: bytes, headers: Headers, timeout_s: float) -> bytes:
        """The body of a GET of `url` with `rest` behind it, at most MAX_FETCHED bytes. Raises EgressError, also for
        any status but 200."""
        try:
            async with asyncio.timeout(timeout_s):
                parts, addresses = await self._egress.judged(url)
                stream = await self._open(parts, addresses, _Sent("GET", _target(parts, rest), headers))
                try:
                    if stream.status != 200:
                        raise EgressError("status", f"the server responded with status {stream.status}")
                    return await _whole(stream)
                finally:
                    stream.close()
        except TimeoutError:
            raise EgressError("timeout", "context deadline exceeded") from None
        except ClientError as error:
            raise EgressError("broken", str(error)) from error

    async def _open(self, parts: SplitResult, addresses: Iterable[str], sent: _Sent) -> ClientStream:
        failure = EgressError("unreachable", "the host has no address")
        for address in addresses:
            client = self._client(address, parts.port or 443, parts.hostname or "")
            try:
                return await client.stream(sent.method, sent.target, sent.headers, sent.body)
            except TimeoutError:
                raise EgressError("timeout", "context deadline exceeded") from None
            except ClientError as error:
                failure = EgressError("unreachable", str(error))
                if not isinstance(error, Unreachable):
                    break
        raise failure

    def _client(self, address: str, port: int, host: str) -> HttpClient:
        found = self._clients.get((address, port, host))
        if found is None:
            found = HttpClient(Origin(address, port, self._trust, host, name=authority(host, port)), _LIMITS)
            self._clients.put((address, port, host), found)
        return found


class _Sent(msgspec.Struct, frozen=True):
    """One request on its way out."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""


def _target(parts: SplitResult, rest: bytes) -> str:
    return quote(parts.path.rstrip("/").encode() + rest, safe=_ASCII)


async def _whole(stream: ClientStream) -> bytes:
    found = bytearray()
    async for part in stream:
        found += part
        if len(found) > MAX_FETCHED:
            raise EgressError("broken", "the answer is too large")
    return bytes(found)


def end_to_end(headers: Iterable[tuple[str, str]], dropped: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """Headers that a request or an answer takes along over the hop, without `dropped` (lower case)."""
    found = list(headers)
    leave = of_the_hop([value for name, value in found if name.lower() == "connection"]) | dropped
    return [(name, value) for name, value in found if name.lower() not in leave]


def of_the_hop(connection: Sequence[str]) -> frozenset[str]:
    """Names (lower case) of headers that do not go on, by the Connection headers of a message."""
    return _HOP.union(part.strip().lower() for value in connection for part in value.split(",")) if connection else _HOP


async def _answer(exchange: Exchange, stream: ClientStream) -> None:
    headers = end_to_end((name, value) for name, values in stream.headers.items() for value in values)
    if response.bodiless(stream.status) or exchange.request.method == "HEAD":
        exchange.reply(stream.status, headers)
        return
    exchange.start(stream.status, headers)
    try:
        async for part in stream:
            exchange.write(part)
            await exchange.drain()
    except (ClientError, TimeoutError):
        exchange.abort()
    else:
        exchange.finish()
