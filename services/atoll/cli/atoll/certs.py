"""`atoll certs`: the certificates and credentials of a site on several machines.

Called by `main`. Every command may be repeated: it keeps what is valid, renews what ends within 30 days, and completes
what was cut off. Invariant: no key and no password is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from atoll.cli.atoll import certs_secrets
from atoll.cli.atoll.output import fail
from atoll.machinery.client.target import KubeconfigError
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.private_files import PkiError
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.wire.pending_response import ClientError
from atoll.standalone.site import certificates, inventory, layout
from atoll.standalone.site.certificates import SIGNERS
from atoll.standalone.site.expiry import expiries
from atoll.standalone.site.inventory import Inventory, InventoryError
from atoll.standalone.site.layout import Layout, SiteError

_PROCESS = "KIND/NAME=HOST[:PORT][,HOST...], as in shard/eu-1=eu-1.example:6443; kinds: " + ", ".join(inventory.PORTS)

_NEXT = "once all processes have their files:"
_NEXT_LIST = "once all processes have their client.crl"


def run(arguments: Sequence[str]) -> int:
    """Run one of the commands. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    here = layout.of(found.directory)
    try:
        certificates.check(here)
        with layout.locked(here):
            return _COMMANDS[found.command](here, found)
    except _FAILURES as error:
        return fail(str(error) or type(error).__name__)


_FAILURES = (
    *(OSError, ValueError, PkiError, SiteError, InventoryError, InvalidCredentialFile),
    *(KubeconfigError, ApiError, ClientError, TimeoutError),
)


def _init(here: Layout, found: argparse.Namespace) -> int:
    return _store(here, _wanted(here, found))


def _wanted(here: Layout, found: argparse.Namespace) -> Inventory:
    """The stored site, or a new one, with what the arguments say of it."""
    parts = urlsplit(found.external_url)
    if parts.scheme != "https" or not parts.hostname or parts.path:
        raise InventoryError(f"external-url {found.external_url!r} is no URL as in https://atoll.example")
    for url in found.events_url:
        inventory.check_events_url(url)
    earlier = inventory.read(here.root) or Inventory(found.external_url)
    site = msgspec.structs.replace(
        earlier, external_url=found.external_url, installed_at=found.installed_at, events_urls=tuple(found.events_url)
    )
    return site.with_processes(map(inventory.parse, found.processes))


def _secrets(here: Layout, found: argparse.Namespace) -> int:
    return asyncio.run(certs_secrets.write(here, found, lambda: _wanted(here, found)))


def _add(here: Layout, found: argparse.Namespace) -> int:
    return _store(here, _site(here).with_processes(map(inventory.parse, found.processes)))


def _store(here: Layout, site: Inventory) -> int:
    inventory.write(here.root, site)
    certificates.write(here, site)
    sys.stdout.write("".join(f"{here.root / process.name}\n" for process in site.processes))
    return 0


def _list(here: Layout, found: argparse.Namespace) -> int:
    site = _site(here)
    names = [process.name for process in site.processes]
    rows = [("PROCESS", "FILE", "SUBJECT", "ENDS", "DAYS")]
    for each in expiries(here.root, names):
        rows.append((each.process, each.file, each.subject, f"{each.ends:%Y-%m-%dT%H:%M:%SZ}", str(each.days)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        sys.stdout.write("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() + "\n")
    return 0


def _renew(here: Layout, found: argparse.Namespace) -> int:
    site = _site(here)
    is_cut_off = not certificates.is_written(here, site)
    certificates.write(here, site)
    for name in found.names:
        if name not in SIGNERS:
            certificates.renew(here, site, name)
        elif certificates.replace_signer(here, site, name, is_cut_off=is_cut_off):
            sys.stdout.write(f"{name}: the new one signs; {_NEXT} certs revoke {name}\n")
        else:
            sys.stdout.write(f"{name}: the new one is trusted; {_NEXT} certs renew {name}\n")
    return 0


def _revoke(here: Layout, found: argparse.Namespace) -> int:
    site = _site(here)
    for name in found.names:
        if name in SIGNERS:
            count = certificates.retire(here, site, name)
            sys.stdout.write(f"{name}: {count} earlier ones are not trusted any more\n")
        elif name == certificates.ADMIN:
            certificates.revoke_admins(here, site)
            sys.stdout.write(f"{name}: earlier ones are revoked {_NEXT_LIST}\n")
        elif Path(name).suffix:
            certificates.revoke(here, site, Path(name))
            sys.stdout.write(f"{name}: revoked {_NEXT_LIST}\n")
        else:
            site = certificates.remove(here, site, name)
            inventory.write(here.root, site)
    return 0


def _site(here: Layout) -> Inventory:
    site = inventory.read(here.root)
    if site is None:
        raise InventoryError(f"{here.root} holds no certificates of a site: atoll certs init makes them")
    return site


_COMMANDS: dict[str, Callable[[Layout, argparse.Namespace], int]] = {
    "init": _init,
    "add": _add,
    "list": _list,
    "renew": _renew,
    "revoke": _revoke,
    "secrets": _secrets,
}


def _parser() -> argparse.ArgumentParser:
    text = "Make the certificates and credentials of a site on several machines, one directory a process."
    parser = argparse.ArgumentParser(prog="atoll certs", description=text, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = commands.add_parser("init", help="make the authorities, and the files of processes", allow_abbrev=False)
    more = commands.add_parser("add", help="make the files of processes more, or for other hosts", allow_abbrev=False)
    secrets = commands.add_parser(
        "secrets", help="make a site of these processes alone, as Secrets of Kubernetes", allow_abbrev=False
    )
    for command in (made, secrets):
        command.add_argument("--external-url", required=True, help="URL of the front proxies, for clients")
        command.add_argument(
            "--events-url",
            action="append",
            default=[],
            help="URL of NATS for subscribers of events who do not reach the servers' own addresses, as in"
            " tls://events.example:4222; may be repeated",
        )
        command.add_argument(
            "--installed-at", default="", help="directory of its files on each machine; {name}: its name"
        )
    certs_secrets.add_flags(secrets)
    for command, least in ((made, "*"), (more, "+"), (secrets, "+")):
        command.add_argument("processes", nargs=least, metavar="PROCESS", help=_PROCESS)
    listed = commands.add_parser("list", help="print the certificates and their ends", allow_abbrev=False)
    new = commands.add_parser("renew", help="renew what ends soon, and what is named", allow_abbrev=False)
    new.add_argument(
        "names", nargs="*", metavar="NAME", help=f"a process, admin, all, nats (passwords), or {', '.join(SIGNERS)}"
    )
    ended = commands.add_parser(
        "revoke", help="take processes out, revoke client certificates, or end the trust in earlier authorities"
    )
    ended.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help=f"a process, admin, the file of a client certificate as in ./alice.crt, or {', '.join(SIGNERS)}",
    )
    for command in (made, more, listed, new, ended, secrets):
        command.add_argument("--directory", required=True, help="where certificates are made and kept")
    return parser
