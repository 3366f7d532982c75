"""The request pipeline, which every request passes.

    parse → snapshot → resolve cluster → authenticate → authorize → dispatch → reply

For paths below `/services/` a virtual workspace replaces the authorizer and rewrites the request to the one inside of
it, which is then served like any other.

`wire.server` calls it with an Exchange. Reads are answered synchronously from the request's snapshot; writes and
streams continue as tasks. Invariants: an error of any step ends in `request.fail`; an unknown path is rejected;
nothing is answered before authentication and authorization, except a cluster of another shard or an unavailable one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
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
from atoll.machinery.apiserver.authorization.effective_users import user_key
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply, View
from atoll.machinery.apiserver.call.gate import check_gate
from atoll.machinery.apiserver.call.preferences import Preferences, preferences_of
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, inside, parse
from atoll.machinery.apiserver.configuration_cache import MAX_TARGET_BYTES, Access, Configuration, ConfigurationCache
from atoll.machinery.apiserver.request import Observer, Request, RequestScope, fail
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable, TooManyRequests, Unauthorized
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.machinery.wire.exchange import Exchange, HttpRequest


class Destination(Protocol):
    """The target of a workspace path."""

    @property
    def cluster(self) -> str: ...

    @property
    def remote(self) -> bool:
        """Whether the cluster is on another shard."""

    @property
    def unavailable(self) -> bool:
        """Whether its Workspace is marked unavailable."""


class Resolver(Protocol):
    """Resolves the workspace of a URL to a logical cluster."""

    @property
    def types(self) -> tuple[ResourceType, ...]:
        """The types of the rows that it reads."""

    def find(self, snapshot: Snapshot, workspace: str) -> Destination | None:
        """Return the target, or None for an unknown path. A single name is a cluster's own."""

    def require_none(self, workspace: str) -> None:
        """Return if an unknown path leads nowhere on any shard. Raises MissingAnswer, ServiceUnavailable."""


class AuthenticatedCaller(Protocol):
    """The effective user, the authenticated one if they differ, and the forwarding front proxy ("": none)."""

    @property
    def user(self) -> User: ...

    @property
    def impersonator(self) -> User | None: ...

    @property
    def through(self) -> str: ...

    @property
    def acts_for(self) -> User | None:
        """The user for whom the caller acts inside of a virtual workspace."""


class Authentication(Protocol):
    """Authenticates requests. Raises Unauthorized, Forbidden (impersonation), BadRequest."""

    def identify(
        self, request: HttpRequest, cluster: str, snapshot: Snapshot, within: str = "", of: str = ""
    ) -> AuthenticatedCaller:
        """Return the caller. `within`: the cluster for which a virtual workspace accepts impersonation; `of`: the one
        whose users it lets in."""


class Authorization(Protocol):
    """Authorizes requests."""

    def authorize(self, snapshot: View, attributes: Attributes) -> Decision: ...


class Route(Protocol):
    """Serves authorized requests: the API of a cluster, or the fixed documents."""

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer at once, or spawn a task on the exchange. The snapshot ends when this returns."""


class VirtualWorkspaceHandler(Protocol):
    """A virtual workspace: serves `/services/<its name>/`."""

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Rewrite the request to the one inside of the virtual workspace: `info`, `cluster` and `scope`.

        Raises ApiError for a caller without access, and for an unknown path.
        """

    def acts_within(self, info: RequestInfo) -> str:
        """Return the cluster in which a caller may act for another user, "" for none."""

    def users_of(self, info: RequestInfo, snapshot: Snapshot) -> str:
        """Return the cluster whose own issuers make users here, and for which a front proxy asserts; "" for none."""


class Mounts(Protocol):
    """Serves paths below mounted workspaces."""

    def has(self, snapshot: Snapshot, workspace: str) -> bool:
        """Whether requests to a workspace are forwarded."""

    def destination(self, snapshot: Snapshot, workspace: str) -> str:
        """Return the workspace of this installation that a path leads to through mounts, or itself. Raises ApiError."""

    def take(self, request: Request, snapshot: Snapshot, identify: Callable[[], User]) -> bool:
        """Answer the request if its workspace is mounted. `identify` authenticates. Raises Unauthorized."""


class Handlers(msgspec.Struct, frozen=True):
    """The handlers of requests: routes of the shard's clusters, virtual workspaces by name, and mounts."""

    route: Callable[[RequestInfo], Route]
    services: Mapping[str, VirtualWorkspaceHandler] = {}
    mounts: Mounts | None = None


async def _held(request: Request, error: TooManyRequests) -> None:
    await asyncio.sleep(error.hold_s)
    fail(request, error)


