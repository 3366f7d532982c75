"""Status lines, heads, chunks and refusals as bytes. Pure; called by the server's exchanges and connections.

Invariant: no header value can end the head early.
"""

from __future__ import annotations

from http import HTTPStatus

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.exchange import Headers

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_END = "\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


#: Responses that never carry a body nor a length (RFC 9110 6.4.1); 304 is one of them by its framing.
BODILESS = frozenset((*range(100, 200), 204, 304))


def head(status: int, headers: Headers, framing: str, date: str) -> bytes:
    """A response head. `framing` is the finished lines of Content-Length or Transfer-Encoding and Connection.

    Raises ValueError if a header would break out of its line.
    """
    line = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"
    fields = "\r\n".join(map(": ".join, headers))
    breaks = max(len(headers) - 1, 0)
    if fields.count("\n") != breaks or fields.count("\r") != breaks or "\0" in fields:
        raise ValueError("line break or NUL in a response header")
    return f"{line}{fields}{_END if headers else ''}{framing}{date}\r\n".encode()


def refusal(error: ApiError, date: str) -> bytes:
    """A complete response with a Kubernetes Status, before the connection is closed."""
    body = encode_json(error.status()) + b"\n"
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-cache, private")]
    if error.code == 503:
        headers.append(("Retry-After", "1"))
    return head(error.code, headers, f"Content-Length: {len(body)}\r\nConnection: close\r\n", date) + body
