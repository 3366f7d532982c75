"""Where calls go: URLs that may be called, taken apart once for all calls to them.

`guard` looks up the destination of each call. Invariant: only https URLs with a host have one; which addresses of the
host may be called is checked for each call. Bounded in bytes.
"""

from __future__ import annotations

import hashlib
from urllib.parse import SplitResult, urlsplit

import msgspec

from atoll.machinery.egress.errors import EgressError
from atoll.machinery.meta.lru import LruCache

MAX_BYTES = 4 << 20
_HTTPS_PORT = 443
#: What a destination takes besides two copies of its URL.
_OWN_BYTES = 1024


class Destination(msgspec.Struct, frozen=True):
    """A URL that may be called. `target` is its path, `peer` its host and port, by which calls are bounded, `digest`
    that of the whole URL."""

    parts: SplitResult
    host: str
    port: int
    target: str
    peer: str
    digest: bytes
    size_bytes: int


class Destinations(LruCache[str, Destination]):
    """The destinations of one process by URL."""

    def __init__(self) -> None:
        super().__init__(MAX_BYTES, lambda found: found.size_bytes)

    def of(self, url: str) -> Destination:
        """Return the destination of a URL. Raises EgressError for one that may not be called."""
        found = self.get(url)
        if found is None:
            found = _destination(url)
            self.put(url, found)
        return found


def _destination(url: str) -> Destination:
    parts = _https(url)
    host, port = parts.hostname or "", parts.port or _HTTPS_PORT
    encoded = url.encode()
    return Destination(
        parts=parts,
        host=host,
        port=port,
        target=parts.path or "/",
        peer=f"{host.rstrip('.')}:{port}",
        digest=hashlib.sha256(encoded).digest(),
        size_bytes=_OWN_BYTES + 2 * len(encoded),
    )


def _https(url: str) -> SplitResult:
    """The parts of a URL that may be called. Raises EgressError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EgressError("refused", f"not a URL: {error}") from error
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise EgressError("refused", "only https URLs with a host are called")
    if parts.username is not None or parts.password is not None:
        raise EgressError("refused", "user information is not permitted in the URL")
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise EgressError("refused", "the URL has spaces or control characters")
    return parts


def authority(host: str, port: int) -> str:
    """The value of a Host header."""
    label = f"[{host}]" if ":" in host else host
    return label if port == _HTTPS_PORT else f"{label}:{port}"
