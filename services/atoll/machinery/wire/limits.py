"""All bounds of the HTTP server in one frozen record.

Made by the process configuration, read by the parser (sizes), the connection (times) and the acceptor (counts).
Invariant: these values bound the cost of any client.
"""

from __future__ import annotations

import msgspec

_MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds. The defaults are those of a shard."""

    #: Request line and headers together; above it 431.
    header_bytes: int = 64 * 1024
    #: Header lines of one request; above it 431.
    header_count: int = 512
    #: The request target alone; above it 414.
    target_bytes: int = 32 * 1024
    #: One request body; above it 413 (Kubernetes' limit, for every verb).
    body_bytes: int = 3 * _MIB
    #: Bodies of all requests being read or served at a time; above it 503.
    bodies_bytes: int = 512 * _MIB
    #: Bytes of later requests read during an unfinished one; above it the socket is not read.
    pipelined_bytes: int = 64 * 1024
    #: Bytes of a stream that its client did not take; above it the connection is cut.
    stream_buffer_bytes: int = 16 * _MIB
    #: Written at a time: a TLS connection keeps the memory of the longest write for as long as it lives, which two
    #: records fill. The loop sends what is written in a turn as one.
    piece_bytes: int = 32 * 1024
    #: From the first byte of a request (or the opening of the connection) to the end of its headers.
    header_timeout_s: float = 10.0
    #: From the end of the headers to the end of the body.
    body_timeout_s: float = 60.0
    #: Between two requests. Above the 90 s of Go's client, so that its pool closes first.
    idle_timeout_s: float = 120.0
    #: A client that takes no byte of its response for so long is cut.
    stall_timeout_s: float = 60.0
    #: How long bytes of a refused client are read and dropped, so that it sees the refusal and not a reset.
    linger_s: float = 1.0
    handshake_timeout_s: float = 10.0
    #: TLS handshakes at a time; others wait.
    handshakes: int = 64
    #: Connections open at a time, handshakes included; above it nothing is accepted and the backlog holds the rest.
    #: A server has fewer where its process may not have the files (`within`).
    connections: int = 16_384

    def within(self, files: int) -> Limits:
        """Return them for a process that may have so many files open: a third is left for what requests need, such as a
        connection to another server for every second client of a proxy, and for stores."""
        return msgspec.structs.replace(self, connections=min(self.connections, files * 2 // 3))
