"""The authenticator: every credential a request can carry, in one order, to one identity.

    what a trusted proxy says → client certificate → bearer token → anonymous, then impersonation

The pipeline calls it once a request, with the request's own snapshot. The first credential that is good
decides. A credential that is there and not good refuses the request: nobody becomes anonymous by failing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import AssertionVerifier
from atoll.machinery.apiserver.authentication.certificates import Certificates, ClientCertificate
from atoll.machinery.apiserver.authentication.impersonation import Impersonator, impersonation_request
from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders, check_listed
from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authentication.tokens import TokenSource, authenticated, token_digest
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.wire.exchange import HttpRequest

log = structlog.get_logger()


class AuthenticationResult(msgspec.Struct, frozen=True):
    """Who a request counts as, who really sent it where that is somebody else, and the proxy that passed it on."""

    user: User
    impersonator: User | None = None
    through: str = ""


class WorkspaceSource(Protocol):
    """Tokens of the issuers that a workspace's own type names."""

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str) -> User | None:
        """As TokenSource, for one cluster."""


class BearerTokens(msgspec.Struct, frozen=True):
    """The token sources, asked in order, and the audiences of this server; `workspaces` are asked last."""

    sources: tuple[TokenSource, ...]
    audiences: tuple[str, ...]
    workspaces: WorkspaceSource | None = None

    def user_of(self, token: str, snapshot: View, cluster: str, audiences: Sequence[str] = ()) -> User | None:
        """The user of a token meant for this server, or for one of `audiences` (TokenReview), in a cluster.

        None for a token that no source knows. Raises Unauthorized for a known token that is not valid, and
        AuthenticationPending.
        """
        digest, accepted = token_digest(token), audiences or self.audiences
        refused: Unauthorized | None = None
        try:
            for source in self.sources:
                user = source.user_of(token, digest, accepted, snapshot)
                if user is not None:
                    return user
        except Unauthorized as error:
            # A workspace may trust the same issuer for tokens that are not meant for the installation.
            refused = error
        found = None
        if self.workspaces is not None and cluster:
            found = self.workspaces.user_of(token, digest, accepted, snapshot, cluster)
        if found is None and refused is not None:
            raise refused
        return found


class Authenticator:
    """Authenticates requests. Synchronous; one an event loop, like the caches of its parts."""

    def __init__(
        self,
        bearers: BearerTokens,
        certificates: Certificates,
        impersonator: Impersonator,
        headers: RequestHeaders | None = None,
        *,
        anonymous: bool = True,
    ) -> None:
        self.bearers = bearers
        self._certificates, self._impersonator = certificates, impersonator
        self._headers, self._assertions = headers or RequestHeaders(), AssertionVerifier()
        self._anonymous = anonymous

    def authenticate(self, request: HttpRequest, cluster: str, snapshot: View) -> User:
        """The user a request counts as in a cluster ("" for none). Raises Unauthorized; Forbidden and
        BadRequest for impersonation that is refused or malformed."""
        return self.identify(request, cluster, snapshot).user

    def identify(self, request: HttpRequest, cluster: str, snapshot: View) -> AuthenticationResult:
        """As `authenticate`, with the impersonator and the proxy for audit."""
        certificate = request.peer.certificate
        presented = self._certificates.presented(certificate) if certificate is not None else None
        sender = self._sender(request, presented, cluster, snapshot)
        through = presented.name if presented is not None and presented.user is not sender else ""
        want = impersonation_request(request.headers)
        if want is None:
            return AuthenticationResult(sender, None, through)
        return AuthenticationResult(self._impersonator.act_as(want, sender, cluster, snapshot), sender, through)

    def _sender(self, request: HttpRequest, presented: ClientCertificate | None, cluster: str, snapshot: View) -> User:
        sent = self._headers.sent(request.headers)
        if sent:
            return self._spoken_for(request, presented, sent, cluster)
        if presented is not None and presented.user is not None:
            return presented.user
        if "authorization" in request.headers:
            return self._bearer(request, cluster, snapshot)
        if not self._anonymous:
            raise Unauthorized
        return ANONYMOUS_USER

    def _spoken_for(
        self, request: HttpRequest, presented: ClientCertificate | None, sent: list[str], cluster: str
    ) -> User:
        if presented is None or not presented.proxy:
            raise Unauthorized
        if assertion.HEADER not in sent:
            return self._headers.user(request.headers, sent)
        if len(sent) > 1 or presented.key is None:
            # Whoever signs what he says does not say it without a signature as well.
            raise Unauthorized
        check_listed(request.headers, sent)
        try:
            values = request.headers[assertion.HEADER]
            return authenticated(self._assertions.user(values, presented.key, presented.sha256, cluster))
        except TokenError as error:
            log.warning("assertion refused", proxy=presented.name, reason=str(error))
            raise Unauthorized from error

    def _bearer(self, request: HttpRequest, cluster: str, snapshot: View) -> User:
        token = bearer_token(request)
        if not token or len(request.headers["authorization"]) > 1:
            raise Unauthorized
        user = self.bearers.user_of(token, snapshot, cluster)
        if user is None:
            raise Unauthorized
        return user
