"""Signed assertions: the front proxy forwards the identity of an authenticated user to a shard.

The front proxy signs one per user and cluster (`AssertionSigner.assertion`), the authenticator of a shard verifies it
(`AssertionVerifier.user`). An assertion is a compact JWS. The proxy signs it with the key of its client certificate,
and the shard verifies it with the key of the certificate of the same connection: no key is configured or named, and a
copied assertion is useless without that key. It is valid in one logical cluster, for 30 seconds. Invariants: an
assertion has one spelling (one header per algorithm, one encoding of the claims); both sides cache, bounded, so neither
computes a signature twice while an assertion is in use.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.jwt import PrivateKey, PublicKey, TokenError
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.user import User

#: The header that carries one, lower case.
HEADER = "atoll-assertion"
#: Lifetime of an assertion, and the clock skew between two machines.
LIFE_S, SKEW_S = 30, 10
MAX_SIZE = 32 * 1024
#: Bytes of assertions that either side caches.
CACHE_BYTES = 8 << 20
MIN_RSA_BITS = 2048
_TYPE = "atoll-assertion"


class AssertionClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signed claims. Times are Unix seconds. `cluster` is a logical cluster, "" for a request to none."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: dict[str, tuple[str, ...]]
    cluster: str
    iat: int
    exp: int


_decoder = msgspec.json.Decoder(AssertionClaims)
#: The first part of an assertion, by algorithm. It is constant.
_HEADERS = {
    algorithm: jwt.encode_base64(msgspec.json.encode({"alg": algorithm, "typ": _TYPE}))
    for algorithm in (jwt.ES256, jwt.RS256)
}


class AssertionTooLarge(Exception):
    """The groups and extras of a user do not fit into a header."""


def assertion_key(key: object) -> PublicKey | None:
    """A certificate's key if it can sign assertions: P-256 (as our own CAs make) or RSA; else None."""
    if isinstance(key, EllipticCurvePublicKey):
        return key if isinstance(key.curve, SECP256R1) else None
    return key if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS else None


def signing_key(pem: bytes) -> PrivateKey:
    """The private key of a proxy's client certificate. Raises ValueError if it cannot sign assertions."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError as error:
        raise ValueError("the key is encrypted with a passphrase") from error
    if not isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey) or assertion_key(key.public_key()) is None:
        raise ValueError(f"the key is neither one of the curve P-256 nor RSA of at least {MIN_RSA_BITS} bits")
    return key


def sign(claims: AssertionClaims, key: PrivateKey) -> str:
    """Return an assertion. Raises AssertionTooLarge."""
    signed = f"{_HEADERS[jwt.algorithm(key)]}.{jwt.encode_base64(msgspec.json.encode(claims))}"
    made = f"{signed}.{jwt.encode_base64(jwt.signature(signed.encode(), key))}"
    if len(made) > MAX_SIZE:
        raise AssertionTooLarge(f"an identity of more than {MAX_SIZE} bytes")
    return made


def verify(text: str, key: PublicKey) -> AssertionClaims:
    """The claims of an assertion that the key's holder signed. Raises TokenError. `check` checks time and cluster."""
    if len(text) > MAX_SIZE or not text.isascii():
        raise TokenError("no assertion")
    signed, _, signature = text.rpartition(".")
    header, _, payload = signed.partition(".")
    algorithm = jwt.algorithm(key)
    if header != _HEADERS[algorithm]:
        raise TokenError("unknown type or algorithm")
    if not jwt.is_signed(signed.encode(), jwt.decode_base64(signature), algorithm, key):
        raise TokenError("wrong signature")
    encoded = jwt.decode_base64(payload)
    claims = jwt.decode_json(_decoder, encoded)
    # Another JSON reader might take the other one of two equal names.
    if msgspec.json.encode(claims) != encoded or not claims.user:
        raise TokenError("claims in another spelling")
    return claims


