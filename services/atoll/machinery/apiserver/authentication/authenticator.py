"""The authenticator: every credential a request can carry, in one order, to one identity.

    identity headers of a trusted proxy → client certificate → bearer token → anonymous, then impersonation

The pipeline calls it once a request, with the request's own snapshot. The first credential that is good
decides. A credential that is there and not good refuses the request: nobody becomes anonymous by failing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.authentication.certificates import Certificates, Presented
from atoll.machinery.apiserver.authentication.headers import RequestHeaders
from atoll.machinery.apiserver.authentication.impersonation import Impersonator, wanted
from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authentication.tokens import TokenSource, token_digest
from atoll.machinery.apiserver.call import View
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.wire.exchange import HttpRequest


class Caller(msgspec.Struct, frozen=True):
    """Who a request counts as, and who really sent it where that is somebody else."""

    user: User
    impersonator: User | None = None


class WorkspaceSource(Protocol):
    """Tokens of the issuers that a workspace's own type names."""

    def user_of(
        self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str
    ) -> User | None:
        """As TokenSource, for one cluster."""


class Bearers(msgspec.Struct, frozen=True):
    """The token sources, asked in order, and the audiences of this server; `workspaces` are asked last."""

    sources: tuple[TokenSource, ...]
    audiences: tuple[str, ...]
    workspaces: WorkspaceSource | None = None

    def user_of(self, token: str, snapshot: View, cluster: str, audiences: Sequence[str] = ()) -> User | None:
        """The user of a token meant for this server, or for one of `audiences` (TokenReview), in a cluster.

        None for a token that no source knows. Raises Unauthorized for a known one that is not good, and Unsettled.
        """
        digest, wanted = token_digest(token), audiences or self.audiences
        refused: Unauthorized | None = None
        try:
            for source in self.sources:
                user = source.user_of(token, digest, wanted, snapshot)
                if user is not None:
                    return user
        except Unauthorized as error:
            # A workspace may trust the same issuer for tokens that are not meant for the installation.
            refused = error
        found = None
        if self.workspaces is not None and cluster:
            found = self.workspaces.user_of(token, digest, wanted, snapshot, cluster)
        if found is None and refused is not None:
            raise refused
        return found


class Authenticator:
    """Authenticates requests. Synchronous; one an event loop, like the caches of its parts."""

    def __init__(
        self,
        bearers: Bearers,
        certificates: Certificates,
        impersonator: Impersonator,
        headers: RequestHeaders | None = None,
        *,
        anonymous: bool = True,
    ) -> None:
        self.bearers = bearers
        self._certificates, self._impersonator = certificates, impersonator
        self._headers = headers or RequestHeaders()
        self._anonymous = anonymous

    def authenticate(self, request: HttpRequest, cluster: str, snapshot: View) -> User:
        """The user a request counts as in a cluster ("" for none). Raises Unauthorized; Forbidden and
        BadRequest for impersonation that is refused or malformed."""
        return self.identify(request, cluster, snapshot).user

    def identify(self, request: HttpRequest, cluster: str, snapshot: View) -> Caller:
        """As `authenticate`, with the impersonator for audit."""
        sender = self._sender(request, cluster, snapshot)
        want = wanted(request.headers)
        if want is None:
            return Caller(sender)
        return Caller(self._impersonator.act_as(want, sender, cluster, snapshot), sender)

    def _sender(self, request: HttpRequest, cluster: str, snapshot: View) -> User:
        certificate = request.peer.certificate
        presented = self._certificates.presented(certificate) if certificate is not None else None
        sent = self._headers.sent(request.headers)
        if sent:
            return self._spoken_for(request, presented, sent)
        if presented is not None and presented.user is not None:
            return presented.user
        if "authorization" in request.headers:
            return self._bearer(request, cluster, snapshot)
        if not self._anonymous:
            raise Unauthorized
        return ANONYMOUS_USER

    def _spoken_for(self, request: HttpRequest, presented: Presented | None, sent: list[str]) -> User:
        if presented is None or not presented.proxy:
            raise Unauthorized
        return self._headers.user(request.headers, sent)

    def _bearer(self, request: HttpRequest, cluster: str, snapshot: View) -> User:
        token = bearer_token(request)
        if not token or len(request.headers["authorization"]) > 1:
            raise Unauthorized
        user = self.bearers.user_of(token, snapshot, cluster)
        if user is None:
            raise Unauthorized
        return user
