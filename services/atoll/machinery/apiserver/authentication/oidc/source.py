"""Token sources of issuers: those of the installation's configuration, and those of a workspace's type.

The authenticator tries the first for every bearer token of another issuer, and the second inside a workspace. Verified
tokens are cached. Invariant: a cached token's times are checked on every use, and its signature is verified again when
the issuer publishes other keys. An issuer of a tenant makes no privileged identity: user names that begin with
`system:` are refused, such groups and extras with authority are dropped, and the user is scoped to this one workspace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.oidc import config
from atoll.machinery.apiserver.authentication.oidc.config import InvalidConfig, JWTAuthenticator
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import Fetch, IssuerKeys
from atoll.machinery.apiserver.authentication.oidc.key_set import IssuerKey
from atoll.machinery.apiserver.authentication.oidc.mapping import Claims, Mapper
from atoll.machinery.apiserver.authentication.service_account_claims import unverified_issuer
from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.apiserver.authorization.effective_users import SCOPES
from atoll.machinery.apiserver.authorization.groups import POLICY_PREFIX, RESERVED_EXTRA
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import CLUSTER_NAME, User
from atoll.machinery.storage.contract import Record

log = structlog.get_logger()

MAX_TOKENS, MAX_CONFIGURATIONS = 8192, 512
#: As go-oidc: the issuer's clock may be ahead of this one.
CLOCK_SKEW_S = 300
#: Interval between two looks at the operator's file.
CHECK_EVERY_S = 1.0
_RESERVED_PREFIXES = ("system:", POLICY_PREFIX)


class VerifiedToken(msgspec.Struct, frozen=True):
    """A token whose signature was verified with `keys`. Times are Unix seconds."""

    user: User
    audiences: frozenset[str]
    expires: float
    not_before: float
    keys: tuple[IssuerKey, ...]


#: Verified tokens by issuer and digest. All issuers of a source share one, so it is bounded for any number of them.
TokenCache = LruCache[tuple[object, bytes], VerifiedToken]


class _Times(msgspec.Struct, frozen=True):
    exp: float
    nbf: float = 0


class IssuerTokens:
    """Tokens of one issuer. One per event loop."""

    def __init__(
        self, config: JWTAuthenticator, fetch: Fetch, cache: TokenCache, clock: Callable[[], float] = time.time
    ) -> None:
        self.url, self._audiences = config.issuer.url, frozenset(config.issuer.audiences)
        self._keys, self._mapper, self._clock = IssuerKeys(config.issuer, fetch), Mapper(config), clock
        self._cache = cache

    def verify(self, token: str, digest: bytes) -> VerifiedToken:
        """Verify a token that names this issuer. Raises Unauthorized, AuthenticationPending."""
        verified = self._cache.get((self, digest))
        if verified is None or verified.keys is not self._keys.current():
            try:
                payload = self._keys.payload(token)
                verified = self._read(decode(payload))
            except (jwt.TokenError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                log.info("token refused", issuer=self.url, reason=str(error))
                raise Unauthorized from error
            self._cache.put((self, digest), verified)
        if not verified.not_before - CLOCK_SKEW_S <= self._clock() < verified.expires:
            raise Unauthorized
        return verified

    def _read(self, claims: Claims) -> VerifiedToken:
        audience = claims.get("aud")
        meant_for = frozenset([audience] if isinstance(audience, str) else msgspec.convert(audience or [], list[str]))
        if self._audiences.isdisjoint(meant_for):
            raise jwt.TokenError("not meant for any of the audiences")
        times = msgspec.convert(claims, _Times)
        return VerifiedToken(self._mapper.user(claims), meant_for, times.exp, times.nbf, self._keys.current())


class ConfiguredIssuers:
    """The token source of an AuthenticationConfiguration file, which is reloaded when it changes.

    A file that becomes unusable changes nothing. The first one raises InvalidConfig, OSError.
    """

    def __init__(self, file: Path, audiences: Sequence[str], fetch: Fetch) -> None:
        self._file, self._fetch, self._audiences = file, fetch, frozenset(audiences)
        self._cache: TokenCache = LruCache(MAX_TOKENS)
        self._file_state, self._checked_at = self._state(), time.monotonic()
        self._issuers = self._read()

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """See TokenSource."""
        self._reload_if_changed()
        issuer = self._issuers.get(unverified_issuer(token))
        if issuer is None or self._audiences.isdisjoint(audiences):
            return None
        return authenticated(issuer.verify(token, digest).user)

    def _read(self) -> dict[str, IssuerTokens]:
        configured = config.from_file(self._file.read_bytes())
        return {each.issuer.url: IssuerTokens(each, self._fetch, self._cache) for each in configured}

    def _state(self) -> tuple[int, int, int]:
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _reload_if_changed(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        try:
            state = self._state()
            if state == self._file_state:
                return
            self._file_state = state
            self._issuers = self._read()
        except (OSError, InvalidConfig) as error:
            log.error("authentication configuration not reloaded", reason=str(error))
        else:
            log.info("authentication configuration reloaded", issuers=len(self._issuers))


#: Finds the WorkspaceAuthenticationConfigurations of a logical cluster's type.
Configurations = Callable[[View, str], Iterable[Record]]


class WorkspaceIssuers:
    """The issuers of workspaces, as their types configure them in the request's snapshot.

    As in kcp, an audience of a token must be this server's, in addition to those of the configuration.
    """

    def __init__(self, configurations: Configurations, fetch: Fetch) -> None:
        self._configurations, self._fetch = configurations, fetch
        self._cache: TokenCache = LruCache(MAX_TOKENS)
        self._compiled: LruCache[object, _Compiled] = LruCache(MAX_CONFIGURATIONS)

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str) -> User | None:
        """The user of a token of one of the cluster's issuers, scoped to the cluster; None for another issuer."""
        name = unverified_issuer(token)
        if not name:
            return None
        for record in self._configurations(snapshot, cluster):
            issuer = self._issuers(record).get(name)
            if issuer is not None:
                verified = issuer.verify(token, digest)
                if verified.audiences.isdisjoint(audiences):
                    raise Unauthorized
                return _scoped(verified.user, cluster)
        return None

    def _issuers(self, record: Record) -> dict[str, IssuerTokens]:
        compiled = self._compiled.get(record.key)
        if compiled is None or compiled.revision != record.revision:
            compiled = _Compiled(record.revision, self._compile(decode(record.value)))
            self._compiled.put(record.key, compiled)
        return compiled.issuers

    def _compile(self, obj: Object) -> dict[str, IssuerTokens]:
        try:
            issuers = config.from_object(obj)
            return {each.issuer.url: IssuerTokens(each, self._fetch, self._cache) for each in issuers}
        except InvalidConfig as error:
            log.warning("workspace authentication configuration invalid", reason=str(error))
            return {}


class _Compiled(msgspec.Struct, frozen=True):
    """The issuers of a configuration object at one revision."""

    revision: int
    issuers: dict[str, IssuerTokens]


def _scoped(user: User, cluster: str) -> User:
    """A tenant's user: unprivileged, and scoped to this workspace. Raises Unauthorized."""
    if user.name.startswith(_RESERVED_PREFIXES):
        raise Unauthorized
    groups = tuple(group for group in user.groups if not group.startswith(_RESERVED_PREFIXES))
    extra = {key: values for key, values in user.extra.items() if RESERVED_EXTRA not in key}
    own = {SCOPES: (f"cluster:{cluster}",), CLUSTER_NAME: (cluster,)}
    return authenticated(User(user.name, groups, user.uid, {**extra, **own}))