def check(claims: AssertionClaims, cluster: str, now_s: float) -> None:
    """Raise TokenError unless an assertion is for this cluster and this time."""
    if claims.cluster != cluster:
        raise TokenError("made for another cluster")
    if not 0 < claims.exp - claims.iat <= LIFE_S:
        raise TokenError("valid for too long")
    if not claims.iat - SKEW_S <= now_s < claims.exp + SKEW_S:
        raise TokenError("expired or not yet valid: do the clocks differ?")


class AssertionSigner:
    """Signs assertions with one proxy's key, and returns each for half of its lifetime. One per event loop."""

    def __init__(self, key: PrivateKey, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock
        self._signed: LruCache[Hashable, SignedAssertion] = LruCache(CACHE_BYTES, _signed_bytes)

    def assertion(self, user: User, cluster: str) -> str:
        """An assertion of the user for requests to a cluster ("" for none). Raises AssertionTooLarge."""
        return self.signed(user, cluster).text

    def is_fresh(self, signed: SignedAssertion) -> bool:
        """Whether an assertion may still be sent."""
        # The wall clock, as on the shards: a clock that is set takes effect at once, in either direction.
        return signed.at_s <= self._clock() < signed.at_s + LIFE_S / 2

    def signed(self, user: User, cluster: str) -> SignedAssertion:
        """The same with the time of its signature."""
        key, now_s = (_key(user), cluster), self._clock()
        cached = self._signed.get(key)
        if cached is not None and self.is_fresh(cached):
            return cached
        at_s = int(now_s)
        extra = {name: tuple(values) for name, values in user.extra.items()}
        text = sign(AssertionClaims(user.name, user.groups, user.uid, extra, cluster, at_s, at_s + LIFE_S), self._key)
        signed = SignedAssertion(at_s, text)
        self._signed.put(key, signed)
        return signed


class AssertionVerifier:
    """Verifies assertions of any number of proxies. One per event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._verified: LruCache[tuple[bytes, bytes], VerifiedAssertion] = LruCache(CACHE_BYTES, _verified_bytes)

    def user(self, values: Sequence[str], key: PublicKey, certificate: bytes, cluster: str) -> User:
        """The user that the holder of a certificate asserts in a request to a cluster. Raises TokenError.

        `values` are the values of the header, `key` is the certificate's key and `certificate` its digest. No group is
        added.
        """
        verified = self.verified(values, key, certificate)
        self.check(verified, cluster)
        return verified.user

    def check(self, verified: VerifiedAssertion, cluster: str) -> None:
        """Raise TokenError unless an assertion is for this cluster and the present time."""
        check(verified.claims, cluster, self._clock())

    def verified(self, values: Sequence[str], key: PublicKey, certificate: bytes) -> VerifiedAssertion:
        """The assertion, for whichever cluster and time. Raises TokenError."""
        if len(values) != 1 or len(values[0]) > MAX_SIZE or not values[0].isascii():
            raise TokenError("not one assertion")
        digest = hashlib.sha256(values[0].encode()).digest()
        verified = self._verified.get((certificate, digest))
        if verified is None:
            claims = verify(values[0], key)
            user = User(claims.user, claims.groups, claims.uid, claims.extra)
            verified = VerifiedAssertion(claims, user, len(values[0]))
            self._verified.put((certificate, digest), verified)
        return verified


class SignedAssertion(msgspec.Struct, frozen=True):
    """An assertion and the time of its signature (Unix seconds)."""

    at_s: int
    text: str


class VerifiedAssertion(msgspec.Struct, frozen=True):
    """An assertion whose signature was verified."""

    claims: AssertionClaims
    user: User
    size_bytes: int


#: The cost of a cache entry besides its text.
_ENTRY_BYTES = 512


def _signed_bytes(entry: SignedAssertion) -> int:
    return _ENTRY_BYTES + len(entry.text)


def _verified_bytes(entry: VerifiedAssertion) -> int:
    return _ENTRY_BYTES + 2 * entry.size_bytes


def _key(user: User) -> Hashable:
    extra: Mapping[str, tuple[str, ...]] = user.extra
    return user.name, user.groups, user.uid, tuple((name, tuple(values)) for name, values in extra.items())
