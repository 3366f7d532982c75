"""The heads of recent requests of one connection: a client sends the same headers again and again.

The parser looks up each request that arrives in one piece, and adds those that it parsed. Invariants: a request is
found only if its headers have the same bytes as those of a request that was accepted whole, but for the digits of
Content-Length; what is found is what the parser would have yielded. Bounded in heads and in bytes of each.
"""

from __future__ import annotations

import re

from atoll.machinery.wire.exchange import HeaderSet, HttpRequest, Peer

MAX_HEADS = 4
MAX_HEAD_BYTES = 4096
#: Request lines that llhttp accepts without a look at the limits; it accepts more.
_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[\w\-.~%:?&=,+*!/]*) HTTP/1\.1\r\n")
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,5})\r\n")
_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE")}
#: Headers that concern the connection or how the body arrives.
_HOP_BY_HOP = frozenset(("connection", "expect", "transfer-encoding", "upgrade"))


class HeadCache:
    """`max_bytes` bounds heads, `max_target` targets and `max_body` bodies of what is found."""

    __slots__ = ("_heads", "_max_body", "_max_bytes", "_max_target", "_peer")

    def __init__(self, peer: Peer, max_bytes: int, max_target: int, max_body: int) -> None:
        self._peer = peer
        # Other digits of Content-Length may add to the size of a head.
        self._max_bytes, self._max_target, self._max_body = min(MAX_HEAD_BYTES, max_bytes - 8), max_target, max_body
        #: By their bytes, without the digits of Content-Length, if they have it.
        self._heads: dict[bytes, HeaderSet] = {}

    def forget(self) -> None:
        """Drop all heads: their client sends nothing for now."""
        self._heads.clear()

    def find(self, data: bytes | memoryview) -> HttpRequest | None:
        """Return the request that `data` is, if its headers are known."""
        line = _LINE.match(data)
        if line is None:
            return None
        method, target = line.groups()
        if len(target) > self._max_target:
            return None
        start = line.end()
        found = self._heads.get(bytes(data[start:]))
        if found is not None and "content-length" not in found.headers:
            return HttpRequest(_METHODS[method], target, found.headers, b"", self._peer, False, found)
        return self._with_body(_METHODS[method], target, bytes(data), start)

    def _with_body(self, method: str, target: bytes, data: bytes, start: int) -> HttpRequest | None:
        length = _LENGTH.search(data, start - 2)
        if length is None:
            return None
        behind = data.find(b"\r\n\r\n", length.end() - 2) + 4
        size = int(length[1])
        if size > self._max_body or behind + size != len(data):
            return None
        found = self._heads.get(data[start : length.start(1)] + data[length.end(1) : behind])
        if found is None or "content-length" not in found.headers:
            return None
        headers = {**found.headers, "content-length": [length[1].decode()]}
        return HttpRequest(method, target, headers, data[behind:], self._peer, False, found)

    def add(self, data: bytes | memoryview, request: HttpRequest) -> None:
        """Keep the headers of a request that `data` was parsed to."""
        data, line = bytes(data), _LINE.match(data)
        if line is None or request.header_set is None or not _HOP_BY_HOP.isdisjoint(request.headers):
            return
        behind = data.find(b"\r\n\r\n", line.end() - 2) + 4
        if behind + len(request.body) != len(data):
            return
        head = data[line.end() : behind]
        if "content-length" in request.headers:
            length = _LENGTH.search(data, line.end() - 2, behind)
            if length is None:
                return
            head = data[line.end() : length.start(1)] + data[length.end(1) : behind]
        if len(head) > self._max_bytes:
            return
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[head] = request.header_set
