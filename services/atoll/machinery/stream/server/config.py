"""The configuration of the embedded nats-server, and its credentials.

The supervisor in `embedded` writes the file and passes the credentials on. Passwords are in a file of mode 0600 in a
directory of mode 0700, never in an argument or an environment variable. Invariant: the given users, each in an account
of its own, besides them only whom a gateway admits, and only the listener for clients, and that of regions if there are
any: no monitoring, WebSocket, MQTT or gateway; routes only by `cluster`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.definitions import MAX_PAYLOAD_BYTES
from atoll.machinery.stream.permissions import (
    CONTROL,
    IMPORTED_API,
    KICK_SUBJECT,
    OPERATOR,
    OWN_API,
    Permissions,
    ServiceImport,
    delivery_subject,
    inbox_prefix,
    operator_consumers,
    operator_permissions,
    shard_exports,
    shard_permissions,
    shard_user,
)
from atoll.machinery.stream.subjects import KINDS, stream_name
from atoll.machinery.stream.tenants.auth_callout import Answerer, CalloutKeys
from atoll.machinery.stream.tenants.subscriber_permissions import (
    CALLOUT_TIMEOUT_S,
    CONNECTIONS_SUBJECT,
    END_CONNECTION_SUBJECT,
    GATEWAYS,
    TENANTS,
    tenant_imports,
)

#: A consumer for each reader of each stream, the publishers' own audits, and the operator's.
_MAX_CONSUMERS = 4096
#: Connections of the configured users, and of tenants, who cannot take those.
_MAX_CONNECTIONS, _MAX_TENANT_CONNECTIONS = 1024, 4096
_SYSTEM = "SYS"
#: Room for the streams of one shard.
STREAMS_BYTES = 16 << 30
#: The JetStream domain of a server that regions join, as in `SOURCE_API`.
HUB = "hub"


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files of the server's certificate and key, and of the authority that signed it."""

    cert_file: Path
    key_file: Path
    ca_file: Path


class NatsUser(msgspec.Struct, frozen=True):
    """A user that may connect. `password` is plain text: it is generated and protects nothing else.

    `account` is the user's own by default, of the same name.
    """

    name: str
    password: str
    permissions: Permissions
    account: str = ""

    def access(self, address: str, tls: TlsFiles | None = None) -> Access:
        """How this user connects to the server at `address`."""
        api = IMPORTED_API if self.permissions.imports else OWN_API
        ca_file = str(tls.ca_file) if tls else ""
        return Access([address], self.name, self.password, inbox_prefix(self.name), ca_file, api)


class ServerSecrets(msgspec.Struct, frozen=True):
    """The port and passwords that survive a restart, so that subscribers need no new ones."""

    port: int
    shard_password: str
    operator_password: str


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
        NatsUser(OPERATOR, saved.operator_password, operator_permissions([shard])),
    ]


def stream_file(access: Access, shard: str, event_keys: Sequence[str] = ()) -> bytes:
    """`stream.json`, by which a user of an operator reads a shard's streams: `connect` holds keyword arguments of
    nats-py's `connect`; `atoll.events` reads all of it."""
    document: dict[str, object] = {
        "connect": {
            "servers": access.servers,
            "user": access.user,
            "password": access.password,
            "inbox_prefix": access.inbox_prefix,
        },
        "api_prefix": IMPORTED_API.format(shard=shard),
        "shard": shard,
        "streams": {kind: stream_name(kind, shard) for kind in KINDS},
        "consumers": list(operator_consumers(access.user)),
    }
    if event_keys:
        document["event_keys"] = list(event_keys)
    if access.ca_file:
        document["ca_file"] = access.ca_file
    return json.dumps(document, indent=2).encode() + b"\n"


class ListenOptions(msgspec.Struct, frozen=True):
    """Where a server listens, its directory, and the most bytes that its streams may take. At `leaves` (address:port)
    the servers of regions join it; empty: none do. An empty `name` is one that the server makes."""

    directory: Path
    host: str
    port: int
    store_limit_bytes: int
    tls: TlsFiles | None = None
    leaves: str = ""
    name: str = ""


class TenantOptions(msgspec.Struct, frozen=True):
    """Tenants of a server: the shards whose changes they may be let at, and the keys of the gateways that say who they
    are. The gateways themselves are users in the account `GATEWAYS`; `regions` are users by which regions join."""

    shards: tuple[str, ...]
    keys: CalloutKeys
    regions: tuple[str, ...] = ()


def server_config(where: ListenOptions, users: Sequence[NatsUser], tenants: TenantOptions | None = None) -> bytes:
    """The configuration file of a server for these users, in JSON, which nats-server reads."""
    config = server_document(users, tenants, where.tls)
    config |= {
        "host": where.host,
        "port": where.port,
        "logfile": str(where.directory / "server.log"),
        "logfile_size_limit": 8 << 20,
        "logfile_max_num": 2,
    }
    config["jetstream"] |= {"store_dir": str(where.directory / "store"), "max_file": where.store_limit_bytes}
    if where.name:
        config["server_name"] = where.name
    if where.leaves:
        tls = {"tls": config["tls"]} if where.tls else {}
        config |= {"server_name": HUB, "leafnodes": {"listen": where.leaves, **tls}}
        config["jetstream"]["domain"] = HUB
    return encode_json(config)


