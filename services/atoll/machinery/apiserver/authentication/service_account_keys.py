"""Keys of the service account issuer: one key signs, any number verify (the current one and retired ones).

A process makes a `KeySet` of its signing key and its retired keys. `service_accounts` verifies with it, `token_issuer`
signs with it, and the JWKS document lists it. Invariant: a key id is derived from the key as in Kubernetes, so a key
has the same id in every process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from atoll.machinery.apiserver.authentication.jwt import (
    NUMBER_BYTES,
    PrivateKey,
    PublicKey,
    algorithm,
    encode_base64,
    is_signed,
    signature,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.file_watch import on_change
from atoll.machinery.process.private_files import InvalidCredentials

log = structlog.get_logger()

MIN_BITS = 2048
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class KeySet(msgspec.Struct):
    """`signing` with its id; `verifying` by id, including the public half of `signing`.

    `generation` counts replacements: what was verified in an earlier one is verified again.
    """

    signing: PrivateKey
    signing_id: str
    verifying: dict[str, PublicKey]
    generation: int = 0

    def replace(self, other: KeySet) -> None:
        """Take over the keys of another set, for everybody who has this one."""
        self.signing, self.signing_id = other.signing, other.signing_id
        self.verifying.clear()
        self.verifying.update(other.verifying)
        self.generation += 1


def load_keys(private_pem: bytes, retired_pems: Iterable[bytes] = ()) -> KeySet:
    """Load the signing key, and retired keys (public or private) whose tokens are still accepted.

    Raises ValueError for a key that is neither RSA of at least 2048 bits nor of the curve P-256, and for a damaged one.
    """
    # Whether the primes of an RSA key are primes takes tens of milliseconds to find out: a signature shows as much.
    private = load_pem_private_key(private_pem, None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(private, RSAPrivateKey | EllipticCurvePrivateKey):
        raise ValueError(_UNUSABLE)
    public = [_checked(private.public_key()), *(key for pem in retired_pems for key in public_keys(pem))]
    if not _can_sign(private):
        raise ValueError(_UNUSABLE)
    return KeySet(private, key_id(public[0]), {key_id(key): key for key in public})


def _can_sign(key: PrivateKey) -> bool:
    """Whether the public half of a key takes what it signs."""
    text = b"a text"
    return is_signed(text, signature(text, key), algorithm(key), key.public_key())


def public_keys(pem: bytes) -> Iterator[PublicKey]:
    """Yield the public keys of a PEM text; of a private key its public half. Raises ValueError, also for no key."""
    blocks = [block for block in _PEM.finditer(pem) if block[1].endswith(b"KEY")]
    if not blocks:
        raise ValueError("no PEM key")
    for block in blocks:
        if block[1].endswith(b"PRIVATE KEY"):
            yield _checked(load_pem_private_key(block[0], None).public_key())
        else:
            yield _checked(load_pem_public_key(block[0]))


_UNUSABLE = f"service account keys are RSA keys of at least {MIN_BITS} bits, or keys of the curve P-256"


def read_public_keys(files: Iterable[str]) -> dict[str, PublicKey]:
    """Return the keys of PEM files by their ids. Raises InvalidCredentials, OSError."""
    found: dict[str, PublicKey] = {}
    for file in files:
        try:
            found.update((key_id(key), key) for key in public_keys(Path(file).read_bytes()))
        except (ValueError, TypeError) as error:
            raise InvalidCredentials(f"{file} holds no RSA or P-256 key of service account tokens") from error
    return found


async def reload_public_keys(files: Sequence[str], keys: dict[str, PublicKey]) -> None:
    """Read `keys` again from their files when these change, until cancelled."""

    def read() -> None:
        try:
            found = read_public_keys(files)
        except (InvalidCredentials, OSError) as error:
            log.error("service account keys not reloaded", reason=str(error))
            return
        if found != keys:
            keys.clear()
            keys.update(found)
            log.info("service account keys reloaded", keys=len(keys))

    await on_change(files, read)


def _checked(key: object) -> PublicKey:
    """Raise ValueError unless the key can be used. Other curves need other algorithms than RS256 and ES256."""
    if isinstance(key, RSAPublicKey) and key.key_size >= MIN_BITS:
        return key
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key
    raise ValueError(_UNUSABLE)


def key_id(key: PublicKey) -> str:
    """Base64 of the SHA-256 of the key's DER: the key id that Kubernetes uses for service account keys."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encode_base64(hashlib.sha256(der).digest())


def jwks(keys: KeySet) -> Object:
    """The JSON Web Key Set document, served as application/jwk-set+json at /openid/v1/jwks."""
    return {"keys": [_jwk(name, key) for name, key in keys.verifying.items()]}


def _jwk(name: str, key: PublicKey) -> Object:
    common = {"use": "sig", "kid": name, "alg": algorithm(key)}
    if isinstance(key, RSAPublicKey):
        numbers = key.public_numbers()
        return {**common, "kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    point = key.public_numbers()
    # Coordinates are padded to the length of the curve (RFC 7518 6.2.1.2).
    x, y = (encode_base64(value.to_bytes(NUMBER_BYTES, "big")) for value in (point.x, point.y))
    return {**common, "kty": "EC", "crv": "P-256", "x": x, "y": y}


def _number(value: int) -> str:
    return encode_base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def openid_configuration(issuer: str, jwks_uri: str, keys: KeySet) -> Object:
    """The discovery document of the issuer, served at /.well-known/openid-configuration."""
    return {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({algorithm(key) for key in keys.verifying.values()}),
    }
