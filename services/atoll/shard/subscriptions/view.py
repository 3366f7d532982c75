"""The requests below `/services/events/`: about subscriptions to the events of a workspace.

    POST|GET  /services/events/clusters/<workspace>/subscriptions
    GET|DELETE  /services/events/clusters/<workspace>/subscriptions/<name>
    POST  /services/events/clusters/<workspace>/token
    GET  /services/events/clusters/<workspace>/follow?resource=...

The pipeline has authenticated the caller; `requests`, in the writer's process, answers. Who may not enter the workspace
sees and removes subscriptions that it has, and makes none; `access_check` decides what others may subscribe to.
Invariants: an anonymous caller is refused; the answer to a caller without access does not depend on whether the
workspace, or the URL, exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authentication.service_account_claims import unverified_expiry_s
from atoll.machinery.apiserver.authorization.attributes import Decision, attributes_of
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply, View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.request import RemoteView, Request, RequestScope, fail
from atoll.machinery.meta.names import is_cluster_name, is_workspace_path
from atoll.machinery.meta.status import ApiError, RequestEntityTooLarge, ServiceUnavailable
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Snapshot
from atoll.machinery.wire.exchange import HttpRequest
from atoll.shard.subscriptions.access_check import AccessCheck
from atoll.shard.subscriptions.commands import Ask, Command, Verb, decode_answer, encode
from atoll.shard.subscriptions.follow_service import FollowService
from atoll.shard.subscriptions.limits import MAX_BODY_BYTES

SERVICE = "events"
GROUP = "events.atoll.dev"
#: `services`, the view, `clusters` and the workspace.
_PREFIX = 4
_VERBS: Mapping[tuple[str, int, str], Verb] = {
    ("POST", 1, "subscriptions"): "create",
    ("GET", 1, "subscriptions"): "list",
    ("GET", 2, "subscriptions"): "get",
    ("DELETE", 2, "subscriptions"): "delete",
    ("POST", 1, "token"): "token",
}
_FOLLOW = ("GET", 1, "follow")
_RESOURCES = ("subscriptions", "token", "follow")


class EventsView:
    """`pipeline.VirtualWorkspaceHandler`. `resolve` finds the cluster of a workspace's path; `ask` returns what takes
    commands to the keeper, None while there is nothing; `follows` serves in this process."""

    def __init__(
        self,
        resolve: Callable[[View, str], str | None],
        access: AccessCheck,
        ask: Callable[[], Ask | None],
        follows: FollowService,
    ) -> None:
        self._resolve, self._access, self._ask, self._follows = resolve, access, ask, follows

    def acts_within(self, info: RequestInfo) -> str:
        """Nobody acts for others here."""
        return ""

    def users_of(self, info: RequestInfo, snapshot: Snapshot) -> str:
        """The workspace of the URL: its own users follow it as they read it."""
        segments = info.path.strip("/").split("/")[:_PREFIX]
        return self._cluster(snapshot, segments[-1]) if len(segments) == _PREFIX and segments[2] == "clusters" else ""

    def _cluster(self, snapshot: Snapshot, named: str) -> str:
        """The cluster of a workspace. One that is deleted has a name still, under which its subscriptions are found."""
        if not is_workspace_path(named):
            return ""
        return self._resolve(snapshot, named) or (named if is_cluster_name(named) else "")

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Set the scope of a request. Raises Forbidden for a caller who is nobody, NotFound, MethodNotAllowed."""
        segments = request.info.path.strip("/").split("/")
        named, rest = "/".join(segments[_PREFIX - 1 : _PREFIX]), segments[_PREFIX:]
        if not is_authenticated(request.user) or not is_workspace_path(named) or segments[2] != "clusters":
            raise _no_access(request)
        target = (request.info.method, len(rest), rest[0] if rest else "")
        verb = _VERBS.get(target)
        cluster = self._cluster(snapshot, named)
        if verb is None and target != _FOLLOW:
            if not self._access.may_enter(snapshot, request.user, cluster):
                raise _no_access(request)
            raise errors.method_not_allowed() if target[2] in _RESOURCES else errors.not_served()
        name, expires_s = rest[1] if len(rest) > 1 else "", _expires_s(request.http)
        remote: RemoteView
        if verb is None:
            plain, remote = "watch", self._follows.of(cluster, expires_s)
        else:
            plain = "create" if verb == "token" else verb
            remote = _Commanding(Command(verb, cluster, request.user, expires_s, name), self._ask())
        info = replace(request.info, service="", is_resource=True, verb=plain, name=name)
        info = replace(info, group=GROUP, version="v1", resource=rest[0])
        caller = request.user
        request.enter(
            RequestScope(authorize=lambda view, verb: Decision(is_authenticated(caller)), remote=remote, info=info)
        )


class _Commanding:
    """`request.RemoteView`: the keeper answers."""

    def __init__(self, command: Command, ask: Ask | None) -> None:
        self._command, self._ask = command, ask

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer later. Raises ServiceUnavailable, RequestEntityTooLarge."""
        if self._ask is None:
            raise ServiceUnavailable("event subscribers are not served here")
        body = request.http.body
        if len(body) > MAX_BODY_BYTES:
            raise RequestEntityTooLarge(f"limit is {MAX_BODY_BYTES}")
        request.exchange.spawn(self._answer(request, self._ask, replace(self._command, body=bytes(body))))

    async def _answer(self, request: Request, ask: Ask, command: Command) -> None:
        try:
            await request.observer.room()
            found = decode_answer(await ask(encode(command)))
        except Exception as error:
            fail(request, error)
            return
        headers = (("retry-after", str(found.retry_after_s)),) if found.retry_after_s else ()
        request.reply(Reply(found.code, found.body, headers=headers))


def _no_access(request: Request) -> ApiError:
    """The answer to a caller without access, for whom no URL exists."""
    if request.user.is_master:
        return errors.not_served()
    return forbidden(attributes_of(request.info, request.user, ""))


def _expires_s(request: HttpRequest) -> float:
    """When the token of a request, which was verified, ends in Unix seconds; 0 for never, and without one."""
    token = bearer_token(request)
    return unverified_expiry_s(token) if token is not None else 0.0


def is_authenticated(user: User) -> bool:
    """Whether a user showed a credential."""
    return AUTHENTICATED in user.groups
