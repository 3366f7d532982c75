"""The proxy's own requests to shards: look-ups of unknown paths, and reviews of access to its metrics.

`path_fallback` and `endpoints` send them. They are few, small and short, over connections apart from those of clients'
requests, so that these cannot delay them.
"""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.wire.client import ClientLimits, ClientResponse, HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Headers

#: Shards with a client; one that is dropped closes its connections as they fall idle.
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
    """Sends requests to shards with the proxy's client certificate."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._clients: LruCache[str, HttpClient] = LruCache(MAX_CLIENTS)

    async def get(self, base_url: str, target: str, headers: Headers) -> ClientResponse:
        """GET a target of the shard at a base URL. Raises ClientError, TimeoutError."""
        return await self._client(base_url).request("GET", target, headers)

    async def post(self, base_url: str, target: str, headers: Headers, body: bytes) -> ClientResponse:
        """POST to a target of the shard at a base URL. Raises ClientError, TimeoutError."""
        return await self._client(base_url).request("POST", target, headers, body)

    def _client(self, base_url: str) -> HttpClient:
        client = self._clients.get(base_url)
        if client is None:
            parts = urlsplit(base_url)
            if parts.scheme != "https" or not parts.hostname:
                raise Unreachable(f"{base_url!r} is not an https URL")
            client = HttpClient(Origin(parts.hostname, parts.port or 443, self._tls), _LIMITS)
            self._clients.put(base_url, client)
        return client
