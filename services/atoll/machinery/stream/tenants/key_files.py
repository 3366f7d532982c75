"""The files by which shards and gateways agree on the names of subscribers.

The tool that sets up a server writes them: for gateways the secrets with which they answer for it, for shards the key
of the names alone, and where subscribers find the server. Invariant: such a file is 0600 at all times, and a shard's
admits nobody to NATS.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.stream.tenants.auth_callout import CalloutKeys, make_keys

#: The usual names of the files.
GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE = "event-gateway-keys.json", "event-subscriptions.json"

T = TypeVar("T", bound=msgspec.Struct)


class SubscriptionKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a shard needs to make subscriptions: the secret key of the names in base64, the servers' URLs for
    subscribers, and the PEM text of their authority; empty without TLS, and for the system's authorities."""

    names: str
    servers: tuple[str, ...]
    ca: str = ""


def load_or_make_gateway_keys(path: Path) -> CalloutKeys:
    """The secrets of the gateways, made on first use. Raises InvalidCredentialFile, OSError."""
    try:
        return read_gateway_keys(path)
    except FileNotFoundError:
        keys = make_keys()
        _write(path, keys)
        return keys


def read_gateway_keys(path: Path) -> CalloutKeys:
    """Raises InvalidCredentialFile, OSError."""
    return _read(path, CalloutKeys)


def read_subscription_keys(path: Path) -> SubscriptionKeys:
    """Raises InvalidCredentialFile, OSError."""
    return _read(path, SubscriptionKeys)


def write_subscription_keys(path: Path, keys: SubscriptionKeys) -> None:
    """Raises OSError."""
    _write(path, keys)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise InvalidCredentialFile(f"{path} holds no keys of event subscribers") from error


def _write(path: Path, keys: msgspec.Struct) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n")
