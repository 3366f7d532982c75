"""`atoll nats-config`: writes configuration and users of a NATS server or cluster for a site on several machines.

Called by `main`. Writes `server.conf` for nats-server, with `--servers` one for each, and one credential file for each
user, for `--nats-credentials-file`. Another run with more names keeps the existing passwords: servers take it by a
reload. Invariant: files are 0600, and no
password is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.cli.atoll.nats_cluster import AUTHORITY, add_flags, cluster_servers
from atoll.cli.atoll.output import fail
from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.credential_file import InvalidCredentialFile, Reach
from atoll.machinery.stream.permissions import OPERATOR, reader_user, shard_user, source_permissions
from atoll.machinery.stream.server.cluster import ROUTE_USER, SYSTEM_USER, ClusterServer
from atoll.machinery.stream.server.config import STREAMS_BYTES, ListenOptions, TlsFiles, server_config
from atoll.machinery.stream.tenants.key_files import GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE
from atoll.standalone.site.credentials import edge_users, nats_users, public_keys, reading_user, renew_passwords
from atoll.standalone.site.gateways import gateway_users, tenant_options, write_for_shards
from atoll.standalone.site.nats_servers import SERVER_CONFIG, cluster_options, write_servers
from atoll.standalone.site.subscribers import subscriber, write_stream_files


class Names(msgspec.Struct, frozen=True):
    """The users that the flags name, by what they are."""

    shards: list[str]
    readers: list[str]
    edge: list[str]
    subscribers: list[str]
    event_gateways: list[str]
    regions: list[str]

    @property
    def others(self) -> tuple[list[str], ...]:
        return self.readers, self.edge, self.subscribers, self.event_gateways, self.regions

    @property
    def all(self) -> list[str]:
        return [name for names in (self.shards, *self.others) for name in names]

    @property
    def files(self) -> list[str]:
        """The files that are given to processes."""
        users = (*map(shard_user, self.shards), *self.readers, *self.edge, *self.event_gateways, *self.regions)
        written = [f"nats-{name}.json" for name in users]
        written += [_stream_file(name, shard) for name in self.subscribers for shard in self.shards]
        return written + ([GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE] if self.event_gateways else [])


def run(arguments: Sequence[str]) -> int:
    """Write the files. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    names = Names(*(_names(getattr(found, field)) for field in Names.__struct_fields__))
    for name in names.all:
        if errors := dns_label_errors(name):
            return fail(f"{name!r} is no name: {errors[0]}")
    if clash := _clash(names):
        return fail(f"{clash!r} is the name of another user")
    directory, files = Path(found.directory).absolute(), (found.tls_cert_file, found.tls_private_key_file)
    if len({bool(file) for file in (*files, found.tls_ca_file)}) > 1:
        return fail("tls-cert-file, tls-private-key-file and tls-ca-file go together")
    if names.regions and found.servers:
        return fail("--regions join one server, and not those of --servers")
    try:
        servers = cluster_servers(found, directory) if found.servers else []
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        configs = _write(directory, names, found, servers)
    except (OSError, ValueError, InvalidCredentialFile) as error:
        return fail(str(error))
    sys.stdout.write("".join(f"nats-server -c {path}\n" for path in configs))
    sys.stdout.write("".join(f"  {directory / name}\n" for name in names.files))
    return 0


