"""The request pipeline, top to bottom: the one way into the server.

    parse → snapshot → resolve cluster → authenticate → authorize → dispatch → reply

A virtual workspace takes the place of authorization for the paths below its own: it judges, and says what the request
is inside of it; from there on it is a request like any other.

`wire.server` calls it with an Exchange; reads are answered synchronously from the request's own snapshot, writes
and streams go on as tasks. An error of any step ends in `request.fail`, and nowhere else. A path that no step knows
is refused: nothing answers before authentication and authorization but what the authorizer lets everyone see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.retry import MAX_KEY_FETCHES, retry_when_authenticated
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authorization.attributes import (
    Attributes,
    Decision,
    Outcome,
    Step,
    attributes_of,
    with_verb,
)
from atoll.machinery.apiserver.authorization.chain import ALWAYS_ALLOWED_PATHS
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call.call import Reply, View
from atoll.machinery.apiserver.call.gate import check_gate
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, parse
from atoll.machinery.apiserver.request import Observer, Request, RequestScope, fail
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable, Unauthorized
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.machinery.wire.exchange import Exchange, HttpRequest


class Destination(Protocol):
    """Where a path leads."""

    @property
    def cluster(self) -> str: ...

    @property
    def elsewhere(self) -> bool:
        """The cluster is another shard's."""

    @property
    def unavailable(self) -> bool:
        """Its Workspace says that it cannot be used at present."""


class Resolver(Protocol):
    """Workspace text of a URL to a logical cluster."""

    def find(self, snapshot: Snapshot, workspace: str) -> Destination | None:
        """Where it leads, or None if that is nowhere. A single name leads to itself."""


class AuthenticatedCaller(Protocol):
    """Who a request counts as, who sent it where that is somebody else, and the proxy that passed it on ("": none)."""

    @property
    def user(self) -> User: ...

    @property
    def impersonator(self) -> User | None: ...

    @property
    def through(self) -> str: ...


class Authentication(Protocol):
    """Who asks. Raises Unauthorized, Forbidden (impersonation), BadRequest."""

    def identify(self, request: HttpRequest, cluster: str, snapshot: Snapshot) -> AuthenticatedCaller: ...


class Authorization(Protocol):
    """May they."""

    def authorize(self, snapshot: View, attributes: Attributes) -> Decision: ...


class Route(Protocol):
    """What answers an authorized request: the API of a cluster, or a fixed document."""

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer, at once or by spawning on the exchange. The snapshot ends when this returns."""


class VirtualWorkspaceHandler(Protocol):
    """A virtual workspace: what stands behind `/services/<its name>/`."""

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Turn the request into the one inside of the view: `info`, `cluster` and `scope`. Raise ApiError for a caller
        that may not open the view, and for what does not exist."""


class Mounts(Protocol):
    """What stands behind paths that end in a mounted workspace."""

    def has(self, snapshot: Snapshot, workspace: str) -> bool:
        """Whether a workspace is mounted."""

    def take(self, request: Request, snapshot: Snapshot, identify: Callable[[], User]) -> bool:
        """Answer the request if its path ends so. `identify` authenticates. Raises Unauthorized."""


class Handlers(msgspec.Struct, frozen=True):
    """What answers: the routes of the shard's own clusters, virtual workspaces by name, and mounts."""

    route: Callable[[RequestInfo], Route]
    services: Mapping[str, VirtualWorkspaceHandler] = {}
    mounts: Mounts | None = None


