"""Signatures of tokens that others signed: the asymmetric algorithms, each only with a key of its own kind.

`keys` calls `public_keys` for a key set and `verify` for a token. Invariant: the token's header chooses among the
issuer's keys and nothing else; no algorithm without a signature, and none with a shared secret, exists here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from atoll.machinery.apiserver.authentication.jwt import TokenError, decode_base64, unverified_claims

MAX_KEYS = 64
MIN_RSA_BITS = 2048
#: What a key may cost: whoever publishes it has every token verified with it, on the loop.
MAX_RSA_BITS, MAX_EXPONENT, MAX_DOCUMENT_BYTES = 8192, 1 << 32, 1 << 20
_HASHES: Mapping[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: Mapping[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
_CURVE_OF = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
ALGORITHMS = frozenset(f"{family}{size}" for family in ("RS", "ES", "PS") for size in _HASHES)

Key = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class Header(msgspec.Struct, frozen=True):
    """What a token says of its signature; `crit` names extensions that must be understood, and none is."""

    alg: str
    kid: str = ""
    crit: tuple[str, ...] = ()


class PublicKey(NamedTuple):
    """One key of a set. `algorithm` is empty where the set leaves it open."""

    id: str
    algorithm: str
    key: Key


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str = ""
    use: str = ""
    alg: str = ""
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""


class _KeySet(msgspec.Struct, frozen=True):
    keys: tuple[_Jwk, ...]


_header_decoder = msgspec.json.Decoder(Header)
_set_decoder = msgspec.json.Decoder(_KeySet)


def public_keys(document: bytes) -> tuple[PublicKey, ...]:
    """The usable keys of a JWK set. Raises TokenError for what is none, or holds too many or too much."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise TokenError(f"more than {MAX_DOCUMENT_BYTES} bytes of keys")
    try:
        found = _set_decoder.decode(document)
    except msgspec.DecodeError as error:
        raise TokenError("not a JWK set") from error
    if len(found.keys) > MAX_KEYS:
        raise TokenError(f"more than {MAX_KEYS} keys")
    keys = (_public_key(jwk) for jwk in found.keys if jwk.use in {"", "sig"})
    return tuple(key for key in keys if key is not None)


def _public_key(jwk: _Jwk) -> PublicKey | None:
    try:
        if jwk.kty == "RSA":
            numbers = rsa.RSAPublicNumbers(_number(jwk.e), _number(jwk.n))
            if not MIN_RSA_BITS <= numbers.n.bit_length() <= MAX_RSA_BITS or numbers.e > MAX_EXPONENT:
                return None
            key: Key = numbers.public_key()
        elif jwk.kty == "EC" and jwk.crv in _CURVES:
            key = ec.EllipticCurvePublicNumbers(_number(jwk.x), _number(jwk.y), _CURVES[jwk.crv]).public_key()
        else:
            return None
    except (ValueError, TokenError):
        return None
    return PublicKey(jwk.kid, jwk.alg, key)


def _number(text: str) -> int:
    return int.from_bytes(decode_base64(text.rstrip("=")))


def header_of(token: str) -> Header:
    """The header of what looks like a token. Raises TokenError, also for an algorithm that is not accepted."""
    try:
        header = _header_decoder.decode(decode_base64(token.partition(".")[0]))
    except msgspec.DecodeError as error:
        raise TokenError("unusable header") from error
    if header.alg not in ALGORITHMS or header.crit:
        raise TokenError("unknown algorithm or extension")
    return header


def verify(token: str, keys: tuple[PublicKey, ...]) -> bytes:
    """The payload of a token that one of the keys signed. Raises TokenError; claims are for the caller."""
    claims, header = unverified_claims(token), header_of(token)
    signed, _, signature = token.rpartition(".")
    for key in keys:
        if (header.kid and key.id != header.kid) or key.algorithm not in {"", header.alg}:
            continue
        if _signed(signed.encode(), decode_base64(signature), header.alg, key.key):
            return claims
    raise TokenError("wrong signature")


def _signed(signed: bytes, signature: bytes, algorithm: str, key: Key) -> bool:
    digest = _HASHES[algorithm[2:]]
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            size = (key.curve.key_size + 7) // 8
            if _CURVE_OF.get(algorithm) != key.curve.name or len(signature) != 2 * size:
                return False
            r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        elif algorithm.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
            key.verify(signature, signed, pss, digest)
        elif algorithm.startswith("RS"):
            key.verify(signature, signed, padding.PKCS1v15(), digest)
        else:
            return False
    except InvalidSignature:
        return False
    return True
