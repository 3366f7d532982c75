"""Authenticate callers as far as the proxy can, and write the identity headers of relayed requests.

`handler` calls `identify` for each request, and `headers` (or `remote_headers`) for the one to the backend. A client
certificate or a token that the proxy can verify makes a verified user: the credential ends here, and a signed assertion
takes its place, without the groups that must not come from outside. Any other credential goes on, and the shard
authenticates it. Invariant: no header that could be read as an identity goes on, whatever its spelling, sender or user.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from atoll.frontproxy.mapping import RemoteHeaderNames
from atoll.frontproxy.tokens import TokenAuthentication
from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import AssertionSigner, AssertionTooLarge, SignedAssertion
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders
from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, token_digest
from atoll.machinery.apiserver.authorization.effective_users import WARRANT
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.forwarded_identity import IDENTITY, passed_on
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.status import ApiError, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.wire.exchange import Headers, HttpRequest

#: Bytes of cached users: claims of tokens are as long as their issuer makes them.
USERS_BYTES = 16 << 20
#: The client's address, which the proxy states itself.
_CLIENT_ADDRESS = ("x-forwarded-", "forwarded")
_CREDENTIALS = ("authorization",)


class RequestUser(msgspec.Struct, frozen=True):
    """The user of a request. `verified`: the proxy asserts it; otherwise the shard authenticates it."""

    user: User = ANONYMOUS_USER
    verified: bool = False


_ANONYMOUS = RequestUser()


class _BearerToken(msgspec.Struct, frozen=True):
    """A token and its digest."""

    text: str
    digest: bytes


_NO_TOKEN = _BearerToken("", b"")


def _bearer_token(request: HttpRequest) -> _BearerToken:
    """The token of a request; of no text for no credential, or a malformed one, which the shard refuses."""
    text = bearer_token(request)
    if text is None or len(request.headers["authorization"]) > 1:
        return _NO_TOKEN
    return _BearerToken(text, token_digest(text))


class GroupFilter(msgspec.Struct, frozen=True):
    """The groups that are passed on. A trailing `*` matches anything; `drop` wins, an empty `pass_on` matches all."""

    drop: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()

    def __call__(self, groups: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            group
            for group in groups
            if not _matches(group, self.drop) and (not self.pass_on or _matches(group, self.pass_on))
        )


def _matches(group: str, listed: Sequence[str]) -> bool:
    return any(group.startswith(name[:-1]) if name.endswith("*") else group == name for name in listed)


class ProxyAuthentication:
    """Authenticates requests and writes identity headers. One for each event loop."""

    def __init__(
        self,
        tokens: TokenAuthentication,
        certificates: Certificates,
        headers: RequestHeaders,
        groups: GroupFilter,
        assertions: AssertionSigner,
    ) -> None:
        self.certificates, self.assertions = certificates, assertions
        self._tokens, self._headers, self._groups = tokens, headers, groups
        self._dropped = (*headers.family, *_CLIENT_ADDRESS)
        #: Bytes, user and asserted user, by the identity of the user.
        self._users: LruCache[int, tuple[int, User, RequestUser]] = LruCache(USERS_BYTES, lambda entry: entry[0])

    @property
    def listed(self) -> StaticTokens | None:
        """The tokens of the token file; None without one."""
        return self._tokens.listed

    def identify(self, request: HttpRequest, cluster: str, view: View, *, vouch: bool = False) -> RequestUser:
        """The user of a request to a cluster ("" for none); `vouch`: to a backend that is no shard.

        Raises Unauthorized, AuthenticationPending.
        """
        certificate = request.peer.certificate
        presented = self.certificates.verify(certificate) if certificate is not None else None
        if presented is not None and presented.proxy:
            sent = [name for name in self._headers.sent(request.headers) if name != assertion.HEADER]
            if sent:
                return self._verified_user(self._headers.user(request.headers, sent))
        if presented is not None and presented.user is not None:
            return self._verified_user(presented.user)
        shared = request.header_set
        token: _BearerToken | None = shared.credentials if shared is not None else None
        if token is None:
            token = _bearer_token(request)
            if shared is not None:
                shared.credentials = token
        if not token.text:
            return _ANONYMOUS
        found = self._tokens.authenticate(token.text, cluster, view, digest=token.digest, vouch=vouch)
        if found is None:
            return _ANONYMOUS
        return self._verified_user(found.user) if found.verified else RequestUser(found.user)

    def _verified_user(self, user: User) -> RequestUser:
        """The user as it is asserted. Credentials are cached to one User object each, which is the key here."""
        cached = self._users.get(id(user))
        if cached is not None and cached[1] is user:
            return cached[2]
        # A view lends a warrant for one request; one that came with a credential would bring dropped groups back.
        extra = {key: values for key, values in user.extra.items() if key != WARRANT}
        requester = RequestUser(User(user.name, self._groups(user.groups), user.uid, extra), verified=True)
        self._users.put(id(user), (2 * size_bytes(user), user, requester))
        return requester

    def headers(self, request: HttpRequest, requester: RequestUser, cluster: str) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to a shard. Raises ApiError for too large an identity."""
        found = self.forwarded(request, requester)
        return [*found, *self.identity_headers(requester.user, cluster)] if requester.verified else found

    def forwarded(self, request: HttpRequest, requester: RequestUser) -> list[tuple[str, str]]:
        """The client's own among the headers of a request to a shard."""
        if not requester.verified:
            return passed_on(request.headers, self._dropped)
        shared = request.header_set
        found = shared.forwarded if shared is not None else None
        if found is None:
            found = passed_on(request.headers, (*self._dropped, *_CREDENTIALS))
            if shared is not None:
                shared.forwarded = found
        return list(found)

    def stripped(self, request: HttpRequest) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to a mount, which verifies the caller's own credential."""
        return passed_on(request.headers, (*self._dropped, *IDENTITY))

    def identity_headers(self, user: User, cluster: str) -> Headers:
        """The headers that assert a user to a shard, for a cluster. Raises ApiError for too large an identity."""
        return [(assertion.HEADER, self.signed(user, cluster).text)]

    def signed(self, user: User, cluster: str) -> SignedAssertion:
        """The assertion of a user to a shard, for a cluster. Raises ApiError for too large an identity."""
        try:
            return self.assertions.signed(user, cluster)
        except AssertionTooLarge as error:
            raise ApiError(str(error), code=431, reason="RequestHeaderFieldsTooLarge") from error

    def remote_headers(
        self, request: HttpRequest, requester: RequestUser, names: RemoteHeaderNames
    ) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to another backend: the user in X-Remote headers, as in kcp without the
        uid. Raises Unauthorized for a user whose header values would be read as another's."""
        own = tuple(name.lower() for name in (names.user, names.group, names.extra_prefix))
        dropped = (*self._dropped, *own)
        if not requester.verified:
            return passed_on(request.headers, dropped)
        user = requester.user
        added = [(names.user, user.name), *((names.group, group) for group in user.groups)]
        added += [
            (f"{names.extra_prefix}{quote(key, safe='')}", value)
            for key, values in user.extra.items()
            for value in values
        ]
        if not all(value and value == value.strip() and value.isprintable() for _, value in added):
            raise Unauthorized
        return [*passed_on(request.headers, (*dropped, *_CREDENTIALS)), *added]
