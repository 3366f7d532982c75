"""One request in progress, and its replies.

`pipeline` makes it and fills in the result of each step; handlers (resources, virtual workspaces, mounts, documents)
read it, and answer through it or through `fail`. Invariant: every reply is sent here, so that headers, the status code
for audit and the end of the request are uniform, and errors become a Status in one place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.call.call import UNRESTRICTED, Call, Reply, Restrictions, View
from atoll.machinery.apiserver.call.errors import forbidden
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.negotiation import JSON, PROTOBUF, YAML
from atoll.machinery.apiserver.call.preferences import Preferences
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.configuration_cache import Access, Configuration
from atoll.machinery.kinds import protobuf_encoder
from atoll.machinery.meta.objects import decode, encode_json
from atoll.machinery.meta.status import ApiError, InternalError
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.process.step_times import StepTimes
from atoll.machinery.schema.yaml_encoder import encode_yaml
from atoll.machinery.storage.contract import Snapshot, StoreError
from atoll.machinery.wire.compress import MIN_BYTES, gzip_if_accepted
from atoll.machinery.wire.exchange import Exchange, Headers, HttpRequest

log = structlog.get_logger()

#: Bytes of JSON that are encoded as YAML or protobuf at once, in about 4 ms.
MAX_INLINE = 16 * 1024
#: Bytes of JSON above which a reply is not indented: that takes up to 50 ms a MiB.
MAX_INDENTED = 1 << 20
MAX_WARNINGS = 4096
_LONG_WARNING = 256
_NO = ("false", "0")
#: Content types of replies whose bodies are JSON until they are sent.
_ENCODED = (YAML, PROTOBUF)


class Observer(Protocol):
    """Audit, metrics and the request log: called when a request starts to stream and when it is done."""

    def streaming(self, request: Request) -> None: ...

    def done(self, request: Request, duration_s: float) -> None: ...

    @property
    def has_room(self) -> bool:
        """Whether a mutating request can be audited at once."""

    async def room(self) -> None:
        """Return once a mutating request can be audited."""


#: Authorizes a verb on the target of the request, in a view: on arrival, and when a write is planned again.
ScopeAuthorizer = Callable[[View, str], Decision]


class RemoteView(Protocol):
    """The same virtual workspace on the shard that has its rows."""

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Forward an authorized request to that shard. Raises ApiError."""


def _refuse(view: View, verb: str) -> Decision:
    return Decision(False, False, "the request was not authorized")


