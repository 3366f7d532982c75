"""Questions of the proxy's own to shards: where an unknown path leads, and who may see metrics.

`misses` and `own` ask through it. Few, small and short, over connections beside those of clients' requests, so that
these cannot keep them waiting.
"""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.wire.client import ClientLimits, ClientResponse, HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Headers

#: Shards asked at a time; a client that falls out closes its connections as they fall idle.
MAX_CLIENTS = 256
TIMEOUT_S = 5.0
_LIMITS = ClientLimits(
    connections=16,
    streams=0,
    connect_timeout_s=1.0,
    request_timeout_s=TIMEOUT_S,
    idle_timeout_s=30.0,
    body_bytes=4 << 20,
)


class ShardClient:
    """Sends them, with the proxy's certificate."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._clients: LruCache[str, HttpClient] = LruCache(MAX_CLIENTS)

    async def get(self, base_url: str, target: str, headers: Headers) -> ClientResponse:
        """Raises ClientError, TimeoutError."""
        return await self._client(base_url).request("GET", target, headers)

    async def post(self, base_url: str, target: str, headers: Headers, body: bytes) -> ClientResponse:
        """Raises ClientError, TimeoutError."""
        return await self._client(base_url).request("POST", target, headers, body)

    def _client(self, base_url: str) -> HttpClient:
        found = self._clients.get(base_url)
        if found is None:
            parts = urlsplit(base_url)
            if parts.scheme != "https" or not parts.hostname:
                raise Unreachable(f"{base_url!r} is not an https URL")
            found = HttpClient(Origin(parts.hostname, parts.port or 443, self._tls), _LIMITS)
            self._clients.put(base_url, found)
        return found
