"""Heads of requests and responses for the next hop. Pure; `relay` and those that begin one call it.

A request's body is framed from what our own parser understood of it. A response's body goes on as it arrived, with its
framing headers, unless the backend is not trusted: then it is framed like a request's. Invariant: nothing in a header
can end its line, and headers of one hop stay on it.
"""

from __future__ import annotations

import re

from atoll.machinery.wire.exchange import Headers, HttpRequest
from atoll.machinery.wire.parser import RequestBody

#: Headers of one hop (RFC 9110 7.6.1). Transfer-Encoding is not among them, as the chunks of a response go on.
_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade"))
_UPGRADE_HOP = _HOP - {b"connection", b"upgrade"}
#: In addition, from a backend that is not trusted: its trailers do not go on, and its framing is replaced.
_UNTRUSTED = frozenset((b"proxy-authorization", b"trailer", b"transfer-encoding", b"host", b"expect"))
#: Never dropped, even if Connection lists them: the body would be read otherwise than it is sent.
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
LAST_CHUNK = b"0\r\n\r\n"
_BREAKS_LINE = re.compile(r"[\r\n\0 ]")


def request_head(
    request: HttpRequest, target: str, host: str, headers: Headers, body: RequestBody, *, old: bool
) -> bytes:
    """The head of the request to a backend: `request_line` and `request_fields`."""
    return request_line(request.method, target, old=old) + request_fields(request, host, headers, body, old=old)


def request_line(method: str, target: str, *, old: bool) -> bytes:
    """The first line of a request. Raises ValueError for a target that would break out of it.

    For a client of HTTP/1.0 (`old`) the request is sent in that version, as the response may not have chunks.
    """
    if _BREAKS_LINE.search(target) is not None:
        raise ValueError("line break, NUL or space in a target")
    # Targets are bytes as they arrived, headers are text.
    return f"{method} {target} HTTP/{'1.0' if old else '1.1'}\r\n".encode("latin-1")


def request_fields(request: HttpRequest, host: str, headers: Headers, body: RequestBody, *, old: bool) -> bytes:
    """The rest of a head. `headers` are the end-to-end ones; those of framing and hop are added here.

    Raises ValueError if anything would break out of its line.
    """
    lines = [f"host: {host}\r\n", *[f"{name}: {value}\r\n" for name, value in headers]]
    if body.length_bytes is None:
        lines.append("transfer-encoding: chunked\r\n")
    elif body.announced:
        lines.append(f"content-length: {body.length_bytes}\r\n")
    if body.awaits_continue:
        lines.append("expect: 100-continue\r\n")
    if body.upgrades and not old:
        lines += [f"upgrade: {value}\r\n" for value in request.headers["upgrade"]]
        lines.append("connection: upgrade\r\n")
    elif old:
        lines.append("connection: close\r\n")
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise ValueError("line break or NUL in a header")
    return f"{text}\r\n".encode()


def response_head(first: bytes, headers: list[tuple[bytes, bytes]], closing: bytes, *, upgrade: bool = False) -> bytes:
    """A response's head for the client. `first` is the status line without its end; `closing` is the line of our own
    Connection header, or empty."""
    return _head(first, headers, closing, _UPGRADE_HOP if upgrade else _HOP, upgrade=upgrade)


def untrusted_head(first: bytes, headers: list[tuple[bytes, bytes]], framing: bytes, *, upgrade: bool = False) -> bytes:
    """The same for the response of a backend that is not trusted. `framing` has the line of Transfer-Encoding too."""
    return _head(first, headers, framing, (_UPGRADE_HOP if upgrade else _HOP) | _UNTRUSTED, upgrade=upgrade)


def _head(
    first: bytes, headers: list[tuple[bytes, bytes]], added: bytes, drop: frozenset[bytes], *, upgrade: bool
) -> bytes:
    if not first.startswith(b"HTTP/1.1 "):
        first = b"HTTP/1.1 " + first.partition(b" ")[2]
    named = [value for name, value in headers if name.lower() == b"connection"]
    if named and not upgrade:
        drop |= frozenset(part.strip().lower() for value in named for part in value.split(b",")) - _FRAMING
    fields = [b"%s: %s\r\n" % pair for pair in headers if pair[0].lower() not in drop]
    return b"%s\r\n%s%s\r\n" % (first, b"".join(fields), added)


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data)
