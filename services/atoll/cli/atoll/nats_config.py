"""`atoll nats-config`: writes configuration and users of a NATS server for a site on several machines.

Called by `main`. Writes `server.conf` for nats-server and one credential file for each user, for
`--nats-credentials-file`. Another run with more names keeps the existing passwords. Invariant: files are 0600, and no
password is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.stream.permissions import OPERATOR, reader_user, shard_user, source_permissions
from atoll.machinery.stream.server.config import ListenOptions, NatsUser, TlsFiles, server_config
from atoll.machinery.stream.tenants.key_files import GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE
from atoll.standalone.site.credentials import edge_users, nats_users, public_keys, reading_user
from atoll.standalone.site.gateways import gateway_users, tenant_options, write_for_shards
from atoll.standalone.site.runner import STREAMS_BYTES
from atoll.standalone.site.subscribers import subscriber, write_stream_files

CONFIG, AUTHORITY = "server.conf", "nats-ca.crt"


def run(arguments: Sequence[str]) -> int:
    """Write the files. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    shards, readers, edge = _names(found.shards), _names(found.readers), _names(found.edge)
    watchers, gateways, regions = _names(found.subscribers), _names(found.event_gateways), _names(found.regions)
    for name in (*shards, *readers, *edge, *watchers, *gateways, *regions):
        if errors := dns_label_errors(name):
            return fail(f"{name!r} is no name: {errors[0]}")
    if clash := _clash(shards, readers, edge, watchers, gateways, regions):
        return fail(f"{clash!r} is the name of another user")
    directory, files = Path(found.directory).absolute(), (found.tls_cert_file, found.tls_private_key_file)
    if len({bool(file) for file in (*files, found.tls_ca_file)}) > 1:
        return fail("tls-cert-file, tls-private-key-file and tls-ca-file go together")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        tls = _tls(found, directory) if found.tls_cert_file else None
        authority = AUTHORITY if tls else ""
        users = nats_users(directory, shards, readers, authority) + edge_users(directory, shards, edge, authority)
        users += [_subscriber(directory, shards, each, found, authority) for each in watchers]
        users += gateway_users(directory, gateways, authority)
        users += [reading_user(directory, source_permissions(each, shards), each, {}, authority) for each in regions]
        tenants = tenant_options(directory, shards, regions) if gateways else None
        if tenants is not None:
            write_for_shards(directory, tenants, _url(found, authority), tls)
        leaves = str(found.leaf_listen) if regions else ""
        room_bytes = max(len(shards), 1) * STREAMS_BYTES
        where = ListenOptions(directory, found.bind_address, found.port, room_bytes, tls, leaves)
        write_private(directory / CONFIG, server_config(where, users, tenants))
    except (OSError, InvalidCredentialFile) as error:
        return fail(str(error))
    sys.stdout.write(f"nats-server -c {directory / CONFIG}\n")
    written = [f"nats-{name}.json" for name in (*map(shard_user, shards), *readers, *edge, *gateways, *regions)]
    written += [_stream_file(name, shard) for name in watchers for shard in shards]
    written += [GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE] if gateways else []
    sys.stdout.write("".join(f"  {directory / name}\n" for name in written))
    return 0


def _clash(shards: Sequence[str], *others: Sequence[str]) -> str:
    """The name that two users would have; empty if there is none."""
    taken = {OPERATOR, *(user(shard) for shard in shards for user in (shard_user, reader_user))}
    for names in others:
        if clash := taken.intersection(names):
            return min(clash)
        taken.update(names)
    return ""


def _subscriber(
    directory: Path, shards: Sequence[str], name: str, found: argparse.Namespace, authority: str
) -> NatsUser:
    """A subscriber of the operator, with a file for each shard. Raises OSError."""
    user = subscriber(directory, shards, name, authority)
    files = {shard: directory / _stream_file(name, shard) for shard in shards}
    write_stream_files(user, _url(found, authority), files, public_keys(directory, shards), authority)
    return user


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
    text = "Write the configuration of a NATS server for a site, and a credential file for each of its users."
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
    parser.add_argument("--nats-url", default="", help="URL that subscribers are told; default: as it listens")
    parser.add_argument("--bind-address", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=4222, help="port to listen on")
    parser.add_argument("--tls-cert-file", default="", help="PEM file with the server's certificate")
    parser.add_argument("--tls-private-key-file", default="", help="PEM file with the key of that certificate")
    parser.add_argument("--tls-ca-file", default="", help="PEM file with its authority; goes into the credentials")
    return parser
