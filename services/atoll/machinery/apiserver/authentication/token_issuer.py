"""Issues service account tokens: the TokenRequest subresource, and the tokens in Secrets.

The handler of `serviceaccounts/token` calls `token_request`; the controller that fills Secrets of type
kubernetes.io/service-account-token calls `legacy`. A token names its logical cluster (kcp's clusterName) and is valid
there. Invariant: a client chooses the audiences, the lifetime and the bound Secret of a token, and nothing else of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.service_account_claims import (
    LEGACY_ISSUER,
    BoundClaims,
    KubernetesClaim,
    LegacyClaims,
    Reference,
)
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.apiserver.authorization.refusal import quoted
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.status import BadRequest, Conflict, Details, FieldError, NotFound, invalid
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.meta.types import SERVICE_ACCOUNTS as ACCOUNTS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import SERVICE_ACCOUNT_PREFIX

DEFAULT_LIFETIME_S = 3600
MIN_LIFETIME_S = 600
MAX_LIFETIME_S = 1 << 32
_KIND = "TokenRequest.authentication.k8s.io"


class Account(msgspec.Struct, frozen=True):
    """The service account of a token."""

    cluster: str
    namespace: str
    name: str
    uid: str

    @property
    def user_name(self) -> str:
        return f"{SERVICE_ACCOUNT_PREFIX}{self.namespace}:{self.name}"


class IssuedToken(NamedTuple):
    """A signed token and its expiry (Unix seconds)."""

    text: str
    expires_s: int


class TokenIssuer:
    """Signs tokens with the issuer's key. `max_lifetime_s` 0 does not limit lifetimes."""

    def __init__(
        self,
        keys: KeySet,
        issuers: ServiceAccountIssuers,
        max_lifetime_s: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys, self._issuers = keys, issuers
        self._max_lifetime_s, self._clock = max_lifetime_s, clock

    def issue(
        self, account: Account, audiences: tuple[str, ...], lifetime_s: int, secret: Reference | None = None
    ) -> IssuedToken:
        """Issue a token for an account, bound to a Secret if one is given."""
        now = int(self._clock())
        bound = KubernetesClaim(account.cluster, account.namespace, Reference(account.name, account.uid), secret)
        claims = BoundClaims(
            self._issuers.names[0], account.user_name, audiences, now, now, now + lifetime_s, new_uid(), bound
        )
        return IssuedToken(self._sign(claims), claims.exp)

    def legacy(self, account: Account, secret: str) -> str:
        """Issue a token for a Secret. It never expires, and is valid while that Secret stores it."""
        claims = LegacyClaims(
            LEGACY_ISSUER, account.user_name, account.namespace, secret, account.name, account.uid, account.cluster
        )
        return self._sign(claims)

    def _sign(self, claims: msgspec.Struct) -> str:
        return jwt.sign(msgspec.json.encode(claims), self._keys.signing, self._keys.signing_id)

    def token_request(self, obj: Object, account: ObjectKey, snapshot: View) -> tuple[Object, list[str]]:
        """Answer a TokenRequest for a service account. Returns the object with its status, and warnings.

        Raises NotFound (account or bound object), Conflict (bound object of another uid), Invalid and BadRequest.
        """
        record = snapshot.get(account)
        if record is None:
            raise _not_found("serviceaccounts", account.name)
        spec = _checked_spec(obj, account)
        lifetime_s, warnings = self._lifetime(int(spec.get("expirationSeconds") or DEFAULT_LIFETIME_S))
        audiences = tuple(spec.get("audiences") or self._issuers.audiences)
        subject = Account(account.cluster, account.namespace, account.name, decode(record.value)["metadata"]["uid"])
        token = self.issue(subject, audiences, lifetime_s, _bound_secret(spec, account, snapshot))
        expires = datetime.fromtimestamp(token.expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": account.name, "namespace": account.namespace},
            "spec": {**spec, "audiences": list(audiences), "expirationSeconds": lifetime_s},
            "status": {"token": token.text, "expirationTimestamp": expires},
        }
        return answer, warnings

    def _lifetime(self, requested_s: int) -> tuple[int, list[str]]:
        if not self._max_lifetime_s or requested_s <= self._max_lifetime_s:
            return requested_s, []
        text = f"requested expiration of {requested_s} seconds shortened to {self._max_lifetime_s} seconds"
        return self._max_lifetime_s, [text]


def _checked_spec(obj: Object, account: ObjectKey) -> Object:
    metadata, spec = obj.get("metadata") or {}, spec_of(obj)
    for field, own in (("name", account.name), ("namespace", account.namespace)):
        if metadata.get(field, own) not in ("", own):
            raise BadRequest(f"metadata.{field} must match the service account's if specified")
    seconds = spec.get("expirationSeconds")
    audiences = spec.get("audiences") or []
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise BadRequest("spec.audiences must be a list of strings")
    if seconds is None:
        return dict(spec)
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise BadRequest("spec.expirationSeconds must be an integer")
    problem = ""
    if seconds < MIN_LIFETIME_S:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > MAX_LIFETIME_S:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        error = FieldError("FieldValueInvalid", "spec.expirationSeconds", f"Invalid value: {seconds}: {problem}")
        raise invalid(_KIND, "", [error])
    return dict(spec)


def _bound_secret(spec: Object, account: ObjectKey, snapshot: View) -> Reference | None:
    """The Secret that a token is bound to. There are no pods and nodes here."""
    reference = spec.get("boundObjectRef")
    if not reference:
        return None
    kind, name, uid = (reference.get(field) or "" for field in ("kind", "name", "uid"))
    if kind in ("Pod", "Node"):
        raise _not_found(f"{kind.lower()}s", name)
    if kind != "Secret" or reference.get("apiVersion", "v1") != "v1":
        raise BadRequest(f"cannot bind token for serviceaccount {quoted(account.name)} to type {quoted(kind)}")
    record = snapshot.get(ObjectKey(SECRETS, account.cluster, account.namespace, name))
    if record is None:
        raise _not_found("secrets", name)
    found = decode(record.value)["metadata"]["uid"]
    if uid and uid != found:
        text = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        lead = f"Operation cannot be fulfilled on serviceaccounts {quoted(account.name)}"
        raise Conflict(f"{lead}: {text}", Details(account.name, "", "serviceaccounts"))
    return Reference(name, found)


def _not_found(resource: str, name: str) -> NotFound:
    return NotFound(f"{resource} {quoted(name)} not found", Details(name, "", resource))


def account_key(cluster: str, namespace: str, name: str) -> ObjectKey:
    """The store key of a service account."""
    return ObjectKey(ACCOUNTS, cluster, namespace, name)
