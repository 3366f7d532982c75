"""JSON Web Key sets of issuers (RFC 7517), and the tokens that their keys signed.

`issuer_keys` calls `public_keys` for a document and `verify` for a token. Invariant: the size of a document, the number
of its keys and the cost of each key are bounded, because every token of the issuer is verified with them on the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.jwt import TokenError, decode_base64, decode_json

MAX_KEYS = 64
MIN_RSA_BITS = 2048
MAX_RSA_BITS, MAX_EXPONENT, MAX_DOCUMENT_BYTES = 8192, 1 << 32, 1 << 20
_CURVES: Mapping[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


class Header(msgspec.Struct, frozen=True):
    """A token's header. `crit` names extensions that the verifier must understand; none is supported."""

    alg: str
    kid: str = ""
    crit: tuple[str, ...] = ()


class IssuerKey(NamedTuple):
    """One key of a set. `algorithm` is empty if the set does not restrict it."""

    id: str
    algorithm: str
    key: jwt.PublicKey


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


def public_keys(document: bytes) -> tuple[IssuerKey, ...]:
    """Return the usable signing keys of a JWK set. Raises TokenError if it is no JWK set, or exceeds a bound."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise TokenError(f"more than {MAX_DOCUMENT_BYTES} bytes of keys")
    found = decode_json(_set_decoder, document)
    if len(found.keys) > MAX_KEYS:
        raise TokenError(f"more than {MAX_KEYS} keys")
    keys = (_public_key(jwk) for jwk in found.keys if jwk.use in {"", "sig"})
    return tuple(key for key in keys if key is not None)


def _public_key(jwk: _Jwk) -> IssuerKey | None:
    try:
        if jwk.kty == "RSA":
            numbers = rsa.RSAPublicNumbers(_number(jwk.e), _number(jwk.n))
            if not MIN_RSA_BITS <= numbers.n.bit_length() <= MAX_RSA_BITS or numbers.e > MAX_EXPONENT:
                return None
            key: jwt.PublicKey = numbers.public_key()
        elif jwk.kty == "EC" and jwk.crv in _CURVES:
            key = ec.EllipticCurvePublicNumbers(_number(jwk.x), _number(jwk.y), _CURVES[jwk.crv]).public_key()
        else:
            return None
    except (ValueError, TokenError):
        return None
    return IssuerKey(jwk.kid, jwk.alg, key)


def _number(text: str) -> int:
    return int.from_bytes(decode_base64(text.rstrip("=")), "big")


def header_of(token: str) -> Header:
    """Return a token's unverified header. Raises TokenError, also for an algorithm that is not accepted."""
    header = decode_json(_header_decoder, decode_base64(token.partition(".")[0]))
    if header.alg not in jwt.ALGORITHMS or header.crit:
        raise TokenError("unknown algorithm or extension")
    return header


def verify(token: str, keys: tuple[IssuerKey, ...]) -> bytes:
    """Return the payload of a token that one of the keys signed. Raises TokenError. The caller checks the claims."""
    claims, header = jwt.unverified_claims(token), header_of(token)
    signed, _, encoded = token.rpartition(".")
    for key in keys:
        if (header.kid and key.id != header.kid) or key.algorithm not in {"", header.alg}:
            continue
        if jwt.is_signed(signed.encode(), decode_base64(encoded), header.alg, key.key):
            return claims
    raise TokenError("wrong signature")