class RequestPipeline:
    """Runs the steps. Its collaborators are independent of each other."""

    def __init__(
        self,
        store: Store,
        resolver: Resolver,
        authentication: Authentication,
        authorization: Authorization,
        observer: Observer,
        handlers: Handlers,
    ) -> None:
        self._store, self._resolver = store, resolver
        self._authentication, self._authorization = authentication, authorization
        self._observer, self._handlers = observer, handlers
        self._configuration = ConfigurationCache(resolver.types)

    # BodyPolicy

    #: Smaller bodies are read whole: almost all hold objects.
    min_bytes = 64 * 1024

    def streams(self, request: HttpRequest) -> bool:
        """Whether the body is relayed as it arrives, because the workspace is mounted."""
        mounts = self._handlers.mounts
        try:
            workspace = parse(request.method, request.target).workspace if mounts is not None else ""
        except ApiError:
            return False
        if mounts is None or not workspace:
            return False
        with self._store.snapshot() as snapshot:
            return self._resolver.find(snapshot, workspace) is None and mounts.has(snapshot, workspace)

    def unlimited(self, request: HttpRequest) -> bool:
        """Whether the body may exceed the limit of objects: relayed ones may."""
        return True

    def __call__(self, exchange: Exchange, fetches: int = MAX_KEY_FETCHES) -> None:
        http = exchange.request
        known = http.header_set
        preferences: Preferences = (known.preferences if known is not None else None) or preferences_of(http)
        audit_id = preferences.audit_id or new_uid()
        request = Request(exchange, preferences, audit_id, _UNPARSED, self._observer, time.monotonic(), warnings=[])
        try:
            request.info = parse(http.method, http.target)
            with self._store.snapshot() as snapshot:
                self._serve(request, http, snapshot)
        except AuthenticationPending as error:
            if retry_when_authenticated(exchange, error, fetches, self):
                return
            if request.decision is None:
                fail(request, Unauthorized())
            else:
                # The caller is authenticated already: the token is that of a TokenReview.
                fail(request, ServiceUnavailable(str(error)))
        except MissingAnswer as missing:
            exchange.spawn(self._serve_after(exchange, fetches, missing.fetch))
        except TooManyRequests as error:
            if error.hold_s:
                exchange.spawn(_held(request, error))
            else:
                fail(request, error)
        except Exception as error:
            fail(request, error)
        if request.took is not None:
            request.took(time.monotonic() - request.started)

    async def _serve_after(self, exchange: Exchange, fetches: int, wait: Callable[[], Awaitable[None]]) -> None:
        """Serve a request from its beginning, at the then latest state."""
        await wait()
        self(exchange, fetches)

    def _serve(self, request: Request, http: HttpRequest, snapshot: Snapshot) -> None:
        info, configuration = request.info, self._configuration.at(snapshot)
        cluster = configuration.targets.get(info.workspace) if not info.service else None
        if cluster is not None:
            request.cluster = cluster
        elif (misdirected := self._resolve(request, configuration, snapshot)) is not None:
            request.reply(misdirected)
            return
        if request.cluster == UNKNOWN:
            if self._mounted(request, snapshot):
                return
            self._resolver.require_none(request.info.workspace)
        if http.streamed:
            raise ServiceUnavailable("the workspace is mounted no more, please try again", _TRY_AGAIN)
        service = self._handlers.services.get(info.service) if info.service and not info.workspace else None
        if service is None:
            caller = self._authentication.identify(http, request.cluster, snapshot)
        else:
            within, of = service.acts_within(info), service.users_of(info, snapshot)
            caller = self._authentication.identify(http, request.cluster, snapshot, within, of)
            request.acts_for = caller.acts_for
        request.user, request.impersonator, request.through = caller.user, caller.impersonator, caller.through
        request.configuration = configuration
        self._enter(request, snapshot)
        self.authorize(request, snapshot)
        if request.cluster and (request.access is None or not request.access.served):
            self._pass_gate(request, snapshot)
        self._handlers.route(request.info).serve(request, snapshot)

    def _resolve(self, request: Request, configuration: Configuration, snapshot: Snapshot) -> Reply | None:
        """Find the cluster; return the reply for a cluster of another shard, or an unavailable one."""
        workspace = request.info.workspace
        if request.info.is_wildcard or request.info.service:
            return None
        if not workspace:
            # As in kcp, a service account's token names its cluster.
            request.cluster = token_cluster(request.http)
            return None
        target = self._find(request, snapshot)
        request.cluster = target.cluster if target is not None else UNKNOWN
        if target is not None and (target.remote or target.unavailable):
            return _UNAVAILABLE if target.unavailable else _OTHER_SHARD
        if target is not None and not request.sent_on and len(workspace) <= MAX_TARGET_BYTES:
            configuration.add_target(workspace, target.cluster)
        return None

    def _find(self, request: Request, snapshot: Snapshot) -> Destination | None:
        """Find the target of the path. A mount of a workspace of this installation rewrites the request to that one."""
        workspace, mounts = request.info.workspace, self._handlers.mounts
        target = self._resolver.find(snapshot, workspace)
        if target is not None or mounts is None:
            return target
        onward = mounts.destination(snapshot, workspace)
        if onward == workspace:
            return None
        request.sent_on = b"/clusters/" + onward.encode() + inside(request.target, _WORKSPACE_SEGMENTS)
        request.info = parse(request.http.method, request.sent_on)
        return self._resolver.find(snapshot, onward)

    def _mounted(self, request: Request, snapshot: Snapshot) -> bool:
        def identify() -> User:
            return self._authentication.identify(request.http, "", snapshot).user

        mounts = self._handlers.mounts
        return mounts is not None and mounts.take(request, snapshot, identify)

    def _enter(self, request: Request, snapshot: Snapshot) -> None:
        """Set the scope of the request: the authorizer's, or that of its virtual workspace."""
        service = self._handlers.services.get(request.info.service)
        if service is None or request.info.workspace:
            # Not by the request itself: a cycle would keep it and its body until garbage is collected.
            target = request.info, request.user, request.cluster
            request.scope = RequestScope(authorize=partial(self._decide, *target))
            return
        request.configuration = None
        service.enter(request, snapshot)

    def _decide(self, info: RequestInfo, user: User, cluster: str, view: View, verb: str) -> Decision:
        """Authorize a verb on the target of a request outside of virtual workspaces."""
        attributes = attributes_of(info, user, cluster)
        return self._authorization.authorize(view, with_verb(attributes, verb))

    def authorize(self, request: Request, snapshot: Snapshot) -> None:
        """Authorize, and record the decision for audit. Raises Forbidden; for masters at an unknown path NotFound."""
        if request.info.identity is not None:
            self.check_identity(request)
        if request.cluster == UNKNOWN and request.info.path not in ALWAYS_ALLOWED_PATHS:
            # To others than system:masters, an unknown path reads like one without access.
            if request.user.is_master:
                raise errors.unknown_workspace(request.info.workspace)
            raise self._forbidden(request, WORKSPACE_ACCESS_NOT_PERMITTED)
        configuration, info, user = request.configuration, request.info, request.user
        key: Hashable = None
        plain = info.is_resource and info.identity is None and request.cluster
        # Who impersonates chooses the groups of the user, which would be kept.
        if configuration is not None and plain and request.impersonator is None:
            key = (
                (user.name, user.groups) if not user.extra else user_key(user),
                request.cluster,
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                info.namespace,
                not info.name,
            )
            request.access = access = configuration.accesses.get(key)
            if access is not None:
                request.decision = access.decision
                return
        decision = request.decision = request.scope.authorize(snapshot, info.verb)
        if not decision.allowed:
            raise self._forbidden(request, decision.reason)
        if configuration is not None and key is not None and decision.lasting:
            request.access = Access(decision)
            if len(request.target) <= MAX_TARGET_BYTES:
                configuration.add_access(key, request.access)

    def _pass_gate(self, request: Request, snapshot: Snapshot) -> None:
        """Check the gate of the cluster. Raises Forbidden, ServiceUnavailable."""
        check_gate(request.info, request.user, request.cluster, snapshot.gate(request.cluster))
        if request.access is not None:
            request.access.served = True

    def check_identity(self, request: Request) -> None:
        """Reject `<resource>:<identity>` in any spelling from all but system:masters. Raises Forbidden.

        Every consumer can read the hash, so it must grant nothing; a virtual workspace takes it from the export
        instead. Checked first, so that the error does not depend on stored state.
        """
        if request.info.identity is None or request.user.is_master:
            return
        request.decision = _NAMES_IDENTITY
        raise self._forbidden(request, _NAMES_IDENTITY.reason)

    def _forbidden(self, request: Request, reason: str) -> ApiError:
        return forbidden(attributes_of(request.info, request.user, request.cluster), reason)


#: The cluster of an unknown path; no cluster can have this name.
UNKNOWN = "?"
#: `clusters` and the path.
_WORKSPACE_SEGMENTS = 2
_NAMES_IDENTITY = Decision(
    False, True, ACCESS_DENIED, (Step("00-identity", Outcome.DENY, "only system:masters name an identity"),)
)
_UNPARSED = parse("GET", b"/")
_TRY_AGAIN = Details(retry_after_s=1)
_TEXT = "text/plain; charset=utf-8"
#: kcp's replies, sent before authentication: clients reach clusters of other shards through a front proxy.
_OTHER_SHARD = Reply(429, b"Not found on this shard\n", _TEXT, (("retry-after", "1"),))
_UNAVAILABLE = Reply(503, b"Not available.\n", _TEXT)
