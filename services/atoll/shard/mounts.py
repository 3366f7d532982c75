"""Requests to mounted workspaces: passed on to what is mounted, which decides for itself who asks.

The pipeline comes here for a path that ends in a mounted Workspace, in place of everything that follows, as nothing of
the mounted side is ours to authorize. Without a certificate of our own the caller's Authorization goes along; with one
(`--mount-proxy-client-cert-file`) we authenticate, and say in X-Remote-* headers for whom we ask. Invariant: identity
headers that came in never go out, and with our certificate nobody goes out who is not authenticated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from atoll.machinery.apiserver.authentication.headers import canonical
from atoll.machinery.apiserver.authorization.effective import SCOPES, global_name_of, is_service_account
from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA, is_privileged
from atoll.machinery.apiserver.call import Reply
from atoll.machinery.apiserver.egress import EgressError
from atoll.machinery.apiserver.egress.forward import Forwarder, end_to_end
from atoll.machinery.apiserver.pipeline import Request, fail
from atoll.machinery.apiserver.requestinfo import inside
from atoll.machinery.meta.status import ServiceUnavailable, Unauthorized
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.paths import PathIndex

#: `clusters` and the path.
_OWN_SEGMENTS = 2
_NOT_AVAILABLE = b"Not available.\n"
#: Never passed on, however they are spelled: they would say who asks.
_IDENTITY = ("x-remote-", "x-forwarded-", "forwarded", "x-kcp-", "x-kubernetes-sharded-request")
_CREDENTIALS = ("authorization", "cookie", "impersonate-")

Identify = Callable[[], User]


class Mounts:
    """Serves them. `authenticates`: the forwarder has a certificate, and vouches for the caller."""

    def __init__(self, index: PathIndex, forwarder: Forwarder, *, authenticates: bool) -> None:
        self._index, self._forwarder, self._authenticates = index, forwarder, authenticates

    def take(self, request: Request, snapshot: Snapshot, identify: Identify) -> bool:
        """Answer a request whose path ends in a mount; False if it does not. Raises Unauthorized."""
        mounted = self._index.mounted(snapshot, request.info.workspace)
        if mounted is None:
            return False
        if not mounted.ready:
            request.reply(Reply(503, _NOT_AVAILABLE, "text/plain; charset=utf-8"))
            return True
        headers = self._headers(request, identify)
        request.exchange.spawn(self._forward(request, mounted.url, headers))
        return True

    def _headers(self, request: Request, identify: Identify) -> list[tuple[str, str]]:
        came = request.http.headers
        if not self._authenticates:
            return _passed_on(came, _IDENTITY)
        request.user = identify()
        return [*_passed_on(came, (*_IDENTITY, *_CREDENTIALS)), *_spoken_for(request.user)]

    async def _forward(self, request: Request, url: str, headers: list[tuple[str, str]]) -> None:
        rest = inside(request.http.target, _OWN_SEGMENTS)
        try:
            request.code = await self._forwarder.forward(request.exchange, url, rest, headers)
        except EgressError as error:
            fail(request, ServiceUnavailable(f"the mounted workspace cannot be reached: {error}"))
        except BaseException:
            # The client left, or the answer could not be passed on: told all the same.
            request.done()
            raise
        else:
            request.done()


def _passed_on(headers: Mapping[str, list[str]], dropped: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = ((name, value) for name, values in headers.items() for value in values)
    return end_to_end((name, value) for name, value in pairs if not canonical(name).startswith(dropped))


def _spoken_for(user: User) -> list[tuple[str, str]]:
    """The headers that say for whom we ask. Power that a name has here is not taken along. Raises Unauthorized."""
    if AUTHENTICATED not in user.groups or SCOPES in user.extra:
        # Whoever is somebody in some clusters only would be somebody everywhere over there.
        raise Unauthorized
    name = global_name_of(user) if is_service_account(user.name) else user.name
    if name is None:
        raise Unauthorized
    groups = [group for group in user.groups if group == AUTHENTICATED or not is_privileged(group)]
    found = [("X-Remote-User", name), *(("X-Remote-Group", group) for group in groups)]
    for key, values in user.extra.items():
        if RESERVED_EXTRA not in key:
            found.extend((f"X-Remote-Extra-{quote(key, safe='')}", value) for value in values)
    if not all(value == value.strip() and value.isprintable() for _, value in found):
        # Over there it would be read without its spaces, and be somebody else's name or a group of power.
        raise Unauthorized
    return found
