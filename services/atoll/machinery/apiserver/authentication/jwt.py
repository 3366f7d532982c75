"""JSON Web Tokens, as little of them as service accounts need: RS256, keys by id, nothing negotiable.

`service_accounts` verifies with it, `issuing` signs with it. The header of a token says which of our keys
signed it and nothing else: any other algorithm, embedded key, critical extension or unknown key id is refused
before a signature is looked at. Base64 has one spelling here, so a token has exactly one form.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

ALGORITHM = "RS256"
MAX_TOKEN_SIZE = 16 * 1024


class TokenError(Exception):
    """Not a token of ours: malformed, of another algorithm or key, or with a wrong signature."""


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


def sign(claims: bytes, key: RSAPrivateKey, key_id: str) -> str:
    """A compact token over claims that are JSON already."""
    header = msgspec.json.encode({"alg": ALGORITHM, "kid": key_id})
    signed = f"{encode_base64(header)}.{encode_base64(claims)}"
    signature = key.sign(signed.encode(), PKCS1v15(), hashes.SHA256())
    return f"{signed}.{encode_base64(signature)}"


def unverified_claims(token: str) -> bytes:
    """The payload of what looks like a token; nobody vouches for it. Raises TokenError."""
    if len(token) > MAX_TOKEN_SIZE:
        raise TokenError("too long")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenError("not three parts")
    return decode_base64(parts[1])


def verify(token: str, keys: Mapping[str, RSAPublicKey]) -> bytes:
    """The payload of a token that one of the keys signed. Raises TokenError; times are for the caller."""
    claims = unverified_claims(token)
    signed, _, signature = token.rpartition(".")
    try:
        header = _header_decoder.decode(decode_base64(signed.partition(".")[0]))
    except msgspec.DecodeError as error:
        raise TokenError("unusable header") from error
    key = keys.get(header.kid)
    if header.alg != ALGORITHM or key is None:
        raise TokenError("unknown algorithm or key")
    try:
        key.verify(decode_base64(signature), signed.encode(), PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise TokenError("wrong signature") from error
    return claims
