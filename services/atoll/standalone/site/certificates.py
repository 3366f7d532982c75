"""The certificates and credentials of a site on several machines: one directory a process.

`atoll certs` calls it. Below the directory: `pki/` and `nats/` are of who runs the site (the authorities' keys, and
those of all processes), `admin.kubeconfig` is an administrator's, and `<process>/` is copied to the machine of that
process; its `settings.yaml` (for `--config`) names the other files. Everything is made by the functions that
`atoll start --shards` uses. Invariants: `write` may be repeated, replaces nothing that is valid, and completes what was
cut off; a file changes only when its content does.
"""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from atoll.machinery.kcp.bootstrap import batteries
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process.private_files import PkiError, write_private
from atoll.machinery.stream.credential_file import Reach
from atoll.machinery.stream.permissions import shard_user
from atoll.machinery.stream.server.cluster import ClusterServer
from atoll.machinery.stream.server.config import STREAMS_BYTES, TlsFiles
from atoll.standalone.site import credentials, inventory, process_files
from atoll.standalone.site.credentials import ACCOUNT_KEY, AUTHORITIES, Authorities, credential_path
from atoll.standalone.site.gateways import gateway_users, tenant_options, write_for_shards
from atoll.standalone.site.inventory import Inventory, SiteProcess
from atoll.standalone.site.layout import PROXY, Layout
from atoll.standalone.site.nats_servers import cluster_options, write_servers
from atoll.standalone.site.process_files import ProcessFile

SETTINGS = "settings.yaml"
#: The authority of the NATS servers, beside the credentials that name it.
NATS_CA = "nats-ca.crt"
#: Where a server that runs elsewhere keeps its streams, and how far behind the clients' port that of routes is.
NATS_STORE, ROUTE_PORT = Path("/var/lib/atoll/nats"), 2000
#: What signs, and is replaced in steps.
SIGNERS = (*AUTHORITIES, ACCOUNT_KEY)
ADMIN, NATS = "admin", "nats"
_ADMINS = ("kcp-admin", "shard-admin")


def write(layout: Layout, site: Inventory) -> None:
    """Make what is missing or due, and bring the directory of every process up to date. Raises PkiError, OSError."""
    cas = credentials.authorities(layout)
    for process in site.processes:
        _write_pairs(layout, cas, site, process)
    if ROOT in site.shards:
        credentials.write_shared(layout, cas, site.shards, _urls(site), batteries.DEFAULT)
    _write_nats(layout, cas, site)
    for process in site.processes:
        _write_directory(layout, site, process)


def renew(layout: Layout, site: Inventory, name: str) -> None:
    """Replace the certificates of a process, of `admin`, or of `all`; or the passwords of all users of NATS, `nats`.

    Raises InventoryError, PkiError, OSError.
    """
    if name == NATS:
        credentials.renew_passwords(layout.nats)
        write(layout, site)
        return
    chosen = [process for process in site.processes if name in {process.name, "all"}]
    if not chosen and name != ADMIN:
        raise inventory.InventoryError(f"there is no process {name}")
    users = _ADMINS if name in {ADMIN, "all"} else ()
    for pair in (*users, *(pair for process in chosen for pair in _pairs(process))):
        layout.certificate(pair).unlink(missing_ok=True)
    write(layout, site)


def is_written(layout: Layout, site: Inventory) -> bool:
    """Whether the directories of all processes have their files as they are made. Raises OSError."""
    files = [
        (layout.root / each.name / file.name, file.source)
        for each in site.processes
        for file in _files(layout, site, each)
    ]
    made = [(copy, source) for copy, source in files if source.exists()]
    return all(copy.exists() and copy.read_bytes() == source.read_bytes() for copy, source in made)


def replace_signer(layout: Layout, site: Inventory, name: str, *, is_cut_off: bool) -> bool:
    """The next step of replacing an authority or the service account key; return whether the new one signs now.

    The first call has it trusted, the second has it sign. If the call before was cut off (not `is_written`), this one
    completes it: what is not trusted everywhere must not sign. Raises PkiError, OSError.
    """
    write(layout, site)
    signer = credentials.signer(layout, name)
    if is_cut_off and (signer.is_prepared or len(signer.trusted) > 1):
        return not signer.is_prepared
    signs = signer.is_prepared
    if signs:
        signer.promote()
    else:
        signer.prepare(lambda: credentials.make_authority(name))
    write(layout, site)
    return signs


