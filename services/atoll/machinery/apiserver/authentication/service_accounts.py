"""Service account tokens: verifies the signature, times, audience, and that the account still exists.

The authenticator and TokenReview call it. A verified token is cached by its hash. Invariant: times and audience are
checked on every use, and the account (same uid) and the Secret that the token is bound to are checked at the revisions
of the request's snapshot, so the token of a deleted account is refused with the next request. A token is valid in its
own cluster; `authorization.effective_users` decides what its user is in other clusters.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.authentication import jwt, service_account_claims
from atoll.machinery.apiserver.authentication.certificates import CREDENTIAL_ID
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.remote_owners import RemoteOwners
from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet
from atoll.machinery.apiserver.authorization.groups import SERVICE_ACCOUNTS
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.meta.types import SERVICE_ACCOUNTS as ACCOUNTS
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, User

DEFAULT_ISSUER = "https://kcp.default.svc"
MAX_TOKENS = 8192
#: Another shard's clock may be ahead of this one.
CLOCK_SKEW_S = 10


class ServiceAccountIssuers(msgspec.Struct, frozen=True):
    """Accepted issuers, of which the first signs here; and the default audiences of tokens."""

    names: tuple[str, ...] = (DEFAULT_ISSUER,)
    audiences: tuple[str, ...] = (DEFAULT_ISSUER,)


class _VerifiedToken(msgspec.Struct):
    """A token whose signature was verified, and the last changes of its cluster's objects when they were checked."""

    subject: Subject
    user: User
    #: Of the keys that verified it.
    generation: int
    accounts_revision: int = -1
    secrets_revision: int = -1


def subject_of(token: str, keys: Mapping[str, PublicKey], issuers: Sequence[str]) -> Subject | None:
    """The subject of a token by its signature alone; None for a token that names none of the issuers.

    The issuer of tokens in Secrets is always accepted. Raises Unauthorized for a token of an accepted issuer that is
    not signed with one of the keys.
    """
    if service_account_claims.unverified_issuer(token) not in (*issuers, service_account_claims.LEGACY_ISSUER):
        return None
    try:
        return service_account_claims.read(jwt.verify(token, keys))
    except jwt.TokenError as error:
        raise Unauthorized from error


class TokenLifetime(Protocol):
    """Validity of a token in Unix seconds; a legacy token is always valid."""

    @property
    def legacy(self) -> bool: ...

    @property
    def not_before(self) -> int: ...

    @property
    def expires(self) -> int: ...


def check_times(subject: TokenLifetime, now_s: float) -> None:
    """Raise Unauthorized for a token that has expired, or is not yet valid."""
    if not subject.legacy and not subject.not_before - CLOCK_SKEW_S <= now_s < subject.expires:
        raise Unauthorized


class ServiceAccountTokens:
    """A token source for the service accounts of every cluster of this shard."""

    def __init__(
        self,
        keys: KeySet,
        issuers: ServiceAccountIssuers,
        clock: Callable[[], float] = time.time,
        *,
        remote: RemoteServiceAccounts | None = None,
        owners: RemoteOwners | None = None,
    ) -> None:
        """`remote` checks accounts of clusters on other shards; without it their tokens are refused. `owners` finds
        the shards of clusters where not all are known."""
        self._keys, self._issuers, self._clock, self._remote = keys, issuers, clock, remote
        self._owners = owners
        self._verified: LruCache[bytes, _VerifiedToken] = LruCache(MAX_TOKENS)

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """See TokenSource. Raises AuthenticationPending for an account of another shard that must be checked first."""
        verified = self._verified.get(digest)
        is_new = verified is None or verified.generation != self._keys.generation
        if verified is None or is_new:
            subject = subject_of(token, self._keys.verifying, self._issuers.names)
            if subject is None:
                return None
            verified = _VerifiedToken(subject, user_of(subject), self._keys.generation)
        self._check_claims(verified.subject, audiences)
        self._check_objects(verified, token, digest, snapshot)
        if is_new:
            self._verified.put(digest, verified)
        return verified.user

    def _check_claims(self, subject: Subject, audiences: Sequence[str]) -> None:
        check_times(subject, self._clock())
        meant_for = self._issuers.audiences if subject.legacy else subject.audiences
        if set(meant_for).isdisjoint(audiences):
            raise Unauthorized

    def _check_objects(self, verified: _VerifiedToken, token: str, digest: bytes, snapshot: View) -> None:
        subject = verified.subject
        accounts = snapshot.last(ACCOUNTS, subject.cluster)
        secrets = snapshot.last(SECRETS, subject.cluster) if subject.secret is not None else 0
        if verified.accounts_revision == accounts and verified.secrets_revision == secrets:
            return
        is_here = bool(snapshot.gate(subject.cluster).generation)
        shard = "" if is_here else snapshot.replicas.shard_of(subject.cluster)
        if shard and self._remote is not None:
            self._remote.check(shard, subject, token, digest)
            return
        if not shard and not is_here and self._owners is not None:
            self._owners.require_none(subject.cluster)
        if not is_account(_get(snapshot, ACCOUNTS, subject, subject.name), subject):
            raise Unauthorized
        if subject.secret is not None:
            secret = _get(snapshot, SECRETS, subject, subject.secret.name)
            if not holds_token(secret, subject, token):
                raise Unauthorized
        verified.accounts_revision, verified.secrets_revision = accounts, secrets


def _get(snapshot: View, type_: ResourceType, subject: Subject, name: str) -> Object | None:
    """An object of the token's namespace."""
    record = snapshot.get(ObjectKey(type_, subject.cluster, subject.namespace, name))
    return decode(record.value) if record is not None else None


def is_account(obj: Object | None, subject: Subject) -> bool:
    """Return whether an object is the account that a token was issued for, and is not being deleted."""
    return _live_uid(obj) == subject.uid


def holds_token(obj: Object | None, subject: Subject, token: str) -> bool:
    """Return whether an object is the Secret that a token is bound to, or that stores it, and is not being deleted."""
    uid = _live_uid(obj)
    if obj is None or uid is None or subject.secret is None:
        return False
    if subject.legacy:
        # A legacy token is revoked by changing or replacing the Secret that stores it.
        return bool((obj.get("data") or {}).get("token") == base64.b64encode(token.encode()).decode())
    return uid == subject.secret.uid


def _live_uid(obj: Object | None) -> str | None:
    """The uid of an object, None without an object and for one that is being deleted."""
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return None
    return str(obj["metadata"].get("uid", ""))


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of a namespace."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)


def user_of(subject: Subject) -> User:
    """The user of a token. The groups follow from the namespace; a token cannot name any."""
    extra = {CLUSTER_NAME: (subject.cluster,)}
    if subject.token_id:
        extra[CREDENTIAL_ID] = (f"JTI={subject.token_id}",)
    return User(subject.user_name, account_groups(subject.namespace), subject.uid, extra)
