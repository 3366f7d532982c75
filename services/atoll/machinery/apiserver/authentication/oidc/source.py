"""VerifiedToken sources of issuers: those of the installation's configuration, and those of a workspace's type.

The authenticator asks the first for every bearer token that is none of ours, and the second inside of a workspace.
A tenant's issuer never makes a privileged identity: names that begin with `system:` are refused, such groups and extras
that carry authority are dropped, and what is left counts in this one workspace alone.
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
from atoll.machinery.apiserver.authentication.oidc.key_set import PublicKey
from atoll.machinery.apiserver.authentication.oidc.mapping import Claims, Mapper
from atoll.machinery.apiserver.authentication.service_account_claims import issuer_of
from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.apiserver.authorization.effective_users import CLUSTER_NAME, SCOPES
from atoll.machinery.apiserver.authorization.groups import POLICY_PREFIX, RESERVED_EXTRA
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Record

log = structlog.get_logger()

MAX_TOKENS, MAX_CONFIGURATIONS = 8192, 512
#: As go-oidc: a token may be from a little in our future.
CLOCK_SKEW_S = 300
#: How often the operator's file is looked at.
LOOK_EVERY_S = 1.0
_NOBODY_OF_TENANTS = ("system:", POLICY_PREFIX)


class VerifiedToken(msgspec.Struct, frozen=True):
    """What was verified once. Times are Unix seconds."""

    user: User
    audiences: frozenset[str]
    expires: float
    not_before: float


#: Tokens that were verified, and the keys that it was done with: with others it is done again. Shared by the issuers of
#: one source, so that it is bounded however many there are.
TokenCache = LruCache[tuple[object, bytes], tuple[tuple[PublicKey, ...], VerifiedToken]]


class _Times(msgspec.Struct, frozen=True):
    exp: float
    nbf: float = 0


class IssuerTokens:
    """Tokens of one issuer. Belongs to one event loop."""

    def __init__(
        self, found: JWTAuthenticator, fetch: Fetch, known: TokenCache, clock: Callable[[], float] = time.time
    ) -> None:
        self.url, self._audiences = found.issuer.url, frozenset(found.issuer.audiences)
        self._keys, self._mapper, self._clock = IssuerKeys(found.issuer, fetch), Mapper(found), clock
        self._known = known

    def read(self, token: str, digest: bytes) -> VerifiedToken:
        """A token that names this issuer. Raises Unauthorized, AuthenticationPending."""
        keys, found = self._known.get((self, digest)) or (None, None)
        if found is None or keys is not self._keys.current():
            try:
                found = self._read(decode(self._keys.payload(token)))
            except (jwt.TokenError, msgspec.DecodeError, msgspec.ValidationError) as error:
                log.info("token refused", issuer=self.url, reason=str(error))
                raise Unauthorized from error
            self._known.put((self, digest), (self._keys.current(), found))
        if not found.not_before - CLOCK_SKEW_S <= self._clock() < found.expires:
            raise Unauthorized
        return found

    def _read(self, claims: Claims) -> VerifiedToken:
        audience = claims.get("aud")
        meant_for = frozenset([audience] if isinstance(audience, str) else msgspec.convert(audience or [], list[str]))
        if self._audiences.isdisjoint(meant_for):
            raise jwt.TokenError("not meant for any of the audiences")
        times = msgspec.convert(claims, _Times)
        return VerifiedToken(self._mapper.user(claims), meant_for, times.exp, times.nbf)


def _issuer_named(token: str) -> str:
    try:
        return issuer_of(jwt.unverified_claims(token))
    except jwt.TokenError:
        return ""


class ConfiguredIssuers:
    """The token source of an AuthenticationConfiguration file, which is read again when it changed.

    A file that became unusable leaves what it said before in force. Raises InvalidConfig and OSError for the first.
    """

    def __init__(self, file: Path, audiences: Sequence[str], fetch: Fetch) -> None:
        self._file, self._fetch, self._audiences = file, fetch, frozenset(audiences)
        self._known: TokenCache = LruCache(MAX_TOKENS)
        self._stamp, self._looked_at = self._seen(), time.monotonic()
        self._issuers = self._read()

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """See TokenSource."""
        self._look()
        issuer = self._issuers.get(_issuer_named(token))
        if issuer is None or self._audiences.isdisjoint(audiences):
            return None
        return authenticated(issuer.read(token, digest).user)

    def _read(self) -> dict[str, IssuerTokens]:
        configured = config.from_file(self._file.read_bytes())
        return {found.issuer.url: IssuerTokens(found, self._fetch, self._known) for found in configured}

    def _seen(self) -> tuple[int, int, int]:
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            stamp = self._seen()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._issuers = self._read()
        except (OSError, InvalidConfig) as error:
            log.error("authentication configuration not taken over", reason=str(error))
        else:
            log.info("authentication configuration read", issuers=len(self._issuers))


#: The WorkspaceAuthenticationConfigurations that a logical cluster's type names.
Configurations = Callable[[View, str], Iterable[Record]]


class WorkspaceIssuers:
    """The issuers of workspaces, by what their types say in the request's own snapshot.

    Their tokens must be meant for this server too, beside what the configuration asks (as in kcp).
    """

    def __init__(self, configurations: Configurations, fetch: Fetch) -> None:
        self._configurations, self._fetch = configurations, fetch
        self._known: TokenCache = LruCache(MAX_TOKENS)
        self._read: LruCache[object, tuple[int, dict[str, IssuerTokens]]] = LruCache(MAX_CONFIGURATIONS)

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str) -> User | None:
        """The user of a token of one of the cluster's own issuers, confined to the cluster; None if it is none."""
        named = _issuer_named(token)
        if not named:
            return None
        for record in self._configurations(snapshot, cluster):
            issuer = self._issuers(record).get(named)
            if issuer is not None:
                found = issuer.read(token, digest)
                if found.audiences.isdisjoint(audiences):
                    raise Unauthorized
                return _confined(found.user, cluster)
        return None

    def _issuers(self, record: Record) -> dict[str, IssuerTokens]:
        known = self._read.get(record.key)
        if known is None or known[0] != record.revision:
            known = record.revision, self._made(decode(record.value))
            self._read.put(record.key, known)
        return known[1]

    def _made(self, obj: Object) -> dict[str, IssuerTokens]:
        try:
            issuers = config.from_object(obj)
            return {found.issuer.url: IssuerTokens(found, self._fetch, self._known) for found in issuers}
        except InvalidConfig as error:
            log.warning("workspace authentication configuration is unusable", reason=str(error))
            return {}


def _confined(user: User, cluster: str) -> User:
    """A tenant's user: unprivileged, and somebody in this workspace alone. Raises Unauthorized."""
    if user.name.startswith(_NOBODY_OF_TENANTS):
        raise Unauthorized
    groups = tuple(group for group in user.groups if not group.startswith(_NOBODY_OF_TENANTS))
    extra = {key: values for key, values in user.extra.items() if RESERVED_EXTRA not in key}
    own = {SCOPES: (f"cluster:{cluster}",), CLUSTER_NAME: (cluster,)}
    return authenticated(User(user.name, groups, user.uid, {**extra, **own}))
