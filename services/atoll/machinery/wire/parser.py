"""Bytes to requests: httptools with every limit and every refusal, and no I/O.

A `Connection` feeds what it received and takes complete requests from `ready`. Invariant: the same bytes
give the same requests, and a refusal behind the same one, however they are cut into pieces; nothing after a
refusal is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import httptools

from atoll.machinery.meta.status import ApiError, BadRequest, RequestEntityTooLarge, ServiceUnavailable
from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.limits import Limits

#: Where the parser stands between two feeds.
IDLE, HEAD, BODY = 0, 1, 2

#: A chunked body may spend so many bytes on framing for each byte it carries (one-byte chunks cost six),
#: and this much besides. Beyond it the client is only burning our time.
_FRAMING_RATIO = 16
_FRAMING_SLACK = 64 * 1024

_COMMON = (
    "Accept",
    "Accept-Encoding",
    "Authorization",
    "Connection",
    "Content-Length",
    "Content-Type",
    "Expect",
    "Host",
    "Kubectl-Command",
    "Kubectl-Session",
    "Transfer-Encoding",
    "User-Agent",
    "X-Remote-User",
    "X-Remote-Group",
)
# Header names arrive in two spellings almost always; the table saves a decode and a lower() for each of them.
_NAMES = {form.encode(): name.lower() for name in _COMMON for form in (name, name.lower())}
_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}


class ParsedRequest(NamedTuple):
    """A complete request and what its reply needs to know about the connection."""

    request: HttpRequest
    #: The client will send another request after this one.
    keep_alive: bool
    #: HTTP/1.0: no chunks may be sent, and keep-alive must be said.
    old: bool


class RequestParser:
    """One connection's requests, in order.

    `ready` holds complete requests; `refusal` is set once what followed them cannot be served, and `ended`
    once nothing that follows is a request (after `Connection: close`, an upgrade or a refusal). `account`
    is told how many body bytes were taken in; it raises ApiError when the server holds too many.
    """

    __slots__ = (
        "_account",
        "_body",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_limits",
        "_method",
        "_old",
        "_parser",
        "_peer",
        "_raw_bytes",
        "_target",
        "awaits_continue",
        "body_bytes",
        "ended",
        "phase",
        "ready",
        "refusal",
    )

    def __init__(self, limits: Limits, peer: Peer, account: Callable[[int], None]) -> None:
        self.ready: deque[ParsedRequest] = deque()
        self.refusal: ApiError | None = None
        self.ended = False
        #: The client waits for `100 Continue` before it sends the body.
        self.awaits_continue = False
        self.phase = IDLE
        #: Body bytes of the unfinished request.
        self.body_bytes = 0
        self._limits = limits
        self._peer = peer
        self._account = account
        self._parser = httptools.HttpRequestParser(self)
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, list[str]] = {}
        self._header_count = 0
        self._head_bytes = 0
        self._body: bytes | bytearray = b""
        self._raw_bytes = 0
        self._method = ""
        self._old = False
        self.body_bytes = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes. Never raises; see `ready`, `refusal` and `ended`."""
        if self.ended:
            return
        phase = self.phase
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            # The request before is complete and is answered as if the upgrade had not been asked for (RFC
            # 9110 7.8 allows that); what follows may be another protocol, so it is never parsed as a
            # request.
            self.ended = True
            self._behind_upgrade(data[error.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self._refuse_for(error.__context__ or error)
        except httptools.HttpParserError as error:
            if not self.ended:
                self._refuse(BadRequest(f"malformed HTTP request: {error}"))
        else:
            if self.phase:
                self._count_raw(phase, len(data))

    def close(self) -> None:
        """Break the cycle with the C parser; nothing may be fed afterwards."""
        self.ended = True
        self.ready.clear()
        del self._parser

    def _behind_upgrade(self, data: bytes | memoryview) -> None:
        """What came behind a request for an upgrade: nobody speaks anything else here."""

    def _refuse(self, error: ApiError) -> None:
        self.refusal = error
        self.ended = True
        self.awaits_continue = False

    def _refuse_for(self, cause: BaseException) -> None:
        if not isinstance(cause, ApiError):
            raise cause
        self._refuse(cause)

    def _count_raw(self, phase_before: int, size: int) -> None:
        """Bound what callbacks never see: an endless header line, padding, chunk extensions and trailers."""
        if self.phase == HEAD:
            self._raw_bytes += size
            if self._raw_bytes > 2 * self._limits.header_bytes:
                self._refuse(_head_too_large())
        elif phase_before == BODY:
            self._raw_bytes += size
            if self._raw_bytes > _FRAMING_RATIO * self.body_bytes + _FRAMING_SLACK:
                self._refuse(BadRequest("chunked body has too much framing"))

    # Callbacks of httptools, in the order of a message.

    def on_message_begin(self) -> None:
        self.phase = HEAD

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part
        if len(self._target) > self._limits.target_bytes:
            raise ApiError("request target is too long", code=414, reason="")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._head_bytes > self._limits.header_bytes or self._header_count > self._limits.header_count:
            raise _head_too_large()
        if self.phase == BODY:
            return  # A trailer: counted, and never taken for a header, which was judged already.
        key = _NAMES.get(name) or name.decode("ascii").lower()
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise BadRequest(f"header {key} is not UTF-8") from None
        if text and text[-1] in " \t":
            text = text.rstrip(" \t")
        known = self._headers.get(key)
        if known is None:
            self._headers[key] = [text]
        else:
            known.append(text)

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        method: bytes = parser.get_method()
        self._method = _METHODS.get(method) or method.decode("ascii")
        version: str = parser.get_http_version()
        self._old = version == "1.0"
        if version != "1.1" and not self._old:
            raise ApiError("HTTP version is not supported", code=505, reason="")
        if len(headers.get("host", ())) != 1 and not (self._old and "host" not in headers):
            raise BadRequest("exactly one Host header is required")
        if self._method == "CONNECT":
            raise ApiError("CONNECT is not served", code=405, reason="MethodNotAllowed")
        if b"#" in self._target:
            raise BadRequest("request target has a fragment")
        self.phase = BODY
        self._raw_bytes = 0
        self._judge_body(headers)

    def _judge_body(self, headers: dict[str, list[str]]) -> None:
        length = headers.get("content-length")
        coding = headers.get("transfer-encoding")
        if coding is not None:
            # Any coding but chunked is how two parsers are made to disagree (RFC 9112 6.3, 11.2); llhttp has
            # refused it beside a Content-Length already.
            if self._old or [c.lower() for c in coding] != ["chunked"]:
                raise BadRequest("unsupported Transfer-Encoding")
        elif length is None or length[0] == "0":
            return
        elif int(length[0]) > self._limits.body_bytes:
            raise body_too_large(self._limits.body_bytes)
        if not self._old and (expectations := headers.get("expect")):
            if [e.lower() for e in expectations] != ["100-continue"]:
                raise ApiError("unknown expectation", code=417, reason="")
            self.awaits_continue = True

    def on_body(self, part: bytes) -> None:
        self.awaits_continue = False
        size = self.body_bytes + len(part)
        if size > self._limits.body_bytes:
            raise body_too_large(self._limits.body_bytes)
        self.body_bytes = size
        self._account(len(part))
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            self._body = bytearray(self._body)
            self._body += part

    def on_message_complete(self) -> None:
        # Read here: after this callback the parser is reset and says no.
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        body = bytes(self._body) if self._body else b""
        request = HttpRequest(self._method, self._target, self._headers, body, self._peer)
        self.ready.append(ParsedRequest(request, keep_alive, self._old))
        self.awaits_continue = False
        self.phase = IDLE
        self.ended = not keep_alive
        self._reset()


def _head_too_large() -> ApiError:
    return ApiError("request headers are too large", code=431, reason="")


def body_too_large(limit: int) -> ApiError:
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit}")


def bodies_full() -> ApiError:
    """What `account` raises when all requests together hold too many body bytes."""
    return ServiceUnavailable("too many request bodies in flight, please try again later")
