"""The configuration of the NATS servers of a site, one file each; several form a cluster.

`atoll nats-config --servers` and `atoll certs` write them. Whoever opens a route to a server may do everything in every
account, so a route needs two things: a certificate of the cluster's authority, which both ends ask for, and the
password of the routes, which only the servers have. Invariant: all files differ in names, addresses and paths alone, so
that every server knows the same users.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.stream.server.config import NatsUser, TenantOptions, TlsFiles, server_document

#: The name of the cluster, and the user by which its servers open routes to each other.
CLUSTER, ROUTE_USER = "atoll", "route"
#: The user of the system's account: it sees and moves leaders of the cluster's own group, and reads no stream.
SYSTEM_USER = "system"
_ROUTE_TIMEOUT_S = 5


class ClusterServer(msgspec.Struct, frozen=True):
    """One server: its name, where clients and where other servers reach it, and its files. `bind_address` is what it
    listens on at both ports."""

    name: str
    host: str
    port: int
    route_port: int
    store: Path
    bind_address: str
    tls: TlsFiles | None = None

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{'tls' if self.tls else 'nats'}://{_host(self.host)}:{self.port}"


class ClusterOptions(msgspec.Struct, frozen=True):
    """The servers, the password of their routes, the password of the system's user, and the most bytes that the streams
    may take at each server."""

    servers: Sequence[ClusterServer]
    route_password: str
    system_password: str
    store_limit_bytes: int

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)


def member_config(
    cluster: ClusterOptions, server: ClusterServer, users: Sequence[NatsUser], tenants: TenantOptions | None = None
) -> bytes:
    """The configuration file of one server of a cluster. It logs to its standard error."""
    document = server_document(users, tenants, server.tls)
    document |= {"server_name": server.name, "host": server.bind_address, "port": server.port}
    document["jetstream"] |= {"store_dir": str(server.store), "max_file": cluster.store_limit_bytes}
    if len(cluster.servers) > 1:
        document["cluster"] = _routes(cluster, server)
    system = document["accounts"][document["system_account"]]
    system["users"] = [{"user": SYSTEM_USER, "password": cluster.system_password}]
    return encode_json(document)


def _routes(cluster: ClusterOptions, server: ClusterServer) -> Object:
    password = quote(cluster.route_password, safe="")
    others = [each for each in cluster.servers if each.name != server.name]
    routes: Object = {
        "name": CLUSTER,
        "listen": f"{_host(server.bind_address)}:{server.route_port}",
        "authorization": {"user": ROUTE_USER, "password": cluster.route_password, "timeout": _ROUTE_TIMEOUT_S},
        "routes": [f"nats-route://{ROUTE_USER}:{password}@{_host(each.host)}:{each.route_port}" for each in others],
        # Clients have the addresses of all servers in their credential files; those of a container are of no use.
        "no_advertise": True,
    }
    if server.tls is not None:
        routes["tls"] = {
            "cert_file": str(server.tls.cert_file),
            "key_file": str(server.tls.key_file),
            "ca_file": str(server.tls.ca_file),
            "timeout": _ROUTE_TIMEOUT_S,
        }
    return routes


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