def retire(layout: Layout, site: Inventory, name: str) -> int:
    """End the trust in what an authority or a key replaced; return how many these were. Raises PkiError, OSError."""
    count = credentials.signer(layout, name).retire()
    write(layout, site)
    return count


def revoke(layout: Layout, site: Inventory, file: Path) -> None:
    """Revoke the client certificate in a PEM file. Raises PkiError, OSError."""
    credentials.revoke(layout, credentials.authorities(layout), [file.read_bytes()])
    write(layout, site)


def revoke_admins(layout: Layout, site: Inventory) -> None:
    """Revoke the certificates in admin.kubeconfig, and put new ones there. Raises PkiError, OSError."""
    _revoke_pairs(layout, _ADMINS)
    renew(layout, site, ADMIN)


def _revoke_pairs(layout: Layout, names: Iterable[str]) -> None:
    paths = [path for path in map(layout.certificate, names) if path.exists()]
    credentials.revoke(layout, credentials.authorities(layout), [path.read_bytes() for path in paths])


def remove(layout: Layout, site: Inventory, name: str) -> Inventory:
    """Take a process out of the site, with its directory, its pairs, which are revoked, and its NATS user; return the
    site.

    Raises InventoryError, PkiError, OSError.
    """
    rest = site.without(name)
    process = next(each for each in site.processes if each.name == name)
    _revoke_pairs(layout, (pair for pair in _pairs(process) if pair != f"serving-{name}"))
    for pair in _pairs(process):
        layout.certificate(pair).unlink(missing_ok=True)
        layout.key(pair).unlink(missing_ok=True)
    _credential(layout, process).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(layout.root / name)
    write(layout, rest)
    return rest


def _urls(site: Inventory) -> dict[str, str]:
    root = next(process for process in site.processes if (process.kind, process.name) == (inventory.SHARD, ROOT))
    return {PROXY: site.external_url, ROOT: f"https://{root.address}"}


def _pairs(process: SiteProcess) -> list[str]:
    """The pairs that only this process has."""
    others = {
        inventory.SHARD: [f"proxy-{process.name}", f"shard-{process.name}"],
        inventory.PROXY: [f"proxy-{process.name}"],
        inventory.CACHE: [process_files.cache_user(process.name)],
    }
    return [f"serving-{process.name}", *others.get(process.kind, [])]


def _write_pairs(layout: Layout, cas: Authorities, site: Inventory, process: SiteProcess) -> None:
    host = urlsplit(site.external_url).hostname or ""
    outside = {inventory.PROXY: [host], inventory.NATS: [urlsplit(url).hostname or "" for url in site.events_urls]}
    names = [*process.names, *outside.get(process.kind, [])]
    make = credentials.peer_pair if process.kind == inventory.NATS else credentials.serving_pair
    make(layout, cas, process.name, list(dict.fromkeys(names)))
    if process.kind in {inventory.SHARD, inventory.PROXY}:
        credentials.proxy_pair(layout, cas, process.name)
    if process.kind == inventory.CACHE:
        credentials.client_pair(layout, cas, process_files.cache_user(process.name), MASTERS)


