"""Where everything of a site lies, and who is part of it.

    <root>/admin.kubeconfig     for people
    <root>/site.json            names and ports
    <root>/pki/                 authorities, certificates, the key of service accounts, kubeconfigs of components
    <root>/nats/                the NATS server's own
    <root>/shards/<name>/       one shard each; <root>/front-proxy/ the proxy

Invariant: a shard that was once part of a site stays part of it, under its name and, if it is free, at its port.
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
from atoll.machinery.process.pki import write_private
from atoll.machinery.storage.environment.filesystem import DATA_FILE

PROXY, NATS = "front-proxy", "nats"
#: Whatever address the processes of a site serve at: its streams are for them alone.
NATS_HOST = "127.0.0.1"
_SITE_FILE, _LOCK_FILE = "site.json", "site.lock"
#: More processes than that belong on more machines.
MAX_SHARDS = 64


class SiteRefused(Exception):
    """A root directory that holds something else, or is in use; says what."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a site: its shards in order, and the port of each process by name."""

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
    def mapping(self) -> Path:
        return self.proxy / "mapping.yaml"

    def shard(self, name: str) -> Path:
        return self.root / "shards" / name

    def certificate(self, name: str) -> Path:
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.pki / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        """A component's; people have admin.kubeconfig."""
        return self.pki / f"{name}.kubeconfig"

    @property
    def account_key(self) -> Path:
        """The public half of the key of service accounts: who only checks their tokens is not given the other."""
        return self.pki / "service-account.pub"

    def credential(self, user: str) -> Path:
        """A NATS user's."""
        return self.pki / f"nats-{user}.json"

    @property
    def site_file(self) -> Path:
        return self.root / _SITE_FILE


def of(root_directory: str) -> Layout:
    """The layout of a root directory; its paths go to processes of other working directories."""
    return Layout(Path(root_directory).absolute())


def shard_names(count: int) -> tuple[str, ...]:
    """Names of a site's shards, the root shard first."""
    return (ROOT, *(f"shard-{number}" for number in range(1, count)))


def prepare(layout: Layout, count: int) -> Site:
    """Make the directories of a site of `count` shards; gives what is kept of an earlier start with them.

    Raises SiteRefused where there is something else, or more shards than that; OSError.
    """
    if (layout.root / "store" / DATA_FILE).exists():
        raise SiteRefused(f"{layout.root} holds a single shard: start it without --shards, or take another directory")
    kept = read(layout)
    if len(kept.shards) > count:
        raise SiteRefused(
            f"{layout.root} holds {len(kept.shards)} shards: --shards {count} would leave workspaces behind"
        )
    site = Site(shard_names(count), kept.ports)
    shards = [layout.root / "shards", *(layout.shard(name) for name in site.shards)]
    for path in (layout.root, layout.pki, layout.proxy, *shards):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return site


def read(layout: Layout) -> Site:
    """What is kept; of a new directory nothing. Raises SiteRefused for a file that is damaged."""
    try:
        return msgspec.json.decode(layout.site_file.read_bytes(), type=Site)
    except FileNotFoundError:
        return Site((), {})
    except msgspec.DecodeError as error:
        raise SiteRefused(f"{layout.site_file} is no list of shards and ports: {error}") from error


def keep(layout: Layout, site: Site) -> None:
    """Write it down. Raises OSError."""
    write_private(layout.site_file, msgspec.json.format(msgspec.json.encode(site), indent=2) + b"\n")


@contextlib.contextmanager
def owned(layout: Layout) -> Iterator[None]:
    """Hold the directory for this process alone. Raises SiteRefused if another one has it."""
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(layout.root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SiteRefused(f"another process runs the site in {layout.root}") from None
    try:
        yield
    finally:
        os.close(descriptor)


class Ports:
    """Ports of a site, held for as long as this lives by sockets that are bound and do not listen.

    A process of ours listens beside them (SO_REUSEADDR, and SO_REUSEPORT for those with workers); the system gives a
    held port to nobody who asks for any, and who connects while our process is down is refused at once.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._held: list[socket.socket] = []

    def hold(self, port: int, *, exactly: bool = False) -> int:
        """Hold this port, or any if it is 0 or taken (`exactly`: OSError then); gives the port."""
        for asked in (port, 0) if port and not exactly else (port,):
            found = self._bound(asked, probe=bool(asked))
            if found is not None:
                self._held.append(found)
                return int(found.getsockname()[1])
        raise OSError(errno.EADDRINUSE, f"{self._host}:{port} is taken; --secure-port names another port")

    def _bound(self, port: int, *, probe: bool) -> socket.socket | None:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        if probe and not self._nobody_listens(family, port):
            return None
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((self._host, port))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        return sock

    def _nobody_listens(self, family: socket.AddressFamily, port: int) -> bool:
        """Whether we could listen alone: with SO_REUSEPORT we could be let in beside somebody who shares."""
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((self._host, port))
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Let go of all of them."""
        for sock in self._held:
            sock.close()
        self._held.clear()
