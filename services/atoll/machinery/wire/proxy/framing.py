"""Heads of requests and answers as they go over the hop. Pure; `relay` and `link` call it.

A request's body is framed anew, by what our own parser understood of it; an answer's body goes on as it came, so its
framing headers do too. Invariant: nothing in a header can end its line, and headers of one hop stay on it.
"""

from __future__ import annotations

from atoll.machinery.wire.exchange import Headers, HttpRequest
from atoll.machinery.wire.proxy.head_parser import RequestBody

#: What we call ourselves in `Via`, and how often a request may have passed us: mappings can make a circle.
PSEUDONYM = "atoll-front-proxy"
MAX_PASSES = 4

#: Of one hop (RFC 9110 7.6.1). Transfer-Encoding stays, as the chunks do.
_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade"))
_UPGRADE_HOP = _HOP - {b"connection", b"upgrade"}
LAST_CHUNK = b"0\r\n\r\n"


def request_head(
    request: HttpRequest, target: str, host: str, headers: Headers, body: RequestBody, *, old: bool
) -> bytes:
    """A request as it is sent on. `headers` are those that go end to end; framing and those of the hop are set here.

    A client of HTTP/1.0 is asked for in its own version, as what it gets may have no chunks. Raises ValueError if
    anything would break out of its line.
    """
    first = f"{request.method} {target} HTTP/{'1.0' if old else '1.1'}\r\n"
    lines = [f"host: {host}\r\n", *(f"{name}: {value}\r\n" for name, value in headers)]
    lines.append(f"via: {'1.0' if old else '1.1'} {PSEUDONYM}\r\n")
    if body.length_bytes is None:
        lines.append("transfer-encoding: chunked\r\n")
    elif body.said:
        lines.append(f"content-length: {body.length_bytes}\r\n")
    if body.awaits_continue:
        lines.append("expect: 100-continue\r\n")
    if body.upgrades and not old:
        lines += [f"upgrade: {value}\r\n" for value in request.headers["upgrade"]]
        lines.append("connection: upgrade\r\n")
    elif old:
        lines.append("connection: close\r\n")
    text = "".join(lines)
    whole = first + text
    breaks = len(lines) + 1
    if whole.count("\n") != breaks or whole.count("\r") != breaks or "\0" in whole or " " in target:
        raise ValueError("line break, NUL or space where a request cannot have one")
    # Targets are bytes as they came, headers are text.
    return first.encode("latin-1") + f"{text}\r\n".encode()


def passes(request: HttpRequest) -> int:
    """How often a request went through a front proxy already."""
    return sum(value.count(PSEUDONYM) for value in request.headers.get("via", ()))


def answer_head(first: bytes, headers: list[tuple[bytes, bytes]], closing: bytes, *, upgrade: bool = False) -> bytes:
    """An answer's head as the client gets it. `first` is the status line without its end; `closing` is the line of
    our own Connection header, or empty."""
    if not first.startswith(b"HTTP/1.1 "):
        first = b"HTTP/1.1 " + first.partition(b" ")[2]
    drop = _UPGRADE_HOP if upgrade else _HOP
    named = [value for name, value in headers if name.lower() == b"connection"]
    if named and not upgrade:
        drop = drop.union(*({part.strip().lower() for part in value.split(b",")} for value in named)) - _FRAMING
    fields = [b"%s: %s\r\n" % pair for pair in headers if pair[0].lower() not in drop]
    return b"%s\r\n%s%s\r\n" % (first, b"".join(fields), closing)


#: Never dropped, whoever lists them in Connection: the body would be read otherwise than it is sent.
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data)
