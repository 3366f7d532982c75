"""Signed assertions: how a front proxy tells a shard who asks, so that no header alone ever says it.

The front proxy makes one for each request that it authenticated (`AssertionSigner.about`), the authenticator of a shard
reads it (`AssertionVerifier.user`). It is a compact JWS signed with the key of the client certificate that the proxy
connects with, and verified with the key of the certificate at the other end of the very connection: there is no key to
be configured, named or confused, and a copied assertion is worth nothing to anybody without that key. It counts in one
logical cluster and for half a minute. Invariants: what is read is what was written, byte for byte (one header for each
sort of key, one encoding of the claims); both sides keep a bounded cache, so that neither pays for a signature twice
while an assertion is used.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.jwt import PrivateKey, PublicKey, TokenError
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.user import User

#: The header that carries one, lower case.
HEADER = "atoll-assertion"
#: How long one counts, and by how much the clocks of two machines may differ.
LIFE_S, SKEW_S = 30, 10
MAX_SIZE = 32 * 1024
#: Bytes of assertions that either side keeps.
CACHE_BYTES = 8 << 20
MIN_RSA_BITS = 2048
_TYPE = "atoll-assertion"


class AssertionClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is signed. Times are Unix seconds; `cluster` is the name of a logical cluster, "" for a request to none."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: dict[str, tuple[str, ...]]
    cluster: str
    iat: int
    exp: int


_decoder = msgspec.json.Decoder(AssertionClaims)
#: The first part of an assertion, by algorithm: nothing in it is anybody's to choose.
_HEADERS = {
    algorithm: jwt.encode_base64(msgspec.json.encode({"alg": algorithm, "typ": _TYPE}))
    for algorithm in (jwt.ES256, jwt.RS256)
}


class AssertionTooLarge(Exception):
    """An identity of more groups and extras than fit into a header."""


def usable(key: object) -> PublicKey | None:
    """A certificate's key if assertions can be signed with it: P-256 (as our own authorities make) or RSA."""
    if isinstance(key, EllipticCurvePublicKey):
        return key if isinstance(key.curve, SECP256R1) else None
    return key if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS else None


def signing_key(pem: bytes) -> PrivateKey:
    """The private key of a proxy's client certificate. Raises ValueError for one that cannot sign assertions."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError as error:
        raise ValueError("the key is behind a passphrase") from error
    if not isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey) or usable(key.public_key()) is None:
        raise ValueError(f"the key is neither one of the curve P-256 nor RSA of at least {MIN_RSA_BITS} bits")
    return key


def make(claims: AssertionClaims, key: PrivateKey) -> str:
    """An assertion. Raises AssertionTooLarge."""
    signed = f"{_HEADERS[jwt.algorithm(key)]}.{jwt.encode_base64(msgspec.json.encode(claims))}"
    made = f"{signed}.{jwt.encode_base64(jwt.signature(signed.encode(), key))}"
    if len(made) > MAX_SIZE:
        raise AssertionTooLarge(f"an identity of more than {MAX_SIZE} bytes")
    return made


def verify(text: str, key: PublicKey) -> AssertionClaims:
    """The claims of what the holder of a key signed. Raises TokenError; times and cluster are for `check`."""
    if len(text) > MAX_SIZE or not text.isascii():
        raise TokenError("no assertion")
    signed, _, signature = text.rpartition(".")
    header, _, payload = signed.partition(".")
    if header != _HEADERS[jwt.algorithm(key)]:
        raise TokenError("unknown type or algorithm")
    try:
        jwt.check_signature(jwt.decode_base64(signature), signed.encode(), key)
        found = jwt.decode_base64(payload)
        claims = _decoder.decode(found)
    except (InvalidSignature, msgspec.DecodeError, UnicodeError) as error:
        raise TokenError("wrong signature or claims") from error
    # A claim said twice, or in a spelling of its own, would be read differently by somebody else.
    if msgspec.json.encode(claims) != found or not claims.user:
        raise TokenError("claims in another spelling")
    return claims


def check(claims: AssertionClaims, cluster: str, now_s: float) -> None:
    """Raises TokenError for an assertion of another cluster or another time."""
    if claims.cluster != cluster:
        raise TokenError("made for another cluster")
    if not 0 < claims.exp - claims.iat <= LIFE_S:
        raise TokenError("made for too long")
    if not claims.iat - SKEW_S <= now_s < claims.exp + SKEW_S:
        raise TokenError("expired, or not yet good: do the clocks differ?")


class AssertionSigner:
    """Makes assertions with the key of one proxy, and hands each out for half of its life. One an event loop."""

    def __init__(self, key: PrivateKey, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock
        self._made: LruCache[Hashable, tuple[float, str]] = LruCache(CACHE_BYTES, _weight)

    def about(self, user: User, cluster: str) -> str:
        """An assertion that the user asks something of a cluster ("" for none). Raises AssertionTooLarge."""
        key, now_s = (_key(user), cluster), self._clock()
        known = self._made.get(key)
        # By the clock that the shards go by: one that was set is seen at once, in either direction.
        if known is not None and known[0] <= now_s < known[0] + LIFE_S / 2:
            return known[1]
        at_s = int(now_s)
        extra = {name: tuple(values) for name, values in user.extra.items()}
        made = make(AssertionClaims(user.name, user.groups, user.uid, extra, cluster, at_s, at_s + LIFE_S), self._key)
        self._made.put(key, (at_s, made))
        return made


class AssertionVerifier:
    """Reads assertions of any number of proxies. One an event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._read: LruCache[tuple[bytes, bytes], _Read] = LruCache(CACHE_BYTES, _weight_read)

    def user(self, values: Sequence[str], key: PublicKey, certificate: bytes, cluster: str) -> User:
        """The user that the holder of a certificate (`key`, and its digest) speaks for in a request to a cluster.

        Groups are those asserted, none added. Raises TokenError.
        """
        if len(values) != 1 or len(values[0]) > MAX_SIZE or not values[0].isascii():
            raise TokenError("not one assertion")
        digest = hashlib.sha256(values[0].encode()).digest()
        known = self._read.get((certificate, digest))
        if known is None:
            claims = verify(values[0], key)
            known = _Read(claims, User(claims.user, claims.groups, claims.uid, claims.extra), len(values[0]))
            self._read.put((certificate, digest), known)
        check(known.claims, cluster, self._clock())
        return known.user


class _Read(msgspec.Struct, frozen=True):
    """An assertion whose signature held."""

    claims: AssertionClaims
    user: User
    size_bytes: int


#: What an entry costs beside its text.
_ENTRY_BYTES = 512


def _weight(entry: tuple[float, str]) -> int:
    return _ENTRY_BYTES + len(entry[1])


def _weight_read(entry: _Read) -> int:
    return _ENTRY_BYTES + 2 * entry.size_bytes


def _key(user: User) -> Hashable:
    extra: Mapping[str, tuple[str, ...]] = user.extra
    return user.name, user.groups, user.uid, tuple((name, tuple(values)) for name, values in extra.items())
