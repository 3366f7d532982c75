"""JWTs of NATS, and the boxes in which they travel between a server and whoever answers for it.

`auth_callout` uses both. NATS signs with Ed25519 under an algorithm name of its own, writes public keys as text with
the role as first letter, and encrypts with NaCl's box. Invariant: `read` returns only what the key signed that the
claims name as issuer.
"""

from __future__ import annotations

import base64
import binascii
import time

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.process import ed25519

#: The role of a key is in its first five bits, and so in the first letter of its text.
ACCOUNT_KEY, CURVE_KEY = 0, 23 << 3
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_BOX_VERSION, _NONCE_SIZE = b"xkv1", 24


class InvalidClaims(Exception):
    """Not a JWT that its issuer signed, or a box for somebody else. The text quotes nothing of it."""


def key_text(role: int, public: bytes) -> str:
    """The text of a public key of 32 bytes."""
    data = bytes((role,)) + public
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")


def key_bytes(text: str) -> bytes:
    """The public key of a text of any role. Raises InvalidClaims."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as error:
        raise InvalidClaims("a key is not in base32") from error
    if len(data) != 35 or binascii.crc_hqx(data[:-2], 0) != int.from_bytes(data[-2:], "little"):
        raise InvalidClaims("a key is damaged")
    return data[1:33]


class Issuer:
    """An account key that signs JWTs."""

    def __init__(self, secret: str) -> None:
        """Raises ValueError for a text that is no secret of `ed25519.make_secret`."""
        self._key = ed25519.SecretKey(secret)
        self.text = key_text(ACCOUNT_KEY, base64.b64decode(self._key.public))

    def sign(self, subject: str, audience: str, nats: Object, expires_at_s: int = 0, name: str = "") -> str:
        """The JWT of these claims; `expires_at_s` 0: it does not expire. Servers tell gateways a user's `name`."""
        claims: Object = {"iss": self.text, "sub": subject, "aud": audience, "iat": int(time.time()), "nats": nats}
        if expires_at_s:
            claims["exp"] = expires_at_s
        if name:
            claims["name"] = name
        claims["jti"] = _text(encode_json(claims))[:32]
        signed = f"{_text(encode_json(_HEADER))}.{_text(encode_json(claims))}"
        return f"{signed}.{_text(self._key.sign(signed.encode()))}"


def read(token: str) -> Object:
    """The claims of a JWT. The signature is checked with the key that the claims themselves name: who that is, the
    caller must judge. Raises InvalidClaims."""
    signed, _, signature = token.rpartition(".")
    try:
        header, claims = (msgspec.json.decode(_bytes(part), type=dict) for part in signed.split("."))
        value = _bytes(signature)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidClaims("not a JWT") from error
    public = base64.b64encode(key_bytes(str(claims.get("iss", "")))).decode()
    if header != _HEADER or not ed25519.verifies(public, value, signed.encode()):
        raise InvalidClaims("not signed by its issuer")
    return claims


class Box:
    """One end of encrypted messages: a curve key.

    PyNaCl is imported with the first message, as a shard without subscribers has none: 1 MB.
    """

    def __init__(self, secret: str) -> None:
        """Raises ValueError for a text that is not 32 bytes in base64."""
        self._secret = base64.b64decode(secret, validate=True)
        self.text = key_text(
            CURVE_KEY, X25519PrivateKey.from_private_bytes(self._secret).public_key().public_bytes_raw()
        )

    def seal(self, data: bytes, receiver: str) -> bytes:
        """Encrypt for the holder of a curve key. Raises InvalidClaims for a text that is none."""
        from nacl.public import Box as NaclBox
        from nacl.public import PrivateKey, PublicKey

        return _BOX_VERSION + bytes(NaclBox(PrivateKey(self._secret), PublicKey(key_bytes(receiver))).encrypt(data))

    def open(self, data: bytes, sender: str) -> bytes:
        """Decrypt what the holder of a curve key sent. Raises InvalidClaims."""
        from nacl.exceptions import CryptoError
        from nacl.public import Box as NaclBox
        from nacl.public import PrivateKey, PublicKey

        if not data.startswith(_BOX_VERSION) or len(data) < len(_BOX_VERSION) + _NONCE_SIZE:
            raise InvalidClaims("not encrypted")
        try:
            box = NaclBox(PrivateKey(self._secret), PublicKey(key_bytes(sender)))
            return bytes(box.decrypt(data[len(_BOX_VERSION) :]))
        except CryptoError as error:
            raise InvalidClaims("encrypted for somebody else") from error


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
