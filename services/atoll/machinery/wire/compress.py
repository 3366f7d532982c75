"""gzip for large responses to clients that accept it.

Called before a reply; never for watches, whose events must be sent at once. Kubernetes compresses from 128 KiB at level
1. Invariant: the event loop never compresses; a thread does.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from atoll.machinery.wire.exchange import Exchange, Headers

MIN_BYTES = 128 * 1024
_LEVEL = 1
_GZIP_WINDOW = 31
#: Headers of a compressed response.
PACKED: Headers = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))


async def gzip_if_accepted(
    exchange: Exchange, headers: Headers, body: bytes | Sequence[bytes]
) -> tuple[Headers, bytes | Sequence[bytes]]:
    """Headers and body to reply with: compressed with Content-Encoding and Vary if the request accepts gzip and the
    body is above 128 KiB, otherwise unchanged."""
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    if size <= MIN_BYTES or not accepts_gzip(exchange.request.headers.get("accept-encoding", ())):
        return headers, body
    pieces = (body,) if isinstance(body, bytes) else body
    packed = await asyncio.to_thread(_pack, pieces)
    return [*headers, *PACKED], packed


class Packer:
    """Compresses a body piece by piece, for streams of unknown length."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    async def pack(self, piece: bytes) -> bytes:
        """Return the compressed bytes that are ready; may be empty."""
        return await asyncio.to_thread(self._packer.compress, piece)

    def finish(self) -> bytes:
        """Return the end of the body."""
        return self._packer.flush()


def accepts_gzip(values: Sequence[str]) -> bool:
    """True if an Accept-Encoding names gzip with a weight above 0."""
    for clause in ",".join(values).split(","):
        name, _, parameters = clause.partition(";")
        if name.strip().lower() == "gzip":
            weight = parameters.strip().lower().removeprefix("q=")
            return weight.strip("0.") != "" if weight else True
    return False


def _pack(pieces: Sequence[bytes]) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])
