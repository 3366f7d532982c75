"""Requests to mounted workspaces, forwarded to the mount's URL.

The pipeline calls it for a path that ends in a mounted Workspace, before authentication. A mount of a workspace of this
installation is a route, and its request goes on in the pipeline. For any other mount the mounted server authenticates
and authorizes the request. Without a client certificate the caller's Authorization header is forwarded; with one
(`--mount-proxy-client-cert-file`) the shard authenticates the caller and names him in X-Remote-* headers.
Invariants: identity headers of the client are never forwarded; with the certificate no unauthenticated request is.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.call.requestinfo import inside
from atoll.machinery.apiserver.federation import mount_routes
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, passed_on, spoken_for
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot

#: Segments that the shard consumes: `clusters` and the path.
_OWN_SEGMENTS = 2
_NOT_AVAILABLE = b"Not available.\n"
Identify = Callable[[], User]


class Mounts:
    """Forwards requests to mounts. `authenticates`: the forwarder has a certificate and sends X-Remote-* headers.

    The forwarder is made for the first mount, as it may read the authorities of the system: 20 ms of a start, 0.7 MB.
    """

    def __init__(
        self, index: PathIndex, forwarder: Callable[[], Forwarder], external_url: str, *, authenticates: bool
    ) -> None:
        """`external_url` is the URL of the installation's workspaces for clients."""
        self._index, self._forwarder, self._authenticates = index, forwarder, authenticates
        own = mount_routes.external_url(external_url)
        self._own = (own,) if own is not None else ()

    def has(self, snapshot: Snapshot, workspace: str) -> bool:
        """Return whether requests to a workspace are forwarded."""
        onward = mount_routes.destination(self._index, snapshot, workspace, self._own)
        return onward is not None and self._index.mounted(snapshot, onward) is not None

    def destination(self, snapshot: Snapshot, workspace: str) -> str:
        """Return the workspace that a path leads to through mounts of this installation. Raises ApiError for a loop."""
        onward = mount_routes.destination(self._index, snapshot, workspace, self._own)
        if onward is None:
            raise errors.mount_loop()
        return onward

    def take(self, request: Request, snapshot: Snapshot, identify: Identify) -> bool:
        """Answer a request whose path ends in a mount; return False if it does not. Raises Unauthorized."""
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
        received = request.http.headers
        if not self._authenticates:
            return passed_on(received, IDENTITY)
        request.user = identify()
        return [*passed_on(received, (*IDENTITY, *CREDENTIALS)), *spoken_for(request.user)]

    async def _forward(self, request: Request, url: str, headers: list[tuple[str, str]]) -> None:
        rest = inside(request.target, _OWN_SEGMENTS)
        try:
            request.code = await self._forwarder().forward(request.exchange, url, rest, headers)
        except EgressError as error:
            fail(request, ServiceUnavailable(f"the mounted workspace cannot be reached: {error}"))
        except BaseException:
            # The client disconnected or the response was cut: log and audit the request all the same.
            request.done()
            raise
        else:
            request.done()
