"""The servers of `atoll nats-config --servers`: how the flags name them.

`nats_config` calls it. Below its directory each server has one of its own, with `server.conf` and the authority of the
routes: all that it needs beside its certificate. Invariant: without TLS, servers and routes are on this machine alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atoll.machinery.meta.labels import dns_subdomain_errors
from atoll.machinery.process.listen_address import is_loopback
from atoll.machinery.stream.server.cluster import ClusterServer
from atoll.machinery.stream.server.config import TlsFiles

AUTHORITY = "nats-ca.crt"
_SERVER = "{server}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a cluster."""
    parser.add_argument(
        "--servers",
        default="",
        help="comma separated servers of a cluster, three or five, each as [NAME=]HOST[:PORT[:ROUTE-PORT]]; the name"
        " is that of its directory, by default the host",
    )
    parser.add_argument("--route-port", type=int, default=6222, help="port at which servers of a cluster connect")
    parser.add_argument(
        "--store-directory",
        default="",
        help=f"where a server of a cluster keeps its streams; {_SERVER} stands for its name; default: store in its"
        " directory",
    )


def cluster_servers(found: argparse.Namespace, directory: Path) -> list[ClusterServer]:
    """The servers that the flags name. Raises ValueError."""
    servers = [_server(text.strip(), found, directory) for text in found.servers.split(",")]
    if len(servers) not in (3, 5):
        raise ValueError(f"--servers has {len(servers)} servers: three or five have a majority")
    for what in ("name", "url"):
        if len({getattr(server, what) for server in servers}) < len(servers):
            raise ValueError(f"--servers has two servers of one {what}")
    if not found.tls_cert_file and not all(map(is_loopback, (found.bind_address, *(s.host for s in servers)))):
        raise ValueError("--servers on several machines needs tls-cert-file, tls-private-key-file and tls-ca-file")
    return servers


def _server(text: str, found: argparse.Namespace, directory: Path) -> ClusterServer:
    name, _, address = text.rpartition("=")
    host, *ports = address.split(":")
    name = name or host
    if dns_subdomain_errors(name) or len(ports) > 2 or not all(port.isdigit() for port in ports):
        raise ValueError(f"--servers: {text!r} is not [NAME=]HOST[:PORT[:ROUTE-PORT]]")
    defaults = [found.port, found.route_port]
    port, route_port = (int(given) for given in (*ports, *defaults[len(ports) :]))
    store = found.store_directory.replace(_SERVER, name)
    return ClusterServer(
        name,
        host,
        port,
        route_port,
        Path(store) if store else directory / name / "store",
        found.bind_address,
        _tls(found, name, directory / name) if found.tls_cert_file else None,
    )


def _tls(found: argparse.Namespace, name: str, home: Path) -> TlsFiles:
    """A server's own files, in whose paths its name may stand."""
    paths = (text.replace(_SERVER, name) for text in (found.tls_cert_file, found.tls_private_key_file))
    certificate, key = (Path(path).absolute() for path in paths)
    return TlsFiles(certificate, key, home / AUTHORITY)
