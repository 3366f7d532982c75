"""Tokens for the events of subscribers: short-lived, of the audience `events`, and of no use at the API.

A shard issues one to whoever it has authenticated; a gateway takes these, and the tokens that service accounts request
for this audience alone. Both are signed with the key of service account tokens, of which a gateway has the public half.
Invariant: the issuer is none that the API accepts, and no client chooses it; a token that names another audience, alone
or beside this one, is not taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.jwt import PublicKey, TokenError
from atoll.machinery.apiserver.authentication.service_account_claims import unverified_issuer
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet
from atoll.machinery.apiserver.authentication.service_accounts import CLOCK_SKEW_S, check_times, subject_of
from atoll.machinery.apiserver.authentication.token_issuer import IssuedToken
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.uids import new_uid

ISSUER, AUDIENCE = "atoll-events", "events"
LIFETIME_S = 15 * 60


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Times are Unix seconds; `cluster` is that of a user of one cluster alone."""

    iss: str
    sub: str
    aud: tuple[str, ...]
    iat: int
    exp: int
    jti: str
    cluster: str = msgspec.field(name="atoll.dev/cluster", default="")


_decoder = msgspec.json.Decoder(_Claims)


class EventSubject(msgspec.Struct, frozen=True):
    """Whose a token is: a user, of one cluster alone or of all ("")."""

    user: str
    cluster: str
    expires_s: int


def issue(keys: KeySet, user: str, cluster: str, now_s: float) -> IssuedToken:
    """A token for an authenticated user, of one cluster alone if that is not empty."""
    now = int(now_s)
    claims = _Claims(ISSUER, user, (AUDIENCE,), now, now + LIFETIME_S, new_uid(), cluster)
    return IssuedToken(jwt.sign(msgspec.json.encode(claims), keys.signing, keys.signing_id), claims.exp)


class EventTokens:
    """Judges the tokens that come to a gateway. `issuers` are those of service account tokens."""

    def __init__(
        self, keys: Mapping[str, PublicKey], issuers: Sequence[str], clock: Callable[[], float] = time.time
    ) -> None:
        self._keys, self._issuers, self._clock = keys, issuers, clock

    def subject(self, token: str) -> EventSubject:
        """Whose a token is. Raises Unauthorized for every token that is not to be taken."""
        if unverified_issuer(token) != ISSUER:
            return self._account(token)
        try:
            claims = jwt.decode_json(_decoder, jwt.verify(token, self._keys))
        except TokenError as error:
            raise Unauthorized from error
        if claims.aud != (AUDIENCE,) or not claims.sub:
            raise Unauthorized
        if not claims.iat - CLOCK_SKEW_S <= self._clock() < claims.exp:
            raise Unauthorized
        return EventSubject(claims.sub, claims.cluster, claims.exp)

    def _account(self, token: str) -> EventSubject:
        """The service account of a token that it requested for this audience."""
        found = subject_of(token, self._keys, self._issuers)
        if found is None or found.legacy or found.audiences != (AUDIENCE,):
            raise Unauthorized
        check_times(found, self._clock())
        return EventSubject(found.user_name, found.cluster, found.expires)