class RequestPipeline:
    """The list of steps. Collaborators arrive here; none of them knows the others."""

    def __init__(
        self,
        store: Store,
        resolver: Resolver,
        authentication: Authentication,
        authorization: Authorization,
        observer: Observer,
        doors: Handlers,
    ) -> None:
        self._store, self._resolver = store, resolver
        self._authentication, self._authorization = authentication, authorization
        self._observer, self._doors = observer, doors

    def __call__(self, exchange: Exchange) -> None:
        self._serve(exchange, MAX_KEY_FETCHES)

    # BodyPolicy

    #: Smaller bodies are read whole: almost all are of objects.
    min_bytes = 64 * 1024

    def streams(self, request: HttpRequest) -> bool:
        """Whether the body is relayed as it arrives: the path ends in a mounted workspace."""
        mounts = self._doors.mounts
        try:
            workspace = parse(request.method, request.target).workspace if mounts is not None else ""
        except ApiError:
            return False
        if mounts is None or not workspace:
            return False
        with self._store.snapshot() as snapshot:
            return self._resolver.find(snapshot, workspace) is None and mounts.has(snapshot, workspace)

    def unlimited(self, request: HttpRequest) -> bool:
        """Whether the body may exceed the limit of objects: every one that is relayed may."""
        return True

    def _serve(self, exchange: Exchange, fetches: int) -> None:
        http = exchange.request
        audit_id = http.header("audit-id")[:64] or new_uid()
        request = Request(exchange, audit_id, _UNPARSED, self._observer, time.monotonic(), warnings=[])
        try:
            request.info = parse(http.method, http.target)
            with self._store.snapshot() as snapshot:
                if (misdirected := self._resolve(request, snapshot)) is not None:
                    request.reply(misdirected)
                    return
                if request.cluster == UNKNOWN and self._mounted(request, snapshot):
                    return
                if http.streamed:
                    raise ServiceUnavailable("the workspace is mounted no more, please try again", _TRY_AGAIN)
                caller = self._authentication.identify(http, request.cluster, snapshot)
                request.user, request.impersonator, request.through = caller.user, caller.impersonator, caller.through
                self._enter(request, snapshot)
                self.authorize(request, snapshot)
                if request.cluster:
                    check_gate(request.info, request.user, request.cluster, snapshot.gate(request.cluster))
                self._doors.route(request.info).serve(request, snapshot)
        except AuthenticationPending as error:
            if retry_when_authenticated(exchange, error, fetches, self._serve):
                return
            if request.decision is None:
                fail(request, Unauthorized())
            else:
                # The caller is known: it asked about somebody else's token.
                fail(request, ServiceUnavailable(str(error)))
        except Exception as error:
            fail(request, error)

    def _resolve(self, request: Request, snapshot: Snapshot) -> Reply | None:
        """Find the cluster; gives the answer to a path that leads to another shard, or to what cannot be used."""
        workspace = request.info.workspace
        if request.info.is_wildcard or request.info.service:
            return None
        if not workspace:
            # A service account's token says by itself which cluster it speaks to, as in kcp.
            request.cluster = token_cluster(request.http)
            return None
        way = self._resolver.find(snapshot, workspace)
        request.cluster = way.cluster if way is not None else UNKNOWN
        if way is None or not (way.elsewhere or way.unavailable):
            return None
        return _UNAVAILABLE if way.unavailable else _ELSEWHERE

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

        request.scope = RequestScope(judge=judge)

    def authorize(self, request: Request, snapshot: Snapshot) -> None:
        """Decide, and remember the decision for audit. Raises Forbidden."""
        self.check_identity(request)
        if request.cluster == UNKNOWN and request.info.path not in ALWAYS_ALLOWED_PATHS:
            # Where the path leads nowhere nobody may do anything, and hears what the unwelcome hear.
            raise self._forbidden(request, WORKSPACE_ACCESS_NOT_PERMITTED)
        decision = request.scope.judge(snapshot, request.info.verb)
        request.decision = decision
        if not decision.allowed:
            raise self._forbidden(request, decision.reason)

    def check_identity(self, request: Request) -> None:
        """Let nobody but masters say `<resource>:<identity>`, wherever and however it is spelled. Raises Forbidden.

        A hash is shown to every consumer, so that knowing it must open nothing; a virtual workspace takes it from the
        export instead. Asked before anything else, so that the refusal does not depend on what is there.
        """
        if request.info.identity is None or request.user.is_master:
            return
        request.decision = _NAMES_IDENTITY
        raise self._forbidden(request, _NAMES_IDENTITY.reason)

    def _forbidden(self, request: Request, reason: str) -> ApiError:
        return forbidden(attributes_of(request.info, request.user, request.cluster), reason)


#: Stands for a path that leads nowhere; no cluster can have this name.
UNKNOWN = "?"
_NAMES_IDENTITY = Decision(
    False, True, ACCESS_DENIED, (Step("00-identity", Outcome.DENY, "only system:masters name an identity"),)
)
_UNPARSED = parse("GET", b"/")
_TRY_AGAIN = Details(retry_after_s=1)
_TEXT = "text/plain; charset=utf-8"
#: kcp's answers, before anybody is asked who he is: whoever knows a path asks a front proxy, which knows all of them.
_ELSEWHERE = Reply(429, b"Not found on this shard\n", _TEXT, (("retry-after", "1"),))
_UNAVAILABLE = Reply(503, b"Not available.\n", _TEXT)
