"""Service account tokens in: signature, times and audience, and whether the account still stands.

The authenticator and TokenReview ask. A verified token is remembered by its hash with what it says; that the
account (same uid) and the Secret it is bound to still exist is judged at the revisions of the request's own
snapshot, so a deleted account's token dies with the next request. A token is good in its own cluster; what
its user counts for elsewhere is `authorization.effective_users`'s to say.
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
from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet
from atoll.machinery.apiserver.authorization.effective_users import CLUSTER_NAME
from atoll.machinery.apiserver.authorization.groups import SERVICE_ACCOUNTS
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.meta.types import SERVICE_ACCOUNTS as ACCOUNTS
from atoll.machinery.meta.user import AUTHENTICATED, User

DEFAULT_ISSUER = "https://kcp.default.svc"
MAX_TOKENS = 8192
#: A token issued by another shard may be from a little in our future.
CLOCK_SKEW_S = 10


class ServiceAccountIssuers(msgspec.Struct, frozen=True):
    """Who issues tokens we accept (the first is us), and for whom they are meant unless asked otherwise."""

    names: tuple[str, ...] = (DEFAULT_ISSUER,)
    audiences: tuple[str, ...] = (DEFAULT_ISSUER,)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] = {}


class _VerifiedToken(msgspec.Struct):
    """A token whose signature held. `alive_at` are the last revisions at which its objects were found."""

    subject: Subject
    user: User
    alive_at: tuple[int, int] = (-1, -1)


def subject_of(token: str, keys: Mapping[str, PublicKey], issuers: Sequence[str]) -> Subject | None:
    """Whose token it is by its signature alone; None for what is none of these issuers (nor of a Secret).

    Raises Unauthorized for one that names such an issuer and is not signed with one of the keys.
    """
    try:
        issuer = service_account_claims.issuer_of(jwt.unverified_claims(token))
    except jwt.TokenError:
        return None
    if issuer not in (*issuers, service_account_claims.LEGACY_ISSUER):
        return None
    try:
        return service_account_claims.read(jwt.verify(token, keys))
    except jwt.TokenError as error:
        raise Unauthorized from error


class TokenLifetime(Protocol):
    """When a token counts, in Unix seconds; a legacy one always does."""

    @property
    def legacy(self) -> bool: ...

    @property
    def not_before(self) -> int: ...

    @property
    def expires(self) -> int: ...


def check_times(subject: TokenLifetime, now_s: float) -> None:
    """Raises Unauthorized for a token that is over, or not yet good."""
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
        elsewhere: RemoteServiceAccounts | None = None,
    ) -> None:
        """`elsewhere` answers for clusters of other shards; without it nobody of theirs comes in."""
        self._keys, self._issuers, self._clock, self._elsewhere = keys, issuers, clock, elsewhere
        self._known: LruCache[bytes, _VerifiedToken] = LruCache(MAX_TOKENS)

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """See TokenSource. None for what is not a token of our issuers."""
        known = self._known.get(digest)
        if known is not None:
            self._check(known, (token, digest), audiences, snapshot)
            return known.user
        subject = subject_of(token, self._keys.verifying, self._issuers.names)
        if subject is None:
            return None
        known = _VerifiedToken(subject, user_of(subject))
        self._check(known, (token, digest), audiences, snapshot)
        self._known.put(digest, known)
        return known.user

    def _check(self, known: _VerifiedToken, token: tuple[str, bytes], audiences: Sequence[str], snapshot: View) -> None:
        subject = known.subject
        check_times(subject, self._clock())
        meant_for = self._issuers.audiences if subject.legacy else subject.audiences
        if set(meant_for).isdisjoint(audiences):
            raise Unauthorized
        self._check_alive(known, token, snapshot)

    def _check_alive(self, known: _VerifiedToken, token: tuple[str, bytes], snapshot: View) -> None:
        """`token` with its digest. Raises Unauthorized, and AuthenticationPending of an account on another shard."""
        subject = known.subject
        secrets = snapshot.last(SECRETS, subject.cluster) if subject.secret is not None else 0
        now_at = (snapshot.last(ACCOUNTS, subject.cluster), secrets)
        if known.alive_at == now_at:
            return
        shard = "" if snapshot.gate(subject.cluster).generation else snapshot.replicas.shard_of(subject.cluster)
        if shard and self._elsewhere is not None:
            self._elsewhere.check(shard, subject, *token)
            return
        if not account_stands(_get(snapshot, ACCOUNTS, subject, subject.name), subject):
            raise Unauthorized
        if subject.secret is not None:
            secret = _get(snapshot, SECRETS, subject, subject.secret.name)
            if not secret_stands(secret, subject, token[0]):
                raise Unauthorized
        known.alive_at = now_at


def _get(snapshot: View, type_: ResourceType, subject: Subject, name: str) -> Object | None:
    """An object of the token's namespace."""
    record = snapshot.get(ObjectKey(type_, subject.cluster, subject.namespace, name))
    return decode(record.value) if record is not None else None


def account_stands(obj: Object | None, subject: Subject) -> bool:
    """Whether an object is the account that a token was issued for, and is not being deleted."""
    account = _standing(obj)
    return account is not None and account.metadata.uid == subject.uid


def secret_stands(obj: Object | None, subject: Subject, token: str) -> bool:
    """Whether an object is the Secret that a token is bound to, or was handed out in."""
    secret = _standing(obj)
    if secret is None or subject.secret is None:
        return False
    if subject.legacy:
        # The Secret is what was handed out; changing or replacing it takes the token back.
        return secret.data.get("token", "") == base64.b64encode(token.encode()).decode()
    return secret.metadata.uid == subject.secret.uid


def _standing(obj: Object | None) -> _Object | None:
    found = msgspec.convert(obj, _Object) if obj is not None else None
    return None if found is None or found.metadata.deletion_timestamp else found


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups every service account of a namespace is in."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)


def user_of(subject: Subject) -> User:
    """The user of a token. Groups are fixed: nothing in a token can name one."""
    extra = {CLUSTER_NAME: (subject.cluster,)}
    if subject.token_id:
        extra[CREDENTIAL_ID] = (f"JTI={subject.token_id}",)
    return User(subject.user_name, account_groups(subject.namespace), subject.uid, extra)
