"""Who asks, as far as the proxy can tell, and what is said of that to whoever is asked next.

The handler calls `identify` for each request, and `headers` (or `remote_headers`) for what goes on. A certificate or a
token that the proxy judges makes a caller that it vouches for: the credential ends here, and a signed assertion takes
its place, without the groups that nobody brings in from outside. Everybody else goes on with what he showed, and the
shard finds out. Invariant: no header that could be read as an identity goes on, in whatever spelling, whoever sent it
and whether or not he is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from atoll.frontproxy.mapping import RemoteHeaderNames
from atoll.frontproxy.tokens import TokenAuthentication
from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import Assertions, AssertionTooLarge
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.headers import RequestHeaders
from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authorization.effective import WARRANT
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.speaking import IDENTITY, passed_on
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import ApiError, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.wire.exchange import Headers, HttpRequest

MAX_CALLERS = 8192
#: Where a request came from is ours to say as well.
_ORIGIN = ("x-forwarded-", "forwarded")
_CREDENTIALS = ("authorization",)


class RequestUser(msgspec.Struct, frozen=True):
    """Who asks. `vouched`: the proxy says so to the shard; else the shard finds out itself, by what came along."""

    user: User = ANONYMOUS_USER
    vouched: bool = False


_NOBODY = RequestUser()


class GroupFilter(msgspec.Struct, frozen=True):
    """Which groups go on. A `*` at an end stands for anything; `drop` wins, an empty `pass_on` is everything."""

    drop: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()

    def __call__(self, groups: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            group
            for group in groups
            if not _among(group, self.drop) and (not self.pass_on or _among(group, self.pass_on))
        )


def _among(group: str, listed: Sequence[str]) -> bool:
    return any(group.startswith(name[:-1]) if name.endswith("*") else group == name for name in listed)


class ProxyAuthentication:
    """Authenticates, and speaks for who is authenticated. One an event loop."""

    def __init__(
        self,
        tokens: TokenAuthentication,
        certificates: Certificates,
        headers: RequestHeaders,
        groups: GroupFilter,
        assertions: Assertions,
    ) -> None:
        self.certificates = certificates
        self._tokens, self._headers, self._groups, self._assertions = tokens, headers, groups, assertions
        self._dropped = (*headers.family, *_ORIGIN)
        self._vouched: LruCache[int, tuple[User, RequestUser]] = LruCache(MAX_CALLERS)

    def identify(self, request: HttpRequest, cluster: str, view: View) -> RequestUser:
        """Who asks something of a cluster ("" for none). Raises Unauthorized, Unsettled."""
        certificate = request.peer.certificate
        presented = self.certificates.verify(certificate) if certificate is not None else None
        if presented is not None and presented.proxy:
            sent = [name for name in self._headers.sent(request.headers) if name != assertion.HEADER]
            if sent:
                return self._vouch(self._headers.user(request.headers, sent))
        if presented is not None and presented.user is not None:
            return self._vouch(presented.user)
        token = bearer_token(request)
        if not token or len(request.headers["authorization"]) > 1:
            # Nothing, or something that is no business of the proxy's: the shard refuses it.
            return _NOBODY
        known = self._tokens.judge(token, cluster, view)
        if known is None:
            return _NOBODY
        return self._vouch(known.user) if known.vouched else RequestUser(known.user)

    def _vouch(self, user: User) -> RequestUser:
        """The caller as it is spoken of. A credential gives the same user each time, so this is kept by it."""
        known = self._vouched.get(id(user))
        if known is not None and known[0] is user:
            return known[1]
        # A warrant is lent by a view for one request; one that came with a credential would bring dropped groups back.
        extra = {key: values for key, values in user.extra.items() if key != WARRANT}
        caller = RequestUser(User(user.name, self._groups(user.groups), user.uid, extra), vouched=True)
        self._vouched.put(id(user), (user, caller))
        return caller

    def headers(self, request: HttpRequest, caller: RequestUser, cluster: str) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to one of our shards. Raises ApiError for too large an identity."""
        if not caller.vouched:
            return passed_on(request.headers, self._dropped)
        found = passed_on(request.headers, (*self._dropped, *_CREDENTIALS))
        return [*found, *self.says(caller.user, cluster)]

    def stripped(self, request: HttpRequest) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to a mount, which judges the caller's own credential by itself."""
        return passed_on(request.headers, (*self._dropped, *IDENTITY))

    def says(self, user: User, cluster: str) -> Headers:
        """What tells a shard who asks something of a cluster. Raises ApiError for too large an identity."""
        try:
            return [(assertion.HEADER, self._assertions.assertion(user, cluster))]
        except AssertionTooLarge as error:
            raise ApiError(str(error), code=431, reason="RequestHeaderFieldsTooLarge") from error

    def remote_headers(
        self, request: HttpRequest, caller: RequestUser, names: RemoteHeaderNames
    ) -> list[tuple[str, str]]:
        """All end-to-end headers of a request to what is none of our shards: who asks stands in headers, as in kcp
        without the uid. Raises Unauthorized for an identity that would be another one in a header."""
        own = tuple(name.lower() for name in (names.user, names.group, names.extra_prefix))
        dropped = (*self._dropped, *own)
        if not caller.vouched:
            return passed_on(request.headers, dropped)
        user = caller.user
        said = [(names.user, user.name), *((names.group, group) for group in user.groups)]
        said += [
            (f"{names.extra_prefix}{quote(key, safe='')}", value)
            for key, values in user.extra.items()
            for value in values
        ]
        if not all(value and value == value.strip() and value.isprintable() for _, value in said):
            raise Unauthorized
        return [*passed_on(request.headers, (*dropped, *_CREDENTIALS)), *said]
