"""Ed25519 keys: made, kept as text, and used to sign and verify.

`stream.signatures` signs and verifies events with these. Invariant: a secret key leaves as text only by `export`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_KEY_SIZE = 32


def key_id(public: str) -> str:
    """The name of a public key: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(_bytes(public)).hexdigest()[:16]


class SecretKey:
    """A key that signs. `public` is its public half as text, `id` the name of that."""

    def __init__(self, secret: str) -> None:
        """Raise ValueError for a text that `export` does not give."""
        self._key = Ed25519PrivateKey.from_private_bytes(_bytes(secret))
        self.public = base64.b64encode(self._key.public_key().public_bytes_raw()).decode()
        self.id = key_id(self.public)

    def sign(self, data: bytes) -> bytes:
        """Return the signature: 64 bytes."""
        return self._key.sign(data)

    def export(self) -> str:
        """Return the secret key in base64."""
        return base64.b64encode(self._key.private_bytes_raw()).decode()


def make_secret() -> str:
    """A new secret key as text."""
    return base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode()


def is_public_key(text: str) -> bool:
    """Whether a text is a public key in base64."""
    try:
        Ed25519PublicKey.from_public_bytes(_bytes(text))
    except ValueError:
        return False
    return True


def verifies(public: str, signature: bytes, data: bytes) -> bool:
    """Whether the secret half of a public key signed this data."""
    try:
        Ed25519PublicKey.from_public_bytes(_bytes(public)).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _bytes(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    if len(data) != _KEY_SIZE:
        raise ValueError(f"not a key: {len(data)} bytes instead of {_KEY_SIZE}")
    return data
