"""The files of a site's NATS servers: one alone, or those of a cluster.

`atoll nats-config --servers` and `atoll certs` call it. Invariant: the passwords of an earlier call stay, so that
another call can be taken over by one server after the other.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.credential_file import NatsCredential, Reach, read_access, write_credential
from atoll.machinery.stream.server.cluster import ROUTE_USER, SYSTEM_USER, ClusterOptions, ClusterServer, member_config
from atoll.machinery.stream.server.config import NatsUser, TenantOptions
from atoll.standalone.site.credentials import credential_path

SERVER_CONFIG = "server.conf"


def cluster_options(directory: Path, servers: Sequence[ClusterServer], size_bytes: int, reach: Reach) -> ClusterOptions:
    """The servers with passwords of their own, which are made at first and kept in `directory`.

    Raises InvalidCredentialFile, OSError.
    """
    route, system = (_password(credential_path(directory, user), user, reach) for user in (ROUTE_USER, SYSTEM_USER))
    return ClusterOptions(servers, route, system, size_bytes)


def write_servers(
    directory: Path, cluster: ClusterOptions, users: Sequence[NatsUser], tenants: TenantOptions | None
) -> list[Path]:
    """Write the configuration of each server into a directory of its name; return their paths. Raises OSError."""
    written = [directory / server.name / SERVER_CONFIG for server in cluster.servers]
    for path, server in zip(written, cluster.servers, strict=True):
        content = member_config(cluster, server, users, tenants)
        if not path.exists() or path.read_bytes() != content:
            write_private(path, content)
    return written


def _password(path: Path, user: str, reach: Reach) -> str:
    """The password of a user of the servers' own, in a credential file."""
    try:
        password = read_access("", str(path)).password
    except FileNotFoundError:
        password = secrets.token_urlsafe(32)
    write_credential(path, NatsCredential(user, password, ca_file=reach.ca_file, servers=reach.servers))
    return password
