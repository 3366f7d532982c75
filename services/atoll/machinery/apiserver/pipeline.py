"""The request pipeline, top to bottom: the one way into the server.

    parse → snapshot → resolve cluster → authenticate → authorize → dispatch → reply

A virtual workspace takes the place of authorization for the paths below its own: it judges, and says what the request
is inside of it; from there on it is a request like any other.

`wire.server` calls it with an Exchange; reads are answered synchronously from the request's own snapshot, writes
and streams go on as tasks. Errors of any step become one Status here and nowhere else. A path that no step knows
is refused: nothing answers before authentication and authorization but what the authorizer lets everyone see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.oidc.keys import Unsettled
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, attributes_of, with_verb
from atoll.machinery.apiserver.authorization.refusal import WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call import Check, Reply, View, no_check
from atoll.machinery.apiserver.catalog import Catalog
from atoll.machinery.apiserver.gate import check_gate
from atoll.machinery.apiserver.negotiation import JSON
from atoll.machinery.apiserver.requestinfo import RequestInfo, parse
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, InternalError, ServiceUnavailable, Unauthorized
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.storage.contract import Snapshot, Store, StoreError
from atoll.machinery.wire.compress import MIN_BYTES, accepts_gzip, gzip_if_asked
from atoll.machinery.wire.exchange import Exchange, Headers, HttpRequest

log = structlog.get_logger()

MAX_WARNINGS = 4096
#: Issuers whose keys one request may wait for: the caller's, and that of a token it has reviewed.
MAX_SETTLED = 2
_LONG_WARNING = 256
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_NO = ("false", "0")


class Observer(Protocol):
    """Audit, metrics and the canonical line: told when a request starts to stream and when it is done."""

    def streaming(self, request: Request) -> None: ...

    def done(self, request: Request, duration_s: float) -> None: ...

    async def room(self) -> None:
        """Return when what is to be told of a mutating request can be kept."""


#: Decides over a verb on what the request asks for, in a view: once when it comes, again when a write is planned anew.
Judge = Callable[[View, str], Decision]


def _refuse(view: View, verb: str) -> Decision:
    return Decision(False, False, "nobody has judged the request")


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
    judge: Judge = _refuse
    #: What a virtual workspace serves in place of the cluster's own kinds, and what it asks of each write.
    catalog: Catalog | None = None
    check: Check = no_check
    #: A watch goes on, as in Kubernetes, though a later one would be refused; False: it ends with what allowed it.
    lasting: bool = True
    warnings: list[str] = []
    streams: bool = False
    #: Set once a reply went out, for the canonical line, metrics and audit.
    code: int = 0
    #: What the request failed with, for audit.
    error: ApiError | None = None

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
        if not answer.verbatim and _size(answer.body) > MIN_BYTES and self.wants_gzip:
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
        if answer.verbatim or answer.content_type != JSON or not self.is_pretty:
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

    def authorize(self, snapshot: View, attributes: Attributes) -> Decision: ...


class Route(Protocol):
    """What answers an authorized request: the API of a cluster, or a fixed document."""

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer, at once or by spawning on the exchange. The snapshot ends when this returns."""


class Service(Protocol):
    """A virtual workspace: what stands behind `/services/<its name>/`."""

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Turn the request into what it is inside: `info`, `cluster` and `judge`, and where they differ `user`,
        `catalog` and `check`. Raises ApiError for whom it does not let in, and for what is not there."""


class Mounts(Protocol):
    """What stands behind paths that end in a mounted workspace."""

    def take(self, request: Request, snapshot: Snapshot, identify: Callable[[], User]) -> bool:
        """Answer the request if its path ends so. `identify` authenticates. Raises Unauthorized."""


class Doors(msgspec.Struct, frozen=True):
    """What answers: the routes of the shard's own clusters, virtual workspaces by name, and mounts."""

    route: Callable[[RequestInfo], Route]
    services: Mapping[str, Service] = {}
    mounts: Mounts | None = None