def _write_nats(layout: Layout, cas: Authorities, site: Inventory) -> None:
    """Write the users of NATS as `atoll nats-config` does: what either of them made stays."""
    # One server is what `--nats-url` says, as `atoll nats-config` has it.
    reach = Reach(NATS_CA if site.nats_url else "", site.nats_urls if len(site.nats_urls) > 1 else ())
    if reach.ca_file:
        _write(layout.nats / NATS_CA, cas.serving.certificate)
    readers, gateways = site.of(inventory.PROXY, inventory.CACHE), site.of(inventory.GATEWAY)
    users = credentials.nats_users(layout.nats, site.shards, readers, reach)
    users += credentials.edge_users(layout.nats, site.shards, site.of(inventory.EDGE), reach)
    users += gateway_users(layout.nats, gateways, reach)
    tenants = tenant_options(layout.nats, site.shards) if gateways else None
    if tenants is not None:
        ca = layout.nats / NATS_CA
        tls = TlsFiles(ca, ca, ca) if reach.ca_file else None
        write_for_shards(layout.nats, tenants, site.events_urls or site.nats_urls, tls)
    servers = [_nats_server(layout, site, process) for process in site.processes if process.kind == inventory.NATS]
    if servers:
        options = cluster_options(layout.nats, servers, max(len(site.shards), 1) * STREAMS_BYTES, reach)
        write_servers(layout.root, options, users, tenants)


def _nats_server(layout: Layout, site: Inventory, process: SiteProcess) -> ClusterServer:
    """A NATS server, by the paths on its machine. It listens on all addresses unless its own is loopback."""
    host, port = process.address.rsplit(":", 1)[0].strip("[]"), process.port
    home = _installed(layout, site, process)
    tls = TlsFiles(home / "serving.crt", home / "serving.key", home / "serving-ca.crt")
    store = NATS_STORE if site.installed_at else home / "store"
    return ClusterServer(process.name, host, port, port + ROUTE_PORT, store, _listens_on(host), tls)


def _credential(layout: Layout, process: SiteProcess) -> Path:
    user = shard_user(process.name) if process.kind == inventory.SHARD else process.name
    return credential_path(layout.nats, user)


def _files(layout: Layout, site: Inventory, process: SiteProcess) -> list[ProcessFile]:
    """The files of a process, but for its settings."""
    if process.kind == inventory.NATS:
        return process_files.nats_server_files(layout, process.name)
    files = _FILES[process.kind](layout, process.name, _credential(layout, process))
    if process.kind == inventory.SHARD and site.of(inventory.GATEWAY):
        files.append(process_files.subscriptions_file(layout.nats))
    return [*files, ProcessFile("", NATS_CA, layout.nats / NATS_CA)] if site.nats_url else files


_FILES = {
    inventory.SHARD: process_files.shard_files,
    inventory.PROXY: process_files.proxy_files,
    inventory.CACHE: process_files.cache_server_files,
    inventory.GATEWAY: process_files.gateway_files,
    inventory.EDGE: process_files.edge_files,
}


def _write_directory(layout: Layout, site: Inventory, process: SiteProcess) -> None:
    directory = layout.root / process.name
    # The service account key and the kubeconfigs are there once the root shard is.
    files = [file for file in _files(layout, site, process) if file.source.exists()]
    for file in files:
        _write(directory / file.name, file.source.read_bytes())
    if process.kind != inventory.NATS:
        installed = _installed(layout, site, process)
        text = yaml.safe_dump({**_named(site, process), **process_files.settings_of(files, installed)})
        _write(directory / SETTINGS, text.encode())


def _listens_on(host: str) -> str:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    return "0.0.0.0"


def _installed(layout: Layout, site: Inventory, process: SiteProcess) -> Path:
    """The directory of a process on its machine."""
    return Path(site.installed_at.replace("{name}", process.name)) if site.installed_at else layout.root / process.name


def _named(site: Inventory, process: SiteProcess) -> dict[str, object]:
    """The settings that follow from the names of hosts."""
    found: dict[str, object] = {"nats_url": site.nats_url} if site.nats_url else {}
    if process.port:
        found["secure_port"] = process.port
    if process.kind == inventory.SHARD:
        found["shard_name"] = process.name
        found["shard_base_url"] = f"https://{process.address}"
        found["shard_external_url"] = site.external_url
        # Administrators have certificates, so a shard needs no tokens for them.
        found["batteries_included"] = f"-{batteries.ADMIN}"
    return found


def _write(path: Path, content: bytes) -> None:
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    write_private(path, content)


def check(layout: Layout) -> None:
    """Raise PkiError if the directory belongs to `atoll start`, whose files have other names."""
    if layout.site_file.exists() or (layout.root / "store").exists():
        raise PkiError(f"{layout.root} holds a running site or shard: take another directory")
