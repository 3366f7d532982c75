"""Keys and issuers of service account tokens, as the operator's flags say; the names are Kubernetes'.

`identity` and `app` ask while a shard or a worker is put together. Without a flag the key is `sa.key` of the root
directory, made on first use. Rotation is a restart: the new key signs, and what the old one signed counts as long as
`--service-account-key-file` names it. Invariant: no key counts but the one that signs and those that are named.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys, public_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.process import pki
from atoll.shard.config import ShardConfig

DEFAULT_KEY = "sa.key"
P = ParamSpec("P")
T = TypeVar("T")


class KeyRefused(Exception):
    """A file that holds no key of service account tokens; names the file, quotes nothing of it."""


def keys(config: ShardConfig) -> KeySet:
    """The key that signs and those that verify. Raises KeyRefused, OSError."""
    given = config.service_account_signing_key_file
    signing = Path(given) if given else Path(config.root_directory) / DEFAULT_KEY
    private = signing.read_bytes() if given else pki.load_or_make_rsa_key(signing)
    retired = [(Path(file), Path(file).read_bytes()) for file in config.service_account_key_file]
    for path, pem in retired:
        _of(path, list, public_keys(pem))
    return _of(signing, load_keys, private, [pem for _, pem in retired])


def _of(path: Path, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    try:
        return read(*given, **named)
    except (ValueError, TypeError) as error:
        # Texts of the library may quote; TypeError is what it says of a key behind a passphrase.
        raise KeyRefused(f"{path} holds no RSA or P-256 key that can be used for service account tokens") from error


def issuers(config: ShardConfig) -> ServiceAccountIssuers:
    """The issuers that count, the first of which we are; and the audiences of this server, all issuers by default."""
    names = config.service_account_issuer or ServiceAccountIssuers().names
    return ServiceAccountIssuers(names, config.api_audiences or names)
