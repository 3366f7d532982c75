"""JSON Web Signatures (RFC 7515, compact form): the asymmetric algorithms of RFC 7518, each with its own kind of key.

`token_issuer` signs and `service_accounts` verifies with it; `assertion` and `oidc.key_set` check signatures with it.
Invariant: a token's header selects one of the caller's keys and nothing else. No algorithm without a signature and none
with a shared secret exists, keys and URLs in a header are ignored or refused, and critical extensions are refused.
Base64 has one spelling. The size is checked before anything is parsed. `DESIGN.md` says why this is no library.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

RS256, ES256 = "RS256", "ES256"
MAX_TOKEN_SIZE = 16 * 1024
#: Length of each of the two numbers of an ES256 signature (RFC 7518 3.4).
NUMBER_BYTES = 32
_HASHES: Mapping[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
#: What `is_signed` checks; service account tokens and assertions use RS256 and ES256 alone.
ALGORITHMS = frozenset(f"{family}{size}" for family in ("RS", "ES", "PS") for size in _HASHES)

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey
PublicKey = RSAPublicKey | EllipticCurvePublicKey
T = TypeVar("T")


class TokenError(Exception):
    """A token is malformed, has another algorithm or key, a wrong signature, or claims that cannot be used."""


class UnknownKey(TokenError):
    """The token names a key that this process does not have; another process may have it."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: str
    kid: str
    typ: str = "JWT"


_header_decoder = msgspec.json.Decoder(_Header)


def encode_base64(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64(text: str) -> bytes:
    """Decode URL-safe base64 in its one canonical spelling. Raises TokenError."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenError("not base64") from error
    if encode_base64(data) != text:
        raise TokenError("base64 in another spelling")
    return data


def decode_json(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode JSON of a client. Raises TokenError, also for text that is not UTF-8 and for nesting that is too deep."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenError("unusable JSON") from error


def algorithm(key: PrivateKey | PublicKey) -> str:
    """The one algorithm that a key of this installation is used with."""
    return RS256 if isinstance(key, RSAPrivateKey | RSAPublicKey) else ES256


def sign(claims: bytes, key: PrivateKey, key_id: str) -> str:
    """Return a compact token over claims that are JSON already."""
    header = msgspec.json.encode({"alg": algorithm(key), "kid": key_id})
    signed = f"{encode_base64(header)}.{encode_base64(claims)}"
    return f"{signed}.{encode_base64(signature(signed.encode(), key))}"


def signature(signed: bytes, key: PrivateKey) -> bytes:
    """Sign a text with the key's `algorithm`."""
    if isinstance(key, RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(NUMBER_BYTES, "big") + s.to_bytes(NUMBER_BYTES, "big")


def is_signed(signed: bytes, signature: bytes, algorithm: str, key: PublicKey) -> bool:
    """Return whether the key's holder signed a text with one of `ALGORITHMS`; False if the key is not of its kind."""
    digest = _HASHES[algorithm[2:]]
    try:
        if isinstance(key, EllipticCurvePublicKey):
            size = (key.key_size + 7) // 8
            if _CURVES.get(algorithm) != key.curve.name or len(signature) != 2 * size:
                return False
            r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
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


def unverified_claims(token: str) -> bytes:
    """Return the payload of a text in the form of a token, without checking its signature. Raises TokenError."""
    if len(token) > MAX_TOKEN_SIZE:
        raise TokenError("too long")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenError("not three parts")
    return decode_base64(parts[1])


def verify(token: str, keys: Mapping[str, PublicKey]) -> bytes:
    """Return the payload of a token that one of the keys signed. Raises TokenError. The caller checks the times."""
    claims = unverified_claims(token)
    signed, _, encoded = token.rpartition(".")
    header = decode_json(_header_decoder, decode_base64(signed.partition(".")[0]))
    key = keys.get(header.kid)
    if key is None:
        raise UnknownKey("unknown key")
    if header.alg != algorithm(key):
        raise TokenError("unknown algorithm")
    if not is_signed(signed.encode(), decode_base64(encoded), header.alg, key):
        raise TokenError("wrong signature")
    return claims
