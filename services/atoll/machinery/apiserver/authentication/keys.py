"""Keys of the service account issuer: one signs, any number verify (the present one and retired ones).

A process makes a `KeySet` of `sa.key` and hands it to token verification, issuing and the JWKS document. Key
ids are derived from the key as Kubernetes derives them, so a key has the same id in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from atoll.machinery.apiserver.authentication.jwt import ALGORITHM, encode_base64
from atoll.machinery.meta.objects import Object

MIN_BITS = 2048


class KeySet(msgspec.Struct, frozen=True):
    """`signing` and its id; `verifying` by id, the signing key's public half among them."""

    signing: RSAPrivateKey
    signing_id: str
    verifying: Mapping[str, RSAPublicKey]


def load_keys(private_pem: bytes, retired_pems: Iterable[bytes] = ()) -> KeySet:
    """Keys of a PEM private key and of PEM public keys whose tokens still count.

    Raises ValueError for what is no RSA key of at least 2048 bits.
    """
    private = load_pem_private_key(private_pem, None)
    if not isinstance(private, RSAPrivateKey):
        raise ValueError("the service account key is not an RSA key")
    public = [_checked(private.public_key()), *(_checked(load_pem_public_key(pem)) for pem in retired_pems)]
    return KeySet(private, key_id(public[0]), {key_id(key): key for key in public})


def _checked(key: object) -> RSAPublicKey:
    if not isinstance(key, RSAPublicKey) or key.key_size < MIN_BITS:
        raise ValueError(f"service account keys are RSA keys of at least {MIN_BITS} bits")
    return key


def key_id(key: RSAPublicKey) -> str:
    """Base64 of the SHA-256 of the key's DER, as Kubernetes names service account keys."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encode_base64(hashlib.sha256(der).digest())


def jwks(keys: KeySet) -> Object:
    """The JSON Web Key Set document, served as application/jwk-set+json at /openid/v1/jwks."""
    return {"keys": [_jwk(name, key) for name, key in keys.verifying.items()]}


def _jwk(name: str, key: RSAPublicKey) -> Object:
    numbers = key.public_numbers()
    return {
        "use": "sig",
        "kty": "RSA",
        "kid": name,
        "alg": ALGORITHM,
        "n": _number(numbers.n),
        "e": _number(numbers.e),
    }


def _number(value: int) -> str:
    return encode_base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def openid_configuration(issuer: str, jwks_uri: str) -> Object:
    """The discovery document of the issuer, served at /.well-known/openid-configuration."""
    return {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }
