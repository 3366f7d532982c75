"""Frames of a connection that carries streams, as bytes and back. Pure.

A frame is one byte of kind, two of the payload's length, four of the stream's number, big-endian, and the payload. The
client opens streams, with numbers that rise; both sides send data within the credit that the other gave, and end
(after all data) or reset (at once) a stream, which is for both directions. Invariant: a frame that breaks a rule which
needs no state is refused before its payload is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: Name of the protocol in a TLS handshake (ALPN). Another meaning of frames is another version.
ALPN = "atoll-streams/1"
OPEN, DATA, CREDIT, END, RESET = range(1, 6)
#: The longest payload of DATA, which is what TLS sends in one record.
PAYLOAD_BYTES = 16 * 1024
#: Bytes of a stream that may be on their way in one direction: the credit that both sides begin with.
WINDOW_BYTES = 64 * 1024
#: Streams of a connection at a time, beyond which a server closes it.
MAX_STREAMS = 1024
LAST_NUMBER = (1 << 32) - 1
_HEAD = struct.Struct(">BHI")
_CREDIT = struct.Struct(">I")
#: Shortest and longest payload by kind.
_SIZES = {OPEN: (0, 0), DATA: (1, PAYLOAD_BYTES), CREDIT: (4, 4), END: (0, 0), RESET: (0, 0)}


class BrokenFrame(Exception):
    """The peer broke a rule of the protocol: the whole connection ends."""


def head(kind: int, number: int, size: int = 0) -> bytes:
    """The head of a frame for a stream; the whole frame where it has no payload."""
    return _HEAD.pack(kind, size, number)


def credit(number: int, size: int) -> bytes:
    """A frame that allows `size` more bytes of data."""
    return _HEAD.pack(CREDIT, _CREDIT.size, number) + _CREDIT.pack(size)


def credit_size(payload: bytes) -> int:
    """The bytes that a CREDIT frame allows."""
    return int(_CREDIT.unpack(payload)[0])


class FrameReader:
    """Cuts received bytes into frames; keeps what is not yet a whole one, less than a frame."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the kind, stream and payload of each frame that is whole now. Raises BrokenFrame.

        To be exhausted, unless the connection ends.
        """
        data = self._rest + data if self._rest else data
        at, size = 0, len(data)
        while size - at >= _HEAD.size:
            kind, length, number = _HEAD.unpack_from(data, at)
            least, most = _SIZES.get(kind, (1, 0))
            if not least <= length <= most:
                raise BrokenFrame(f"a frame of kind {kind} with {length} bytes")
            end = at + _HEAD.size + length
            if end > size:
                break
            yield kind, number, data[at + _HEAD.size : end]
            at = end
        self._rest = data[at:]