class Pipeline:
    """The list of steps. Collaborators arrive here; none of them knows the others."""

    def __init__(
        self, store: Store, resolver: Resolver, authentication: Authentication, authorization: Authorization,
        observer: Observer, doors: Doors,
    ) -> None:  # fmt: skip
        self._store, self._resolver = store, resolver
        self._authentication, self._authorization = authentication, authorization
        self._observer, self._doors = observer, doors

    def __call__(self, exchange: Exchange) -> None:
        self._serve(exchange, MAX_SETTLED)

    def _serve(self, exchange: Exchange, settles: int) -> None:
        http = exchange.request
        audit_id = http.header("audit-id")[:64] or new_uid()
        request = Request(exchange, audit_id, _UNPARSED, self._observer, time.monotonic(), warnings=[])
        try:
            request.info = parse(http.method, http.target)
            with self._store.snapshot() as snapshot:
                self._resolve(request, snapshot)
                if request.cluster == UNKNOWN and self._mounted(request, snapshot):
                    return
                caller = self._authentication.identify(http, request.cluster, snapshot)
                request.user, request.impersonator = caller.user, caller.impersonator
                self._enter(request, snapshot)
                self.authorize(request, snapshot)
                if request.cluster:
                    check_gate(request.info, request.user, request.cluster, snapshot.gate(request.cluster))
                self._doors.route(request.info).serve(request, snapshot)
        except Unsettled as error:
            if settles:
                exchange.spawn(self._once_settled(exchange, error, settles - 1))
            elif request.decision is None:
                fail(request, Unauthorized())
            else:
                # The caller is known: it asked about somebody else's token.
                fail(request, ServiceUnavailable(str(error)))
        except Exception as error:
            fail(request, error)

    async def _once_settled(self, exchange: Exchange, error: Unsettled, settles: int) -> None:
        """Serve a request whose token could not be judged before keys of its issuer were fetched."""
        await error.settle()
        self._serve(exchange, settles)

    def _resolve(self, request: Request, snapshot: Snapshot) -> None:
        workspace = request.info.workspace
        if request.info.is_wildcard or request.info.service:
            return
        if not workspace:
            # A service account's token says by itself which cluster it speaks to, as in kcp.
            request.cluster = token_cluster(request.http)
            return
        request.cluster = self._resolver.resolve(snapshot, workspace) or UNKNOWN

    def _mounted(self, request: Request, snapshot: Snapshot) -> bool:
        def identify() -> User:
            return self._authentication.identify(request.http, "", snapshot).user

        mounts = self._doors.mounts
        return mounts is not None and mounts.take(request, snapshot, identify)

    def _enter(self, request: Request, snapshot: Snapshot) -> None:
        """Say who judges the request: the authorizer, or the virtual workspace that it goes through."""
        service = self._doors.services.get(request.info.service)
        if service is not None and not request.info.workspace:
            service.enter(request, snapshot)
            return

        def judge(view: View, verb: str) -> Decision:
            attributes = attributes_of(request.info, request.user, request.cluster)
            return self._authorization.authorize(view, with_verb(attributes, verb))

        request.judge = judge

    def authorize(self, request: Request, snapshot: Snapshot) -> None:
        """Decide, and remember the decision for audit. Raises Forbidden."""
        if request.cluster == UNKNOWN:
            # Where the path leads nowhere nobody may do anything, and hears what the unwelcome hear.
            raise self._forbidden(request, WORKSPACE_ACCESS_NOT_PERMITTED)
        decision = request.judge(snapshot, request.info.verb)
        request.decision = decision
        if not decision.allowed:
            raise self._forbidden(request, decision.reason)

    def _forbidden(self, request: Request, reason: str) -> ApiError:
        return forbidden(attributes_of(request.info, request.user, request.cluster), reason)


#: Stands for a path that leads nowhere; no cluster can have this name.
UNKNOWN = "?"
_UNPARSED = parse("GET", b"/")


def fail(request: Request, error: Exception) -> None:
    """Answer with an error, or cut a stream that had begun."""
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
