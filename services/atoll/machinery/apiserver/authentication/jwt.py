"""JSON Web Tokens, as little of them as service accounts need: RS256 and ES256, keys by id, nothing negotiable.

`service_accounts` verifies with it, `token_issuer` signs with it, `assertion` takes its signatures. A token's header
says which of our keys signed it and nothing else: an algorithm that is not this key's, an embedded key, a critical
extension or an unknown key id is refused before a signature is looked at. Base64 has one spelling here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

RS256, ES256 = "RS256", "ES256"
MAX_TOKEN_SIZE = 16 * 1024
#: An ES256 signature is two numbers of the curve P-256, each in so many bytes (RFC 7518 3.4).
NUMBER_BYTES = 32

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey
PublicKey = RSAPublicKey | EllipticCurvePublicKey


class TokenError(Exception):
    """Not a token of ours: malformed, of another algorithm or key, or with a wrong signature."""


class UnknownKey(TokenError):
    """It names a key that is not known here: somebody else may know it."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: str
    kid: str
    typ: str = "JWT"


_header_decoder = msgspec.json.Decoder(_Header)


def encode_base64(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64(text: str) -> bytes:
    """The bytes of a URL-safe base64 text in its one canonical spelling. Raises TokenError."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenError("not base64") from error
    if encode_base64(data) != text:
        raise TokenError("base64 in another spelling")
    return data


def algorithm(key: PrivateKey | PublicKey) -> str:
    """The one algorithm a key is used with."""
    return RS256 if isinstance(key, RSAPrivateKey | RSAPublicKey) else ES256


def sign(claims: bytes, key: PrivateKey, key_id: str) -> str:
    """A compact token over claims that are JSON already."""
    header = msgspec.json.encode({"alg": algorithm(key), "kid": key_id})
    signed = f"{encode_base64(header)}.{encode_base64(claims)}"
    return f"{signed}.{encode_base64(signature(signed.encode(), key))}"


def signature(signed: bytes, key: PrivateKey) -> bytes:
    """The signature of RFC 7518 over a text, by the key's own algorithm."""
    if isinstance(key, RSAPrivateKey):
        return key.sign(signed, PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(signed, ECDSA(hashes.SHA256())))
    return r.to_bytes(NUMBER_BYTES, "big") + s.to_bytes(NUMBER_BYTES, "big")


def unverified_claims(token: str) -> bytes:
    """The payload of what looks like a token; nobody vouches for it. Raises TokenError."""
    if len(token) > MAX_TOKEN_SIZE:
        raise TokenError("too long")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenError("not three parts")
    return decode_base64(parts[1])


def verify(token: str, keys: Mapping[str, PublicKey]) -> bytes:
    """The payload of a token that one of the keys signed. Raises TokenError; times are for the caller."""
    claims = unverified_claims(token)
    signed, _, given = token.rpartition(".")
    try:
        header = _header_decoder.decode(decode_base64(signed.partition(".")[0]))
    except msgspec.DecodeError as error:
        raise TokenError("unusable header") from error
    key = keys.get(header.kid)
    if key is None:
        raise UnknownKey("unknown key")
    if header.alg != algorithm(key):
        raise TokenError("unknown algorithm")
    try:
        check_signature(decode_base64(given), signed.encode(), key)
    except InvalidSignature as error:
        raise TokenError("wrong signature") from error
    return claims


def check_signature(signature: bytes, signed: bytes, key: PublicKey) -> None:
    """Raises InvalidSignature unless the key's holder signed the text, by the key's own algorithm."""
    if isinstance(key, RSAPublicKey):
        key.verify(signature, signed, PKCS1v15(), hashes.SHA256())
        return
    if len(signature) != 2 * NUMBER_BYTES:
        raise InvalidSignature
    r, s = (int.from_bytes(part, "big") for part in (signature[:NUMBER_BYTES], signature[NUMBER_BYTES:]))
    key.verify(encode_dss_signature(r, s), signed, ECDSA(hashes.SHA256()))
