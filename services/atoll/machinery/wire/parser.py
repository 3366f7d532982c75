"""Bytes to requests: httptools with every limit and every refusal, and no I/O.

A `Connection` feeds what it received and takes requests from `ready`. A request arrives there with its whole body, or,
where a `BodyPolicy` says so, at the end of its head with a `RequestBody` that fills as bytes arrive. Invariants: the
same bytes yield the same requests and the same refusal after them, however they are cut into pieces; nothing after a
refusal is looked at; a streamed body that ended is complete by its framing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import httptools
import msgspec

from atoll.machinery.meta.status import ApiError, BadRequest, RequestEntityTooLarge, ServiceUnavailable
from atoll.machinery.wire.exchange import HeaderSet, HttpRequest, Peer
from atoll.machinery.wire.head_cache import HeadCache
from atoll.machinery.wire.limits import Limits

#: State of the parser between two feeds.
IDLE, HEAD, BODY = 0, 1, 2

#: A chunked body may spend so many bytes on framing for each byte it carries (one-byte chunks cost six), and this much
#: in addition. Above that the client only costs us time.
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
# Header names almost always arrive in one of two spellings; the table saves a decode and a lower() for each.
_NAMES = {form.encode(): name.lower() for name in _COMMON for form in (name, name.lower())}
#: Scheme and authority of an absolute target, without user information.
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)(?=[/?]|\Z)", re.IGNORECASE)
_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
#: Protocols that a proxy may switch to: those of Kubernetes' exec, attach and port-forward. Not `h2c`: requests inside
#: of such a tunnel would reach the backend with identity headers of the client's choice.
_UPGRADES = frozenset(("websocket", "spdy/3.1"))


class RequestBody:
    """The body of one request while it arrives.

    `length_bytes` is the Content-Length, None for a chunked body; `parts` holds what arrived and was not taken yet;
    `ended` is true once all of it arrived.
    """

    __slots__ = (
        "after_upgrade",
        "announced",
        "awaits_continue",
        "ended",
        "held_bytes",
        "length_bytes",
        "parts",
        "unlimited",
        "upgrades",
    )

    def __init__(self, length_bytes: int | None, *, announced: bool, upgrades: bool = False) -> None:
        self.length_bytes = length_bytes
        #: The request has a framing header, even if the body is empty.
        self.announced = announced
        #: The client asks to switch to a protocol that may be passed on.
        self.upgrades = upgrades
        #: The client waits for `100 Continue` before it sends the body.
        self.awaits_continue = False
        #: The body may be larger than `Limits.body_bytes`.
        self.unlimited = False
        self.parts: list[bytes] = []
        self.held_bytes = 0
        self.ended = False
        #: Bytes that followed a request for an upgrade: they belong to the protocol after it.
        self.after_upgrade = b""

    def take(self) -> bytes:
        """Remove and return all that was not taken yet."""
        parts, self.parts, self.held_bytes = self.parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


#: The body of a request that is whole: what there is of it is in the HttpRequest.
WHOLE = RequestBody(0, announced=False)
WHOLE.ended = True


class BodyPolicy(Protocol):
    """Which requests are handed over at the end of their heads."""

    @property
    def min_bytes(self) -> int:
        """`streams` is asked only for chunked bodies and those of at least this length."""

    def streams(self, request: HttpRequest) -> bool:
        """Whether the body of this request is streamed."""

    def unlimited(self, request: HttpRequest) -> bool:
        """Whether a streamed body may exceed `Limits.body_bytes`; asked only for one that does."""


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request and what its reply needs to know about the connection."""

    request: HttpRequest
    #: The client will send another request after this one.
    keep_alive: bool
    #: HTTP/1.0: no chunks may be sent, and keep-alive must be said.
    old: bool
    body: RequestBody


