"""Ed25519 keys: made, kept as text, and used to sign and verify.

`stream.signatures` signs and verifies events with these. `cryptography` is imported when a key is first used, as
`atoll.events` is light. Invariant: no secret key leaves an object of this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets

_KEY_SIZE = 32


def key_id(public: str) -> str:
    """The name of a public key: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(_bytes(public)).hexdigest()[:16]


class SecretKey:
    """A key that signs. `public` is its public half as text, `id` the name of that."""

    def __init__(self, secret: str) -> None:
        """Raise ValueError for a text that is no secret key of `make_secret`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(_bytes(secret))
        self.public = base64.b64encode(self._key.public_key().public_bytes_raw()).decode()
        self.id = key_id(self.public)

    def sign(self, data: bytes) -> bytes:
        """Return the signature: 64 bytes."""
        return self._key.sign(data)


def make_secret() -> str:
    """A new secret key as text."""
    return base64.b64encode(secrets.token_bytes(_KEY_SIZE)).decode()


def is_public_key(text: str) -> bool:
    """Whether a text has the form of a public key."""
    try:
        return bool(_bytes(text))
    except ValueError:
        return False


def verifies(public: str, signature: bytes, data: bytes) -> bool:
    """Whether the secret half of a public key signed this data."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

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