def server_document(users: Sequence[NatsUser], tenants: TenantOptions | None, tls: TlsFiles | None) -> Object:
    """What all servers for these users have in common: accounts, bounds and the certificate of their listener."""
    found: dict[str, dict[str, Any]] = {_SYSTEM: {}, **accounts(users)}
    config: Object = {
        "max_payload": MAX_PAYLOAD_BYTES,
        "max_connections": _MAX_CONNECTIONS + (_MAX_TENANT_CONNECTIONS if tenants is not None else 0),
        "jetstream": {"max_mem": 64 << 20},
        "system_account": _SYSTEM,
        "accounts": found if tenants is None else _with_tenants(found, tenants.shards),
    }
    if tenants is not None:
        config["authorization"] = {"auth_callout": _callout(users, tenants), "timeout": CALLOUT_TIMEOUT_S}
    if tls:
        config["tls"] = {"cert_file": str(tls.cert_file), "key_file": str(tls.key_file), "timeout": 5}
    return config


def accounts(users: Sequence[NatsUser]) -> dict[str, dict[str, Any]]:
    """The accounts of these users, as a server's configuration has them."""
    found: dict[str, list[NatsUser]] = {}
    for user in users:
        found.setdefault(user.account or user.name, []).append(user)
    return {name: _account(members) for name, members in found.items()}


def _account(users: Sequence[NatsUser]) -> dict[str, Any]:
    account: dict[str, Any] = {"users": [_user(user) for user in users]}
    shards = [shard for user in users for shard in user.permissions.shards]
    if shards:
        account["jetstream"] = {"max_streams": len(KINDS) * len(shards), "max_consumers": _MAX_CONSUMERS}
        exports = [each for shard in shards for each in _exports(shard)]
        account["exports"] = [*exports, {"stream": f"{delivery_subject('*')}.>"}]
    # Users who share an account may share imports, which the server takes once.
    services = dict.fromkeys(each for user in users for each in user.permissions.imports)
    imports = [*_services(services), *(each for user in users for each in _deliveries(user))]
    return {**account, "imports": imports} if imports else account


def _with_tenants(found: dict[str, dict[str, Any]], shards: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The accounts with that of the tenants, and with what connects gateways, shards and tenants.

    Shards tell gateways whose connections to end; these find and end them through the system's account. Shards publish
    for subscribers below `CONTROL`, which the tenants' account has as `<inbox>.control`: no other subject of it.
    """
    kick, control = {"account": GATEWAYS, "subject": KICK_SUBJECT}, f"{CONTROL}.*"
    ending = END_CONNECTION_SUBJECT.format(server="*")
    heard = [{"stream": {"account": shard_user(shard), "subject": control}, "to": "$1.control"} for shard in shards]
    found[TENANTS] = {
        "imports": [*_services(tenant_imports(shards)), *heard],
        "limits": {"max_connections": _MAX_TENANT_CONNECTIONS},
    }
    for shard in shards:
        account = found[shard_user(shard)]
        account["exports"].append({"stream": control, "accounts": [TENANTS]})
        account["imports"] = [*account.get("imports", ()), {"service": kick}]
    found[GATEWAYS]["exports"] = [{"service": KICK_SUBJECT, "accounts": [shard_user(shard) for shard in shards]}]
    found[GATEWAYS]["imports"] = [
        {"service": {"account": _SYSTEM, "subject": subject}} for subject in (CONNECTIONS_SUBJECT, ending)
    ]
    found[_SYSTEM]["exports"] = [
        {"service": CONNECTIONS_SUBJECT, "response_type": "stream", "accounts": [GATEWAYS]},
        {"service": ending, "accounts": [GATEWAYS]},
    ]
    return found


def _callout(users: Sequence[NatsUser], tenants: TenantOptions) -> dict[str, object]:
    """Whom the server asks about clients that it does not know. Without `allowed_accounts` it would ask about the users
    of this configuration as well. An answer may name any account: who has the issuer's key may do everything.

    The server must be restarted to change this block, so it names the first gateway alone: others are asked through the
    account. It names regions as well, since the server asks about each leaf node, whatever its account."""
    first = next(user.name for user in users if user.account == GATEWAYS)
    about = {"account": GATEWAYS, "auth_users": [first, *tenants.regions], "allowed_accounts": [TENANTS]}
    return {**Answerer(tenants.keys).configuration, **about}


def _exports(shard: str) -> list[dict[str, object]]:
    return [
        {"service": each.subject, **({"response_type": "stream"} if each.stream else {})}
        for each in shard_exports(shard)
    ]


def _services(imports: Iterable[ServiceImport]) -> list[dict[str, object]]:
    return [{"service": {"account": each.account, "subject": each.subject}, "to": each.local} for each in imports]


def _deliveries(user: NatsUser) -> list[dict[str, object]]:
    delivered = f"{delivery_subject(user.name)}.>"
    return [{"stream": {"account": account, "subject": delivered}} for account in user.permissions.deliveries]


def _user(user: NatsUser) -> dict[str, object]:
    return {
        "user": user.name,
        "password": user.password,
        "permissions": {
            "publish": {"allow": list(user.permissions.publish)},
            "subscribe": {"allow": list(user.permissions.subscribe)},
        },
    }
