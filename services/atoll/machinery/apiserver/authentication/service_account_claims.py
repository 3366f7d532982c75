"""Claims of service account tokens: Kubernetes' claims with kcp's clusterName, in the bound and the legacy form.

`token_issuer` writes them, `service_accounts` reads them after verifying the signature; `routing` reads the cluster
before that. Invariant: claims that are not exactly of one of the two forms are refused.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.authentication.jwt import TokenError, decode_json, unverified_claims
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.user import SERVICE_ACCOUNT_PREFIX

#: Issuer of tokens in Secrets, independent of the configured issuers.
LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY = "kubernetes.io/serviceaccount/"


class Reference(msgspec.Struct, frozen=True):
    """An object that a token names."""

    name: str
    uid: str = ""


class KubernetesClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claim `kubernetes.io`."""

    cluster_name: str = msgspec.field(name="clusterName")
    namespace: str
    serviceaccount: Reference
    secret: Reference | None = None
    pod: Reference | None = None
    node: Reference | None = None


class BoundClaims(msgspec.Struct, frozen=True):
    """Claims of a token from a TokenRequest. Times are Unix seconds."""

    iss: str
    sub: str
    aud: tuple[str, ...]
    iat: int
    nbf: int
    exp: int
    jti: str
    kubernetes: KubernetesClaim = msgspec.field(name="kubernetes.io")


class LegacyClaims(msgspec.Struct, frozen=True):
    """Claims of the token in a Secret of type kubernetes.io/service-account-token; it never expires."""

    iss: str
    sub: str
    namespace: str = msgspec.field(name=_LEGACY + "namespace")
    secret: str = msgspec.field(name=_LEGACY + "secret.name")
    account: str = msgspec.field(name=_LEGACY + "service-account.name")
    uid: str = msgspec.field(name=_LEGACY + "service-account.uid")
    cluster: str = msgspec.field(name=_LEGACY + "clusterName")


class Subject(msgspec.Struct, frozen=True):
    """The verified claims of either form. `secret` is None if the token is bound to the account alone.

    A `legacy` token has no times and no audience; it must equal the token that its Secret stores.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    secret: Reference | None = None
    audiences: tuple[str, ...] = ()
    not_before: int = 0
    expires: int = 0
    token_id: str = ""
    legacy: bool = False

    @property
    def user_name(self) -> str:
        return f"{SERVICE_ACCOUNT_PREFIX}{self.namespace}:{self.name}"


class _Issuer(msgspec.Struct, frozen=True):
    iss: str = ""


class _Expiry(msgspec.Struct, frozen=True):
    exp: int = 0


_expiry_decoder = msgspec.json.Decoder(_Expiry)
_issuer_decoder = msgspec.json.Decoder(_Issuer)
_bound_decoder = msgspec.json.Decoder(BoundClaims)
_legacy_decoder = msgspec.json.Decoder(LegacyClaims)


def unverified_issuer(token: str) -> str:
    """The issuer that a token names, "" for a text that is no token or names none. The signature is not checked."""
    try:
        return _issuer(unverified_claims(token))
    except TokenError:
        return ""


def unverified_expiry_s(token: str) -> float:
    """When a token says that it ends, in Unix seconds; 0 for never. The signature is not checked."""
    try:
        return float(decode_json(_expiry_decoder, unverified_claims(token)).exp)
    except TokenError:
        return 0.0


def _issuer(claims: bytes) -> str:
    return decode_json(_issuer_decoder, claims).iss


def read(claims: bytes) -> Subject:
    """The subject of verified claims. Raises TokenError for claims of neither form, or that contradict each other."""
    subject, sub = _legacy(claims) if _issuer(claims) == LEGACY_ISSUER else _bound(claims)
    if sub != subject.user_name or not is_cluster_name(subject.cluster) or not subject.uid:
        raise TokenError("claims contradict themselves")
    return subject


def _bound(claims: bytes) -> tuple[Subject, str]:
    found = decode_json(_bound_decoder, claims)
    bound = found.kubernetes
    if bound.pod is not None or bound.node is not None:
        raise TokenError("bound to an object that does not exist here")
    account = bound.serviceaccount
    subject = Subject(
        bound.cluster_name,
        bound.namespace,
        account.name,
        account.uid,
        bound.secret,
        found.aud,
        found.nbf,
        found.exp,
        found.jti,
    )
    return subject, found.sub


def _legacy(claims: bytes) -> tuple[Subject, str]:
    found = decode_json(_legacy_decoder, claims)
    secret = Reference(found.secret)
    return Subject(found.cluster, found.namespace, found.account, found.uid, secret, legacy=True), found.sub
