"""Keys and issuers of service account tokens, read from the flags; the flag names are kube-apiserver's.

`authentication` and `app` call it at the start of a shard or a worker. Without a flag the key is `sa.key` of the root
directory, generated on first use; it is never replaced while the store has service accounts. Files that flags name are
read again when they change: the new key signs, and tokens of the old one are valid as long as a file of
`--service-account-key-file` has it. Invariant: only the signing key and the named keys verify tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog

from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys, public_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.meta.types import SERVICE_ACCOUNTS
from atoll.machinery.process import pki
from atoll.machinery.process.file_watch import on_change
from atoll.machinery.storage.contract import Store
from atoll.shard.config import ShardConfig

DEFAULT_KEY = "sa.key"
log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


class KeyRefused(Exception):
    """A file without a usable service account key, or a lost one. The text names the file and quotes nothing of it."""


def require(config: ShardConfig, store: Store) -> None:
    """Raise KeyRefused if the generated key is missing while the store has, or had, service accounts."""
    path = Path(config.root_directory) / DEFAULT_KEY
    if config.service_account_signing_key_file or path.exists():
        return
    with store.snapshot() as snapshot:
        if snapshot.last(SERVICE_ACCOUNTS, ""):
            raise KeyRefused(
                f"{path} is missing: without it no token of a service account is valid; restore it, or put a new RSA"
                " key there and have every token issued again"
            )


def keys(config: ShardConfig) -> KeySet:
    """Return the signing key and the verifying keys. Raises KeyRefused, OSError."""
    given = config.service_account_signing_key_file
    signing = Path(given) if given else Path(config.root_directory) / DEFAULT_KEY
    private = signing.read_bytes() if given else pki.load_or_make_rsa_key(signing)
    retired = [(Path(file), Path(file).read_bytes()) for file in config.service_account_key_file]
    for path, pem in retired:
        _of(path, list, public_keys(pem))
    return _of(signing, load_keys, private, [pem for _, pem in retired])


async def reload(config: ShardConfig, current: KeySet) -> None:
    """Read the named files again when they change, until cancelled."""
    files = filter(None, (config.service_account_signing_key_file, *config.service_account_key_file))

    def read() -> None:
        try:
            found = keys(config)
        except (KeyRefused, OSError) as error:
            log.error("service account keys not reloaded", reason=str(error))
            return
        if (found.signing_id, found.verifying) != (current.signing_id, current.verifying):
            current.replace(found)
            log.info("service account keys reloaded", keys=len(current.verifying))

    await on_change(tuple(files), read)


def _of(path: Path, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    try:
        return read(*given, **named)
    except (ValueError, TypeError) as error:
        # The library's texts may quote the key; it raises TypeError for an encrypted key.
        raise KeyRefused(f"{path} holds no RSA or P-256 key that can be used for service account tokens") from error


def issuers(config: ShardConfig) -> ServiceAccountIssuers:
    """Return the accepted issuers (new tokens name the first) and this server's audiences (default: the issuers)."""
    names = config.service_account_issuer or ServiceAccountIssuers().names
    return ServiceAccountIssuers(names, config.api_audiences or names)
