"""The processes of a site on several machines, and their hosts: what `atoll certs` was told.

Stored as `certs.json` beside the certificates. A process is written `KIND/NAME=HOST[,HOST...]`, as in
`shard/eu-1=eu-1.example:6443`; its first host, with the port, is where others find it. Invariant: a name belongs to one
process, and the site has one shard `root` at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.meta.names import ROOT
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.permissions import OPERATOR, reader_user, shard_user
from atoll.machinery.stream.server.cluster import ROUTE_USER, SYSTEM_USER

SHARD, PROXY, CACHE, GATEWAY = "shard", "front-proxy", "cache-server", "event-gateway"
EDGE, NATS = "edge-controllers", "nats-server"
#: Each kind of process, with its port where none is given.
PORTS = {SHARD: 6443, PROXY: 443, CACHE: 6445, GATEWAY: 0, EDGE: 0, NATS: 4222}
#: Names of what else is in the directory.
RESERVED = ("pki", "nats", "all", "admin")
FILE = "certs.json"


class InventoryError(Exception):
    """A process, or a stored list of them, that cannot be used, with the reason."""


class SiteProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process: its hosts are names or addresses, the first with a port or without."""

    kind: str
    name: str
    hosts: tuple[str, ...]

    @property
    def address(self) -> str:
        """Host and port where others find it."""
        host, port = _split(self.hosts[0])
        return f"[{host}]:{port or PORTS[self.kind]}" if ":" in host else f"{host}:{port or PORTS[self.kind]}"

    @property
    def port(self) -> int:
        """The port where others find it."""
        return _split(self.hosts[0])[1] or PORTS[self.kind]

    @property
    def names(self) -> list[str]:
        """The names of its serving certificate; those of its own machine are for health checks."""
        return list(dict.fromkeys([*(_split(host)[0] for host in self.hosts), "localhost", "127.0.0.1", "::1"]))


class Inventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site: the URL of its front proxies, its processes, and where their files will be: empty, as made.

    At `events_urls` subscribers of events find the NATS servers; empty: at the servers' own addresses."""

    external_url: str
    processes: tuple[SiteProcess, ...] = ()
    installed_at: str = ""
    events_urls: tuple[str, ...] = ()

    def of(self, *kinds: str) -> list[str]:
        """The names of the processes of some kinds."""
        return [process.name for process in self.processes if process.kind in kinds]

    @property
    def shards(self) -> list[str]:
        """The names of the shards, the root shard first."""
        return sorted(self.of(SHARD), key=lambda name: name != ROOT)

    @property
    def nats_url(self) -> str:
        """Where processes find NATS, whose credential files list all servers; empty without one of the site."""
        return next(iter(self.nats_urls), "")

    @property
    def nats_urls(self) -> tuple[str, ...]:
        """The NATS servers of the site, for clients."""
        return tuple(f"tls://{process.address}" for process in self.processes if process.kind == NATS)

    def with_processes(self, more: Iterable[SiteProcess]) -> Inventory:
        """This site with processes more, or with other hosts. Raises InventoryError."""
        found = {process.name: process for process in self.processes}
        for process in more:
            if (earlier := found.get(process.name)) is not None and earlier.kind != process.kind:
                raise InventoryError(f"{process.name} is the name of a {earlier.kind}")
            found[process.name] = process
        users = {user(name) for name in self.of(SHARD) for user in (shard_user, reader_user)}
        users |= {OPERATOR, ROUTE_USER, SYSTEM_USER}
        if clash := users & found.keys():
            raise InventoryError(f"{min(clash)} is the name of a user of NATS")
        return msgspec.structs.replace(self, processes=tuple(found.values()))

    def without(self, name: str) -> Inventory:
        """This site without a process. Raises InventoryError."""
        rest = tuple(process for process in self.processes if process.name != name)
        if len(rest) == len(self.processes):
            raise InventoryError(f"there is no process {name}")
        return msgspec.structs.replace(self, processes=rest)


def parse(text: str) -> SiteProcess:
    """The process that an argument names. Raises InventoryError."""
    what, equals, hosts = text.partition("=")
    kind, slash, name = what.partition("/")
    found = tuple(host for host in (part.strip() for part in hosts.split(",")) if host)
    if not (equals and slash and found):
        raise InventoryError(f"{text!r} is no process as in shard/eu-1=eu-1.example:6443")
    if kind not in PORTS:
        raise InventoryError(f"{kind!r} is no kind of process: {', '.join(PORTS)}")
    if errors := dns_label_errors(name):
        raise InventoryError(f"{name!r} is no name: {errors[0]}")
    if name in RESERVED:
        raise InventoryError(f"{name!r} cannot be the name of a process")
    for host in found:
        _split(host)
    return SiteProcess(kind, name, found)


def check_events_url(url: str) -> None:
    """Raise InventoryError unless subscribers of events can be sent to this URL."""
    scheme, _, host = url.partition("://")
    if scheme != "tls" or not _split(host)[1]:
        raise InventoryError(f"events-url {url!r} is no URL as in tls://events.example:4222")


def read(directory: Path) -> Inventory | None:
    """The stored site; None in a new directory. Raises InventoryError, OSError."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Inventory)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InventoryError(f"{directory / FILE} is no list of processes: {error}") from error


def write(directory: Path, site: Inventory) -> None:
    """Store the site. Raises OSError."""
    write_private(directory / FILE, msgspec.json.format(msgspec.json.encode(site), indent=2) + b"\n")


def _split(host: str) -> tuple[str, int]:
    """A host and its port, 0 without one. Raises InventoryError."""
    try:
        # An IPv6 address without brackets has no port.
        parts = urlsplit(f"//[{host}]" if host.count(":") > 1 and not host.startswith("[") else f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise InventoryError(f"{host!r} is no host: {error}") from error
    if not name or " " in name or parts.path or parts.username is not None:
        raise InventoryError(f"{host!r} is no host, as in eu-1.example or eu-1.example:6443")
    return name, port or 0