class RequestParser:
    """One connection's requests, in order.

    `ready` holds requests; `refusal` is set once the bytes after them cannot be served, and `ended` once no further
    bytes are a request (after `Connection: close`, an upgrade or a refusal). `account` gets the number of body bytes
    that were taken in; it raises ApiError when the server holds too many.
    """

    __slots__ = (
        "_account",
        "_body",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_heads",
        "_limits",
        "_method",
        "_old",
        "_parser",
        "_peer",
        "_policy",
        "_raw_bytes",
        "_stream",
        "_streamed",
        "_target",
        "_upgrade",
        "awaits_continue",
        "body_bytes",
        "ended",
        "phase",
        "ready",
        "refusal",
    )

    def __init__(
        self, limits: Limits, peer: Peer, account: Callable[[int], None], policy: BodyPolicy | None = None
    ) -> None:
        self.ready: list[ParsedRequest] = []
        self.refusal: ApiError | None = None
        self.ended = False
        #: The client waits for `100 Continue` before it sends a body that is not streamed.
        self.awaits_continue = False
        self.phase = IDLE
        #: Body bytes of the unfinished request.
        self.body_bytes = 0
        self._limits = limits
        self._peer = peer
        self._account = account
        self._policy = policy
        self._upgrade: RequestBody | None = None
        largest = limits.body_bytes if policy is None else min(limits.body_bytes, policy.min_bytes - 1)
        self._heads = HeadCache(peer, limits.header_bytes, limits.target_bytes, largest)
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
        #: The unfinished request, if its body is streamed.
        self._stream: RequestBody | None = None
        self._streamed: ParsedRequest | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes. Never raises; see `ready`, `refusal` and `ended`."""
        if self.ended:
            return
        phase = self.phase
        if phase == IDLE and (request := self._heads.find(data)) is not None:
            self._take(request)
            return
        begun = len(self.ready)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            # The request is complete. Unless it is passed on, it is answered as if no upgrade had been asked for (RFC
            # 9110 7.8 allows that); the bytes after it may be another protocol, so they are never parsed as a request.
            self.ended = True
            if self._upgrade is not None:
                self._upgrade.after_upgrade = bytes(data[error.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self._refuse_for(error.__context__ or error)
        except httptools.HttpParserError as error:
            if not self.ended:
                self._refuse(BadRequest(f"malformed HTTP request: {error}"))
        else:
            if self.phase:
                self._count_raw(phase, len(data))
            elif phase == IDLE and len(self.ready) == begun + 1 and not self.ended:
                self._heads.add(data, self.ready[-1].request)

    def _take(self, request: HttpRequest) -> None:
        """Make a request ready that arrived in one piece."""
        if request.body:
            self.body_bytes = len(request.body)
            try:
                self._account(self.body_bytes)
            except ApiError as error:
                self._refuse(error)
                return
            self.body_bytes = 0
        self.ready.append(ParsedRequest(request, True, False, WHOLE))

    def forget_heads(self) -> None:
        """Know no head of earlier requests any more."""
        self._heads.forget()

    def close(self) -> None:
        """Break the cycle with the C parser; nothing may be fed afterwards."""
        self.ended = True
        self.ready.clear()
        del self._parser

    def held_bytes(self) -> int:
        """Body bytes that `account` got for requests not yet taken from `ready`, and for the unfinished one."""
        held = sum(len(parsed.request.body) + parsed.body.held_bytes for parsed in self.ready)
        return held if self._stream is not None else held + self.body_bytes

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
            return  # A trailer: counted, but not taken for a header of the request, which was parsed without it.
        key = _NAMES.get(name) or name.decode("ascii").lower()
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise BadRequest(f"header {key} is not UTF-8") from None
        if text and text[-1] in " \t":
            text = text.rstrip(" \t")
        values = self._headers.get(key)
        if values is None:
            self._headers[key] = [text]
        else:
            values.append(text)

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
        if not self._target.startswith(b"/"):
            self._use_origin_form()
        self.phase = BODY
        self._raw_bytes = 0
        if "content-length" in headers or "transfer-encoding" in headers:
            self._begin_body(headers)

    def _use_origin_form(self) -> None:
        """Turn an absolute target into path and Host, which it overrides (RFC 9112 3.2.2); leave `*` alone."""
        if absolute := _ABSOLUTE.match(self._target):
            path = self._target[absolute.end() :]
            self._target = path if path.startswith(b"/") else b"/" + path
            self._headers["host"] = [absolute[1].decode("ascii")]

    def _begin_body(self, headers: dict[str, list[str]]) -> None:
        length: int | None = None
        coding = headers.get("transfer-encoding")
        if coding is None:
            length = int(headers["content-length"][0])
        elif self._old or [c.lower() for c in coding] != ["chunked"]:
            # Any coding but chunked is how two parsers are made to disagree (RFC 9112 6.3, 11.2); llhttp has already
            # refused it beside a Content-Length.
            raise BadRequest("unsupported Transfer-Encoding")
        policy = self._policy
        request = None
        if policy is not None and (length is None or length >= policy.min_bytes):
            request = HttpRequest(self._method, self._target, headers, b"", self._peer, streamed=True)
            if not policy.streams(request):
                request = None
        if length is not None and length > self._limits.body_bytes:
            self._check_unlimited(request)
        awaits_continue = False
        if length != 0 and not self._old and (expectations := headers.get("expect")):
            if [e.lower() for e in expectations] != ["100-continue"]:
                raise ApiError("unknown expectation", code=417, reason="")
            awaits_continue = True
        if request is None:
            self.awaits_continue = awaits_continue
            return
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        body = self._stream = RequestBody(length, announced=True, upgrades=self._wants_upgrade())
        body.awaits_continue = awaits_continue
        body.unlimited = length is not None and length > self._limits.body_bytes
        self._streamed = ParsedRequest(request, keep_alive, self._old, body)
        self.ready.append(self._streamed)

    def _check_unlimited(self, request: HttpRequest | None) -> None:
        """Raises ApiError 413 unless the body of this request may exceed the limit."""
        if request is None or self._policy is None or not self._policy.unlimited(request):
            raise body_too_large(self._limits.body_bytes)

    def _wants_upgrade(self) -> bool:
        if not self._parser.should_upgrade():
            return False
        return all(value.lower() in _UPGRADES for value in self._headers.get("upgrade", ("",)))

    def on_body(self, part: bytes) -> None:
        size = self.body_bytes + len(part)
        stream = self._stream
        if size > self._limits.body_bytes and (stream is None or not stream.unlimited):
            self._check_unlimited(self._streamed.request if self._streamed is not None else None)
            assert stream is not None
            stream.unlimited = True
        self.body_bytes = size
        if stream is not None:
            stream.awaits_continue = False
            stream.parts.append(part)
            stream.held_bytes += len(part)
            self._account(len(part))
            return
        self.awaits_continue = False
        self._account(len(part))
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            self._body = bytearray(self._body)
            self._body += part

    def on_message_complete(self) -> None:
        self.phase = IDLE
        if self._stream is not None and self._streamed is not None:
            self._stream.ended = True
            if self._stream.upgrades:
                self._upgrade = self._stream
            self.ended = not self._streamed.keep_alive
            self._reset()
            return
        # Read here: after this callback the parser is reset and says no.
        upgrade = self._parser.should_upgrade()
        keep_alive = self._parser.should_keep_alive() and not upgrade
        content = bytes(self._body) if self._body else b""
        body = WHOLE
        if upgrade and self._wants_upgrade():
            body = self._upgrade = whole_body(self._headers, content, upgrades=True)
        known = HeaderSet(self._headers)
        request = HttpRequest(self._method, self._target, self._headers, content, self._peer, False, known)
        self.ready.append(ParsedRequest(request, keep_alive, self._old, body))
        self.awaits_continue = False
        self.ended = not keep_alive
        self._reset()


def whole_body(headers: Mapping[str, list[str]], content: bytes, *, upgrades: bool = False) -> RequestBody:
    """A body that has arrived, `content` being all of it. It stays in the HttpRequest; `parts` is empty."""
    announced = "content-length" in headers or "transfer-encoding" in headers
    body = RequestBody(len(content), announced=announced, upgrades=upgrades)
    body.ended = True
    return body


def _head_too_large() -> ApiError:
    return ApiError("request headers are too large", code=431, reason="")


def body_too_large(limit: int) -> ApiError:
    """413, with the API server's text."""
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit}")


def bodies_full() -> ApiError:
    """503: all requests together hold too many body bytes."""
    return ServiceUnavailable("too many request bodies in flight, please try again later")
