"""The files of a site below its root directory, its list of shards, and its ports.

    <root>/admin.kubeconfig     for administrators
    <root>/site.json            names of shards, and ports
    <root>/pki/                 CAs, certificates, the service account key, kubeconfigs of components
    <root>/nats/                files of the NATS server
    <root>/shards/<name>/       root directory of a shard; <root>/front-proxy/ that of the proxy
    <root>/event-gateway/       directory of the event gateway

Called by `runner`. Invariant: a shard of a site stays part of it, under its name and, if it is free, at its port.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.machinery.meta.names import ROOT
from atoll.machinery.process.private_files import write_private
from atoll.machinery.storage.environment.filesystem import DATA_FILE

PROXY, NATS, GATEWAY = "front-proxy", "nats", "event-gateway"
_SITE_FILE, _LOCK_FILE = "site.json", "site.lock"
#: Upper bound of `--shards`; a larger site runs on several machines.
MAX_SHARDS = 64


class SiteError(Exception):
    """Settings or a root directory that a site cannot use, with the reason."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored state of a site: its shards in order, and the port of each process by name."""

    shards: tuple[str, ...]
    ports: dict[str, int]


class Layout(msgspec.Struct, frozen=True):
    """Paths below one root directory."""

    root: Path

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def proxy(self) -> Path:
        return self.root / PROXY

    @property
    def gateway(self) -> Path:
        return self.root / GATEWAY

    @property
    def mapping(self) -> Path:
        return self.proxy / "mapping.yaml"

    def shard(self, name: str) -> Path:
        return self.root / "shards" / name

    def certificate(self, name: str) -> Path:
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.pki / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of a component."""
        return self.pki / f"{name}.kubeconfig"

    @property
    def revoked(self) -> Path:
        """Revocation lists of client certificates."""
        return self.pki / "client.crl"

    @property
    def account_key(self) -> Path:
        """The public half of the service account key, for the proxy, which only verifies tokens."""
        return self.pki / "service-account.pub"

    def credential(self, user: str) -> Path:
        """The credential file of a NATS user."""
        return self.pki / f"nats-{user}.json"

    @property
    def site_file(self) -> Path:
        return self.root / _SITE_FILE


def of(root_directory: str) -> Layout:
    """The layout of a root directory, with absolute paths, as other processes have other working directories."""
    return Layout(Path(root_directory).absolute())


def shard_names(count: int) -> tuple[str, ...]:
    """Names of a site's shards, the root shard first."""
    return (ROOT, *(f"shard-{number}" for number in range(1, count)))


def prepare(layout: Layout, count: int) -> Site:
    """Make the directories of a site of `count` shards; return its state with the ports of an earlier start.

    Raises SiteError if the directory holds a single shard or more shards than `count`; OSError.
    """
    if (layout.root / "store" / DATA_FILE).exists():
        raise SiteError(f"{layout.root} holds a single shard: start it without --shards, or take another directory")
    stored = read(layout)
    if len(stored.shards) > count:
        raise SiteError(
            f"{layout.root} holds {len(stored.shards)} shards: --shards {count} would leave workspaces behind"
        )
    site = Site(shard_names(count), stored.ports)
    shards = [layout.root / "shards", *(layout.shard(name) for name in site.shards)]
    for path in (layout.root, layout.pki, layout.proxy, layout.gateway, *shards):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return site


def read(layout: Layout) -> Site:
    """The stored state; empty in a new directory. Raises SiteError for a damaged file."""
    try:
        return msgspec.json.decode(layout.site_file.read_bytes(), type=Site)
    except FileNotFoundError:
        return Site((), {})
    except msgspec.DecodeError as error:
        raise SiteError(f"{layout.site_file} is no list of shards and ports: {error}") from error


def write(layout: Layout, site: Site) -> None:
    """Store the state of a site. Raises OSError."""
    write_private(layout.site_file, msgspec.json.format(msgspec.json.encode(site), indent=2) + b"\n")


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Lock the directory for this process. Raises SiteError if another process has locked it."""
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(layout.root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SiteError(f"another process runs the site in {layout.root}") from None
    try:
        yield
    finally:
        os.close(descriptor)


class Ports:
    """Ports of a site, reserved until `close` by sockets that are bound and do not listen.

    A process of the site listens on the same port (SO_REUSEADDR, and SO_REUSEPORT with workers). The system does not
    assign a reserved port to another process, and a connection while the site's process is down is refused at once.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._sockets: list[socket.socket] = []

    def reserve(self, port: int, flag: str = "", host: str = "") -> int:
        """Reserve this port, or any if it is 0 or in use (if a flag names it: raise OSError then); return the port."""
        host = host or self._host
        for candidate in (port, 0) if port and not flag else (port,):
            sock = self._bound(host, candidate)
            if sock is not None:
                self._sockets.append(sock)
                return int(sock.getsockname()[1])
        raise OSError(errno.EADDRINUSE, f"{host}:{port} is taken; --{flag} names another port")

    def _bound(self, host: str, port: int) -> socket.socket | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if port and not self._is_free(family, host, port):
            return None
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        return sock

    def _is_free(self, family: socket.AddressFamily, host: str, port: int) -> bool:
        """Whether no other process uses the port; SO_REUSEPORT alone would share it with one that does."""
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Release all ports."""
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()
