"""The configuration of the embedded nats-server and the credentials that go with it.

The supervisor in `server` writes the file and hands the credentials on. Passwords stand in a file of mode
0600 in a directory of mode 0700, never in an argument or an environment. Invariant: one account, two users,
no listener but the one for clients: no monitoring, WebSocket, MQTT, leaf node, gateway or cluster.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import msgspec

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.definitions import MAX_PAYLOAD_BYTES
from atoll.machinery.stream.permissions import (
    OPERATOR_CONSUMERS,
    OPERATOR_INBOX,
    SHARD_INBOX,
    Permissions,
    operator_permissions,
    shard_permissions,
)
from atoll.machinery.stream.subjects import KINDS, stream_name

ACCOUNT = "ATOLL"
_OPERATOR = "operator"


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files of the server's certificate and key, and of the authority that signed it."""

    cert_file: Path
    key_file: Path
    ca_file: Path


class Secrets(msgspec.Struct, frozen=True):
    """What survives a restart, so that subscribers keep their address and password."""

    port: int
    shard_password: str
    operator_password: str


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in one step: whoever reads it sees the old one or the new one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def load_secrets(path: Path, port: int) -> Secrets:
    """The secrets of the last start, with the port asked for if that is not 0; new ones where there are
    none."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=Secrets)
    except (FileNotFoundError, msgspec.DecodeError):
        return Secrets(port, secrets.token_urlsafe(32), secrets.token_urlsafe(32))
    return msgspec.structs.replace(known, port=port or known.port)


def shard_access(address: str, shard: str, known: Secrets, tls: TlsFiles | None) -> Access:
    ca_file = str(tls.ca_file) if tls else ""
    return Access([address], f"shard-{shard}", known.shard_password, f"{SHARD_INBOX}_{shard}", ca_file)


def operator_file(address: str, shard: str, known: Secrets, tls: TlsFiles | None) -> bytes:
    """`stream.json`: `connect` holds keyword arguments of nats-py's `connect`; the rest says what to ask
    for."""
    document = {
        "connect": {
            "servers": [address], "user": _OPERATOR, "password": known.operator_password,
            "inbox_prefix": OPERATOR_INBOX,
        },
        "shard": shard,
        "streams": {kind: stream_name(kind, shard) for kind in KINDS},
        "consumers": list(OPERATOR_CONSUMERS),
    }  # fmt: skip
    if tls:
        document["ca_file"] = str(tls.ca_file)
    return json.dumps(document, indent=2).encode() + b"\n"


def server_config(
    directory: Path, host: str, shard: str, known: Secrets, tls: TlsFiles | None, store_limit_bytes: int
) -> bytes:
    """The configuration file. JSON is a form of it that needs no quoting rules of our own."""
    users = [
        _user(f"shard-{shard}", known.shard_password, shard_permissions(shard)),
        _user(_OPERATOR, known.operator_password, operator_permissions(shard)),
    ]
    config: dict[str, object] = {
        "host": host,
        "port": known.port,
        "max_payload": MAX_PAYLOAD_BYTES,
        "max_connections": 1024,
        "logfile": str(directory / "server.log"),
        "logfile_size_limit": 8 << 20,
        "logfile_max_num": 2,
        "jetstream": {
            "store_dir": str(directory / "store"),
            "max_mem": 64 << 20,
            "max_file": store_limit_bytes,
        },
        "system_account": "SYS",
        "accounts": {
            "SYS": {},
            ACCOUNT: {"jetstream": {"max_streams": len(KINDS), "max_consumers": 256}, "users": users},
        },
    }
    if tls:
        config["tls"] = {"cert_file": str(tls.cert_file), "key_file": str(tls.key_file), "timeout": 5}
    return encode_json(config)


def _user(name: str, password: str, permissions: Permissions) -> dict[str, object]:
    return {
        "user": name,
        "password": password,
        "permissions": {
            "publish": {"allow": list(permissions.publish)},
            "subscribe": {"allow": list(permissions.subscribe)},
        },
    }
