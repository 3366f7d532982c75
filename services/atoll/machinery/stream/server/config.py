"""The configuration of the embedded nats-server, and its credentials.

The supervisor in `embedded` writes the file and passes the credentials on. Passwords are in a file of mode 0600 in a
directory of mode 0700, never in an argument or an environment variable. Invariant: one account, the given users, and
only the listener for clients: no monitoring, WebSocket, MQTT, leaf node, gateway or cluster.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.definitions import MAX_PAYLOAD_BYTES
from atoll.machinery.stream.permissions import (
    OPERATOR,
    OPERATOR_CONSUMERS,
    Permissions,
    inbox_prefix,
    operator_permissions,
    shard_permissions,
    shard_user,
)
from atoll.machinery.stream.subjects import KINDS, stream_name

ACCOUNT = "ATOLL"
#: A consumer for each reader of each stream, the publishers' own audits, and the operator's.
_MAX_CONSUMERS = 4096


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files of the server's certificate and key, and of the authority that signed it."""

    cert_file: Path
    key_file: Path
    ca_file: Path


class NatsUser(msgspec.Struct, frozen=True):
    """A user that may connect. `password` is plain text: it is generated and protects nothing else."""

    name: str
    password: str
    permissions: Permissions

    def access(self, address: str, tls: TlsFiles | None = None) -> Access:
        """How this user connects to the server at `address`."""
        return Access([address], self.name, self.password, inbox_prefix(self.name), str(tls.ca_file) if tls else "")


class ServerSecrets(msgspec.Struct, frozen=True):
    """The port and passwords that survive a restart, so that subscribers need no new ones."""

    port: int
    shard_password: str
    operator_password: str


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 atomically: a reader sees the old file or the new one."""
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


def load_secrets(path: Path, port: int) -> ServerSecrets:
    """Return the secrets of the last start, with `port` unless that is 0; new ones if there are none."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=ServerSecrets)
    except (FileNotFoundError, msgspec.DecodeError):
        return ServerSecrets(port, secrets.token_urlsafe(32), secrets.token_urlsafe(32))
    return msgspec.structs.replace(saved, port=port or saved.port)


def builtin_users(shard: str, saved: ServerSecrets) -> list[NatsUser]:
    """The users that come with the server of one shard: itself, and the operator."""
    return [
        NatsUser(shard_user(shard), saved.shard_password, shard_permissions(shard)),
        NatsUser(OPERATOR, saved.operator_password, operator_permissions(shard)),
    ]


def stream_file(address: str, shard: str, saved: ServerSecrets, tls: TlsFiles | None) -> bytes:
    """`stream.json`: `connect` holds keyword arguments of nats-py's `connect`; `atoll.events` reads all of it."""
    document = {
        "connect": {
            "servers": [address],
            "user": OPERATOR,
            "password": saved.operator_password,
            "inbox_prefix": inbox_prefix(OPERATOR),
        },
        "shard": shard,
        "streams": {kind: stream_name(kind, shard) for kind in KINDS},
        "consumers": list(OPERATOR_CONSUMERS),
    }
    if tls:
        document["ca_file"] = str(tls.ca_file)
    return json.dumps(document, indent=2).encode() + b"\n"


class ListenOptions(msgspec.Struct, frozen=True):
    """Where a server listens, its directory, and the most bytes that its streams may take."""

    directory: Path
    host: str
    port: int
    store_limit_bytes: int
    tls: TlsFiles | None = None


def server_config(where: ListenOptions, users: Sequence[NatsUser]) -> bytes:
    """The configuration file of a server for these users, in JSON, which nats-server reads."""
    # Each user may be a shard, which has two streams.
    limits = {"max_streams": len(KINDS) * len(users), "max_consumers": _MAX_CONSUMERS}
    config: dict[str, object] = {
        "host": where.host,
        "port": where.port,
        "max_payload": MAX_PAYLOAD_BYTES,
        "max_connections": 1024,
        "logfile": str(where.directory / "server.log"),
        "logfile_size_limit": 8 << 20,
        "logfile_max_num": 2,
        "jetstream": {
            "store_dir": str(where.directory / "store"),
            "max_mem": 64 << 20,
            "max_file": where.store_limit_bytes,
        },
        "system_account": "SYS",
        "accounts": {"SYS": {}, ACCOUNT: {"jetstream": limits, "users": [_user(user) for user in users]}},
    }
    if where.tls:
        config["tls"] = {"cert_file": str(where.tls.cert_file), "key_file": str(where.tls.key_file), "timeout": 5}
    return encode_json(config)


def _user(user: NatsUser) -> dict[str, object]:
    return {
        "user": user.name,
        "password": user.password,
        "permissions": {
            "publish": {"allow": list(user.permissions.publish)},
            "subscribe": {"allow": list(user.permissions.subscribe)},
        },
    }
