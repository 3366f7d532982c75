"""The request pipeline, top to bottom: the one way into the server.

    parse → snapshot → resolve cluster → authenticate → authorize → dispatch → reply

`wire.server` calls it with an Exchange; reads are answered synchronously from the request's own snapshot, writes
and streams go on as tasks. Errors of any step become one Status here and nowhere else. A path that no step knows
is refused: nothing answers before authentication and authorization but what the authorizer lets everyone see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, attributes_of
from atoll.machinery.apiserver.authorization.refusal import WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call import Reply
from atoll.machinery.apiserver.gate import check_gate
from atoll.machinery.apiserver.negotiation import JSON
from atoll.machinery.apiserver.requestinfo import RequestInfo, parse
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, InternalError
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.storage.contract import Snapshot, Store, StoreError
from atoll.machinery.wire.compress import MIN_BYTES, accepts_gzip, gzip_if_asked
from atoll.machinery.wire.exchange import Exchange, Headers, HttpRequest

log = structlog.get_logger()

MAX_WARNINGS = 4096
_LONG_WARNING = 256
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_NO = ("false", "0")


class Observer(Protocol):
    """Audit, metrics and the canonical line: told when a request starts to stream and when it is done."""

    def streaming(self, request: Request) -> None: ...

    def done(self, request: Request, duration_s: float) -> None: ...

    async def room(self) -> None:
        """Return when what is to be told of a mutating request can be kept."""


class Request(msgspec.Struct):
    """One request on its way through the pipeline; each step fills in what it found out."""

    exchange: Exchange
    audit_id: str
    info: RequestInfo
    observer: Observer
    started: float
    cluster: str = ""
    user: User = ANONYMOUS_USER
    impersonator: User | None = None
    decision: Decision | None = None
    warnings: list[str] = []
    streams: bool = False
    #: Set once a reply went out, for the canonical line, metrics and audit.
    code: int = 0

    @property
    def http(self) -> HttpRequest:
        return self.exchange.request

    @property
    def is_pretty(self) -> bool:
        """Whether JSON is to be indented: asked for, or the client is one that people read."""
        asked = self.info.query.get("pretty")
        return self.http.header("user-agent").startswith(_READ_BY_PEOPLE) if asked is None else asked not in _NO

    @property
    def wants_gzip(self) -> bool:
        return accepts_gzip(self.http.headers.get("accept-encoding", ()))

    def reply(self, answer: Reply) -> None:
        """Send a whole answer."""
        headers, body = self._headers_of(answer), self._body_of(answer)
        self.code = answer.status
        self.exchange.reply(answer.status, headers, body)
        self.done()

    def reply_read(self, answer: Reply) -> Coroutine[object, object, None] | None:
        """Send the answer of a read; gives the work left to do where it is big and is to be compressed."""
        if _size(answer.body) > MIN_BYTES and self.wants_gzip:
            return self.reply_packed(answer)
        self.reply(answer)
        return None

    async def reply_packed(self, answer: Reply) -> None:
        """Send a whole answer, compressed where it is big and the client asked for that."""
        packed = await gzip_if_asked(self.exchange, self._headers_of(answer), self._body_of(answer))
        self.code = answer.status
        self.exchange.reply(answer.status, *packed)
        self.done()

    def start(self, content_type: str, more: Headers = ()) -> None:
        """Send the head of a streamed answer; `done` is then the streamer's to call."""
        self.code = 200
        self.exchange.start(200, [*self._headers(content_type), *more])
        self.observer.streaming(self)

    def _body_of(self, answer: Reply) -> bytes | Sequence[bytes]:
        if answer.content_type != JSON or not self.is_pretty:
            return answer.body
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return msgspec.json.format(body, indent=2) + b"\n" if body else body

    def _headers_of(self, answer: Reply) -> list[tuple[str, str]]:
        headers = self._headers(answer.content_type)
        if answer.headers:
            own = {name for name, _ in answer.headers}
            headers = [pair for pair in headers if pair[0] not in own] + list(answer.headers)
        return headers

    def done(self) -> None:
        """The answer is complete (or cut): tell the observer."""
        self.observer.done(self, time.monotonic() - self.started)

    def _headers(self, content_type: str) -> list[tuple[str, str]]:
        found = [
            ("audit-id", self.audit_id),
            ("cache-control", "no-cache, private"),
            ("content-type", content_type),
        ]
        if self.warnings:
            found.extend(("warning", text) for text in warning_headers(self.warnings))
        return found