def _write(directory: Path, names: Names, found: argparse.Namespace, servers: Sequence[ClusterServer]) -> list[Path]:
    """Write all files; return the configurations. Raises InvalidCredentialFile, OSError."""
    if found.new_passwords:
        renew_passwords(directory)
    shards, tls = names.shards, _tls(found, directory) if found.tls_cert_file else None
    reach = Reach(AUTHORITY if tls else "", tuple(server.url for server in servers))
    users = nats_users(directory, shards, names.readers, reach) + edge_users(directory, shards, names.edge, reach)
    urls = _names(found.nats_url) or reach.servers or [_url(found, reach.ca_file)]
    for name in names.subscribers:
        user = subscriber(directory, shards, name, reach)
        files = {shard: directory / _stream_file(name, shard) for shard in shards}
        write_stream_files(user, urls, files, public_keys(directory, shards), reach.ca_file)
        users.append(user)
    users += gateway_users(directory, names.event_gateways, reach)
    users += [reading_user(directory, source_permissions(each, shards), each, {}, reach) for each in names.regions]
    tenants = tenant_options(directory, shards, names.regions) if names.event_gateways else None
    if tenants is not None:
        write_for_shards(directory, tenants, urls, tls)
    size_bytes = max(len(shards), 1) * STREAMS_BYTES
    for server in servers:
        if server.tls is not None and tls is not None:
            write_private(server.tls.ca_file, tls.ca_file.read_bytes())
    if servers:
        return write_servers(directory, cluster_options(directory, servers, size_bytes, reach), users, tenants)
    leaves = str(found.leaf_listen) if names.regions else ""
    where = ListenOptions(directory, found.bind_address, found.port, size_bytes, tls, leaves)
    write_private(directory / SERVER_CONFIG, server_config(where, users, tenants))
    return [directory / SERVER_CONFIG]


def _clash(names: Names) -> str:
    """The name that two users would have; empty if there is none."""
    own = (user(shard) for shard in names.shards for user in (shard_user, reader_user))
    taken = {OPERATOR, ROUTE_USER, SYSTEM_USER, *own}
    for group in names.others:
        if clash := taken.intersection(group):
            return min(clash)
        taken.update(group)
    return ""


def _url(found: argparse.Namespace, authority: str) -> str:
    """Where subscribers find the server."""
    return str(found.nats_url) or f"{'tls' if authority else 'nats'}://{found.bind_address}:{found.port}"


def _stream_file(name: str, shard: str) -> str:
    """The file of a subscriber for one shard. Names have no dot, so no two are the same."""
    return f"stream-{name}.{shard}.json"


def _names(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


def _tls(found: argparse.Namespace, directory: Path) -> TlsFiles:
    """Return the server's TLS files; the CA is also copied next to the credentials, for other machines."""
    write_private(directory / AUTHORITY, Path(found.tls_ca_file).read_bytes())
    certificate, key = (Path(file).absolute() for file in (found.tls_cert_file, found.tls_private_key_file))
    return TlsFiles(certificate, key, directory / AUTHORITY)


def _parser() -> argparse.ArgumentParser:
    text = (
        "Write the configuration of a NATS server or cluster for a site, and a credential file for each of its users."
    )
    parser = argparse.ArgumentParser(prog="atoll nats-config", description=text, allow_abbrev=False)
    parser.add_argument("--directory", required=True, help="where server.conf, streams and credentials are kept")
    parser.add_argument("--shards", required=True, help="comma separated names of shards, as root,eu-1,us-1")
    parser.add_argument("--readers", default="", help="comma separated names of front proxies and cache servers")
    parser.add_argument("--edge", default="", help="comma separated names of processes `atoll edge-controllers`")
    parser.add_argument("--subscribers", default="", help="comma separated names of programs that read all changes")
    parser.add_argument(
        "--event-gateways",
        default="",
        help="comma separated names of processes `atoll event-gateway`; a name more is"
        " a reload of the server, but without the first name, or with the first at all, it must be restarted",
    )
    parser.add_argument(
        "--regions",
        default="",
        help="comma separated names of users by which NATS servers of regions join this one, which is their hub then;"
        " beside event gateways another name takes a restart of the server",
    )
    parser.add_argument("--leaf-listen", default="127.0.0.1:7422", help="address and port where regions join")
    parser.add_argument(
        "--nats-url", default="", help="URL, or several, that subscribers are told; default: as it listens"
    )
    parser.add_argument("--bind-address", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=4222, help="port to listen on")
    parser.add_argument(
        "--new-passwords",
        action="store_true",
        help="give every user a new password: copy the files to the processes, then reload the servers (SIGHUP)",
    )
    add_flags(parser)
    parser.add_argument(
        "--tls-cert-file",
        default="",
        help="PEM file with the server's certificate; in a cluster {server} stands for the name of each, and it is a"
        " client's certificate too",
    )
    parser.add_argument("--tls-private-key-file", default="", help="PEM file with the key of that certificate")
    parser.add_argument("--tls-ca-file", default="", help="PEM file with its authority; goes into the credentials")
    return parser
