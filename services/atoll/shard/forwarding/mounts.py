"""Requests to mounted workspaces: passed on to what is mounted, which decides for itself who asks.

The pipeline comes here for a path that ends in a mounted Workspace, in place of everything that follows, as nothing of
the mounted side is ours to authorize. Without a certificate of our own the caller's Authorization goes along; with one
(`--mount-proxy-client-cert-file`) we authenticate, and say in X-Remote-* headers for whom we ask. Invariant: identity
headers that came in never go out, and with our certificate nobody goes out who is not authenticated.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.call.requestinfo import inside
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, passed_on, spoken_for
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot

#: `clusters` and the path.
_OWN_SEGMENTS = 2
_NOT_AVAILABLE = b"Not available.\n"
Identify = Callable[[], User]


class Mounts:
    """Serves them. `authenticates`: the forwarder has a certificate, and vouches for the caller."""

    def __init__(self, index: PathIndex, forwarder: Forwarder, *, authenticates: bool) -> None:
        self._index, self._forwarder, self._authenticates = index, forwarder, authenticates

    def has(self, snapshot: Snapshot, workspace: str) -> bool:
        """Whether a workspace is mounted."""
        return self._index.mounted(snapshot, workspace) is not None

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
            return passed_on(came, IDENTITY)
        request.user = identify()
        return [*passed_on(came, (*IDENTITY, *CREDENTIALS)), *spoken_for(request.user)]

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