def _size(body: bytes | Sequence[bytes]) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def warning_headers(texts: list[str]) -> list[str]:
    """`Warning` header values: deduplicated, 4096 characters in all, long ones cut once over."""
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


class Resolver(Protocol):
    """Workspace text of a URL to a logical cluster."""

    def resolve(self, snapshot: Snapshot, workspace: str) -> str | None:
        """The cluster name, or None if the path leads nowhere. A single name is returned as it is."""


class Caller(Protocol):
    """Who a request counts as, and who sent it where that is somebody else."""

    @property
    def user(self) -> User: ...

    @property
    def impersonator(self) -> User | None: ...


class Authentication(Protocol):
    """Who asks. Raises Unauthorized, Forbidden (impersonation), BadRequest."""

    def identify(self, request: HttpRequest, cluster: str, snapshot: Snapshot) -> Caller: ...


class Authorization(Protocol):
    """May they."""

    def authorize(self, snapshot: Snapshot, attributes: Attributes) -> Decision: ...


class Route(Protocol):
    """What answers an authorized request: the API of a cluster, or a fixed document."""

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer, at once or by spawning on the exchange. The snapshot ends when this returns."""


class Pipeline:
    """The list of steps. Collaborators arrive here; none of them knows the others."""

    def __init__(
        self, store: Store, resolver: Resolver, authentication: Authentication, authorization: Authorization,
        route: Callable[[RequestInfo], Route], observer: Observer,
    ) -> None:  # fmt: skip
        self._store, self._resolver = store, resolver
        self._authentication, self._authorization = authentication, authorization
        self._route, self._observer = route, observer

    def __call__(self, exchange: Exchange) -> None:
        http = exchange.request
        audit_id = http.header("audit-id")[:64] or new_uid()
        request = Request(exchange, audit_id, _UNPARSED, self._observer, time.monotonic(), warnings=[])
        try:
            request.info = parse(http.method, http.target)
            with self._store.snapshot() as snapshot:
                self._resolve(request, snapshot)
                caller = self._authentication.identify(http, request.cluster, snapshot)
                request.user, request.impersonator = caller.user, caller.impersonator
                self.authorize(request, snapshot)
                if request.cluster:
                    check_gate(request.info, request.user, request.cluster, snapshot.gate(request.cluster))
                self._route(request.info).serve(request, snapshot)
        except Exception as error:
            fail(request, error)

    def _resolve(self, request: Request, snapshot: Snapshot) -> None:
        workspace = request.info.workspace
        if request.info.is_wildcard or request.info.service:
            return
        if not workspace:
            # A service account's token says by itself which cluster it speaks to, as in kcp.
            request.cluster = token_cluster(request.http)
            return
        request.cluster = self._resolver.resolve(snapshot, workspace) or UNKNOWN

    def authorize(self, request: Request, snapshot: Snapshot) -> None:
        """Decide, and remember the decision for audit. Raises Forbidden."""
        attributes = attributes_of(request.info, request.user, request.cluster)
        if request.cluster == UNKNOWN:
            # Where the path leads nowhere nobody may do anything, and hears what the unwelcome hear.
            raise forbidden(attributes, WORKSPACE_ACCESS_NOT_PERMITTED)
        decision = self._authorization.authorize(snapshot, attributes)
        request.decision = decision
        if not decision.allowed:
            raise forbidden(attributes, decision.reason)


#: Stands for a path that leads nowhere; no cluster can have this name.
UNKNOWN = "?"
_UNPARSED = parse("GET", b"/")


def fail(request: Request, error: Exception) -> None:
    """Answer with an error, or cut a stream that had begun."""
    if isinstance(error, StoreError) or not isinstance(error, ApiError):
        log.error("request failed", audit_id=request.audit_id, path=request.info.path, exc_info=error)
        error = InternalError(f"Internal error occurred: {type(error).__name__}")
    if request.code:
        request.exchange.abort()
        request.done()
        return
    headers: tuple[tuple[str, str], ...] = ()
    if error.details.retry_after_s and error.code in {429, 500, 503, 504}:
        headers = (("retry-after", str(error.details.retry_after_s)),)
    request.reply(Reply(error.code, encode_json(error.status()) + b"\n", headers=headers))