class RequestScope(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of a request: the whole cluster under the authorizer, or a virtual workspace's part of it."""

    #: Authorizes the request; called again when a write is planned again or a watch is checked.
    authorize: ScopeAuthorizer = _refuse
    #: The catalogue that replaces the cluster's own.
    catalog: Catalog | None = None
    restrictions: Restrictions = UNRESTRICTED
    #: The shard that serves the request, if another one has the rows.
    remote: RemoteView | None = None
    #: A watch continues after its permission is withdrawn, as in Kubernetes; False: it ends.
    keeps_watches: bool = True
    #: How many watches that end so may be open in the cluster, in this process; 0: any number.
    most_watches: int = 0
    #: Clusters beside its own whose exports and RBAC such a watch depends on.
    depends_on: tuple[str, ...] = ()
    #: When such a watch ends in any case, in Unix seconds: with the credential that opened it. 0: at its timeout alone.
    expires_s: float = 0.0
    #: The effective user and impersonator inside of the virtual workspace, if they differ from the caller's.
    user: User | None = None
    impersonator: User | None = None
    #: The request inside of the virtual workspace, if rewritten.
    info: RequestInfo | None = None


_UNAUTHORIZED = RequestScope()


class Request(msgspec.Struct):
    """One request in the pipeline; each step fills in its result."""

    exchange: Exchange
    preferences: Preferences
    audit_id: str
    info: RequestInfo
    observer: Observer
    started: float
    cluster: str = ""
    user: User = ANONYMOUS_USER
    impersonator: User | None = None
    #: The user for whom the caller acts inside of a virtual workspace; it authorizes both.
    acts_for: User | None = None
    #: The name in the certificate of the forwarding front proxy.
    through: str = ""
    decision: Decision | None = None
    scope: RequestScope = _UNAUTHORIZED
    #: The answers that hold for its snapshot, and those about such requests; None inside of a virtual workspace.
    configuration: Configuration | None = None
    access: Access | None = None
    warnings: list[str] = []
    #: Audit annotations of admission.
    annotations: dict[str, str] = {}
    streams: bool = False
    #: The rewritten target, inside of a virtual workspace or for a virtual resource.
    sent_on: bytes = b""
    hops: int = 0
    #: Told for how many seconds the request held the event loop, each time that it did; None: nobody counts.
    took: Callable[[float], None] | None = None
    #: Set once a reply is sent, for the request log, metrics and audit.
    code: int = 0
    #: The error of the request, for audit.
    error: ApiError | None = None

    def enter(self, scope: RequestScope) -> None:
        """Continue inside of a virtual workspace."""
        self.scope, self.configuration, self.access = scope, None, None
        self.user, self.impersonator = scope.user or self.user, scope.impersonator or self.impersonator
        self.info = scope.info or self.info

    def authorize_again(self, call: Call, view: View) -> None:
        """Authorize a write that is planned again. Raises Forbidden."""
        if not self.scope.authorize(view, self.info.verb).allowed:
            raise forbidden(call.kind, call.info.name, "access was withdrawn")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the rest of the request as the task of its exchange."""
        return self.exchange.spawn(work if self.took is None else StepTimes(work, self.took))

    @property
    def http(self) -> HttpRequest:
        return self.exchange.request

    @property
    def target(self) -> bytes:
        """Path and query, as rewritten."""
        return self.sent_on or self.http.target

    @property
    def is_pretty(self) -> bool:
        """Whether to indent JSON: on request, and for interactive clients."""
        asked = self.info.query.get("pretty")
        return self.preferences.by_people if asked is None else asked not in _NO

    def reply(self, answer: Reply) -> None:
        """Send a complete reply."""
        if answer.content_type in _ENCODED:
            answer = _encoded(answer)
        headers = self._headers(answer.content_type)
        if answer.headers:
            headers = _replaced(headers, answer.headers)
        body = answer.body
        if (self.info.query or self.preferences.by_people) and not answer.verbatim:
            body = self._indented(answer)
        self.code = answer.status
        self.exchange.reply(answer.status, headers, body)
        self.observer.done(self, time.monotonic() - self.started)

    def reply_read(self, answer: Reply) -> Coroutine[object, object, None] | None:
        """Send a reply; return the remaining work if it is large and to be compressed or encoded."""
        if (self.preferences.gzip or answer.content_type in _ENCODED) and not answer.verbatim:
            size = _size(answer.body)
            if (size > MIN_BYTES and self.preferences.gzip) or size > MAX_INLINE:
                return self.reply_packed(answer)
        self.reply(answer)
        return None

    async def reply_packed(self, answer: Reply) -> None:
        """Send a complete reply, compressed if it is large and the client accepts that. Raises Timeout."""
        if answer.content_type in _ENCODED and not answer.verbatim:
            answer = await in_slices(lambda: _encoded(answer))
        headers = _replaced(self._headers(answer.content_type), answer.headers)
        packed = await gzip_if_accepted(self.exchange, headers, self._indented(answer))
        self.code = answer.status
        self.exchange.reply(answer.status, *packed)
        self.done()

    async def reply_later(self, answer: Awaitable[Reply]) -> None:
        """Await a complete reply and send it."""
        await self.reply_packed(await answer)

    def start(self, content_type: str, more: Headers = ()) -> None:
        """Send the head of a streamed reply; the caller then calls `done` at its end."""
        self.code = 200
        self.exchange.start(200, [*self._headers(content_type), *more])
        self.observer.streaming(self)

    def _indented(self, answer: Reply) -> bytes | Sequence[bytes]:
        """Return the body, indented if it is JSON for people."""
        if answer.verbatim or answer.content_type != JSON or not self.is_pretty or _size(answer.body) > MAX_INDENTED:
            return answer.body
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return msgspec.json.format(body, indent=2) + b"\n" if body else body

    def done(self) -> None:
        """Notify the observer of the end of the reply, complete or not."""
        self.observer.done(self, time.monotonic() - self.started)

    def _headers(self, content_type: str) -> list[tuple[str, str]]:
        found = [("audit-id", self.audit_id), ("cache-control", "no-cache, private"), ("content-type", content_type)]
        if self.warnings:
            found.extend(("warning", text) for text in warning_headers(self.warnings))
        return found


def _replaced(headers: list[tuple[str, str]], own: Headers) -> list[tuple[str, str]]:
    """Return headers with some more, which replace those of the same names."""
    names = {name for name, _ in own}
    return [pair for pair in headers if pair[0] not in names] + list(own)


def _encoded(answer: Reply) -> Reply:
    """Return a reply as it is sent; an object that protobuf cannot hold stays JSON."""
    if answer.verbatim:
        return answer
    obj = decode(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
    if answer.content_type == YAML:
        return msgspec.structs.replace(answer, body=encode_yaml(obj), verbatim=True)
    try:
        return msgspec.structs.replace(answer, body=protobuf_encoder.encode(obj), verbatim=True)
    except protobuf_encoder.NotEncodable:
        return msgspec.structs.replace(answer, content_type=JSON)


def _size(body: bytes | Sequence[bytes]) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def warning_headers(texts: list[str]) -> list[str]:
    """Return `Warning` header values: deduplicated, 4096 characters in all, long ones truncated beyond that."""
    found: list[str] = []
    total = 0
    for text in dict.fromkeys(texts):
        shown = text if total + len(text) <= MAX_WARNINGS else text[:_LONG_WARNING]
        total += len(shown)
        if total > MAX_WARNINGS:
            break
        escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
        found.append(f'299 - "{"".join(c if c.isprintable() else " " for c in escaped)}"')
    return found


def fail(request: Request, error: Exception) -> None:
    """Reply with an error, or close a stream that had begun."""
    if isinstance(error, StoreError) or not isinstance(error, ApiError):
        log.error("request failed", audit_id=request.audit_id, path=request.info.path, exc_info=error)
        error = InternalError(f"Internal error occurred: {type(error).__name__}")
    request.error = error
    if request.code:
        request.exchange.abort()
        request.done()
        return
    headers: tuple[tuple[str, str], ...] = ()
    if error.details.retry_after_s and error.code in {429, 500, 503, 504}:
        headers = (("retry-after", str(error.details.retry_after_s)),)
    request.reply(Reply(error.code, encode_json(error.status()) + b"\n", headers=headers))
