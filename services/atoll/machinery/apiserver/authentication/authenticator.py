"""The authenticator: tries the credentials of a request in one order and returns its user.

    identity forwarded by a trusted proxy → client certificate → bearer token → anonymous; then impersonation

The pipeline calls it once per request, with the request's own snapshot. The first valid credential decides. Invariant:
an invalid credential refuses the request; it never makes the request anonymous. An Authorization header without
a bearer token is no credential, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import AssertionVerifier, VerifiedAssertion
from atoll.machinery.apiserver.authentication.certificates import Certificates, ClientCertificate
from atoll.machinery.apiserver.authentication.impersonation import Impersonator, impersonates, impersonation_request
from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders, check_listed, in_family
from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authentication.service_account_claims import unverified_expiry_s
from atoll.machinery.apiserver.authentication.tokens import TokenSource, authenticated, token_digest
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User, is_service_account
from atoll.machinery.wire.exchange import HttpRequest

log = structlog.get_logger()


class AuthenticationResult(msgspec.Struct, frozen=True):
    """The user of a request, the impersonator if there is one, and the forwarding proxy's name ("" for none).

    `acts_for`: the user for whom `user` acts inside of a virtual workspace.
    """

    user: User
    impersonator: User | None = None
    through: str = ""
    acts_for: User | None = None


class WorkspaceSource(Protocol):
    """Tokens of the issuers that the type of a workspace configures."""

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str) -> User | None:
        """As `TokenSource.user_of`, for one cluster."""


class BearerTokens(msgspec.Struct, frozen=True):
    """The token sources in order, and the audiences of this server; `workspaces` comes last."""

    sources: tuple[TokenSource, ...]
    audiences: tuple[str, ...]
    workspaces: WorkspaceSource | None = None

    def user_of(
        self, token: str, snapshot: View, cluster: str, audiences: Sequence[str] = (), digest: bytes = b""
    ) -> User | None:
        """The user in a cluster of a token for one of `audiences` (TokenReview), by default those of this server.

        None for a token of no source. Raises Unauthorized for an invalid token of a source, and AuthenticationPending.
        """
        digest, accepted = digest or token_digest(token), audiences or self.audiences
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


class _Asserted(msgspec.Struct, frozen=True):
    """The user of an assertion in the headers, the certificate that it was verified with, and what it is valid for."""

    user: User
    certificate: ClientCertificate
    assertion: VerifiedAssertion


class _Credentials(msgspec.Struct):
    """What the headers of a request say of its sender: the identity headers that were sent, and the bearer token with
    its digest, empty without one. `invalid`: more than one Authorization header."""

    sent: list[str]
    token: str
    digest: bytes
    invalid: bool
    impersonates: bool
    asserted: _Asserted | None = None


class Authenticator:
    """Authenticates requests. Synchronous; one per event loop, like the caches of its parts."""

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
        """The user of a request in a cluster ("" for none).

        Raises Unauthorized, and for impersonation Forbidden and BadRequest.
        """
        return self.identify(request, cluster, snapshot).user

    def identify(
        self, request: HttpRequest, cluster: str, snapshot: View, within: str = "", of: str = ""
    ) -> AuthenticationResult:
        """As `authenticate`, with the impersonator and the proxy for the audit log.

        `within` is the cluster for which a virtual workspace accepts impersonation. system:masters impersonate outside
        of it, as everywhere. `of` is the cluster whose users a virtual workspace lets in, though it is outside of it.
        """
        known = request.header_set
        credentials = (known.credentials if known is not None else None) or self._credentials(request)
        der = request.peer.certificate
        certificate = self._certificates.verify(der) if der is not None else None
        sender = self._sender(request, certificate, of or cluster, snapshot, credentials)
        through = certificate.name if certificate is not None and certificate.user is not sender else ""
        requested = impersonation_request(request.headers) if credentials.impersonates else None
        if requested is None:
            return AuthenticationResult(sender, None, through)
        if within and not sender.is_master:
            acts_for = self._impersonator.act_within(requested, sender, within)
            return AuthenticationResult(sender, None, through, acts_for)
        return AuthenticationResult(self._impersonator.act_as(requested, sender, cluster, snapshot), sender, through)

    def is_still_valid(self, request: HttpRequest, user: User, view: View) -> bool:
        """Whether the token of a service account is valid in a later view; other credentials hold for their request."""
        token = bearer_token(request)
        if token is None or not is_service_account(user.name):
            return True
        try:
            return self.bearers.user_of(token, view, "") is not None
        except (Unauthorized, AuthenticationPending):
            return False

    def expires_s(self, request: HttpRequest, user: User) -> float:
        """When the token of a service account, which was verified, ends in Unix seconds; 0 for never."""
        token = bearer_token(request)
        return unverified_expiry_s(token) if token is not None and is_service_account(user.name) else 0.0

    def _credentials(self, request: HttpRequest) -> _Credentials:
        """Read the headers of a request."""
        headers, token = request.headers, bearer_token(request)
        found = _Credentials(
            sent=self._headers.sent(headers),
            token=token or "",
            digest=token_digest(token) if token else b"",
            invalid=len(headers.get("authorization", ())) > 1,
            impersonates=impersonates(headers),
        )
        if request.header_set is not None:
            request.header_set.credentials = found
        return found

    def _sender(
        self,
        request: HttpRequest,
        certificate: ClientCertificate | None,
        cluster: str,
        snapshot: View,
        credentials: _Credentials,
    ) -> User:
        sent = credentials.sent
        if sent and certificate is not None and certificate.proxy:
            return self._forwarded(request, certificate, credentials, cluster)
        if sent:
            if in_family(request.headers, (assertion.HEADER,)):
                raise Unauthorized
            # As in Kubernetes: the headers of any other sender say nothing, and its own credential counts.
            log.debug("identity headers ignored", headers=len(sent))
        if certificate is not None and certificate.user is not None:
            return certificate.user
        if credentials.invalid:
            raise Unauthorized
        if credentials.token:
            user = self.bearers.user_of(credentials.token, snapshot, cluster, digest=credentials.digest)
            if user is None:
                raise Unauthorized
            return user
        if not self._anonymous:
            raise Unauthorized
        return ANONYMOUS_USER

    def _forwarded(
        self, request: HttpRequest, certificate: ClientCertificate, credentials: _Credentials, cluster: str
    ) -> User:
        asserted, sent = credentials.asserted, credentials.sent
        try:
            if asserted is None or asserted.certificate is not certificate:
                if assertion.HEADER not in sent:
                    return self._headers.user(request.headers, sent)
                asserted = credentials.asserted = self._asserted(request, certificate, sent)
            self._assertions.check(asserted.assertion, cluster)
        except TokenError as error:
            log.warning("assertion refused", proxy=certificate.name, reason=str(error))
            raise Unauthorized from error
        return asserted.user

    def _asserted(self, request: HttpRequest, certificate: ClientCertificate, sent: list[str]) -> _Asserted:
        """The user of the assertion in a request, whatever it is valid for. Raises TokenError, Unauthorized."""
        if len(sent) > 1 or certificate.key is None:
            # A proxy that signs assertions sends no unsigned identity headers.
            raise Unauthorized
        check_listed(request.headers, sent)
        values = request.headers[assertion.HEADER]
        verified = self._assertions.verified(values, certificate.key, certificate.sha256)
        return _Asserted(authenticated(verified.user), certificate, verified)
