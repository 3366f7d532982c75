"""CAs of client certificates and of proxies: read from files, and reloaded when the files change.

A process that listens runs `reload_on_change` beside its server. New connections are verified with the new CAs, and a
certificate of a removed CA authenticates no request any more, on open connections too. Invariant: a file that is absent
or holds no certificate changes nothing, and is logged once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import InvalidCredentials, Pair
from atoll.machinery.process.tls import server_context

log = structlog.get_logger()

#: Interval between two looks at the files.
CHECK_EVERY_S = 1.0

#: Modification time (ns), size and inode of a file; None for a file that is absent.
FileState = tuple[int, int, int] | None


class ClientCAFiles(NamedTuple):
    """PEM files with the CAs of users, and the one with the CAs of proxies that forward identities; "" for none."""

    clients: Sequence[str] = ()
    proxies: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.clients, self.proxies)))

    def read(self) -> ClientCAs:
        """Raises InvalidCredentials, OSError."""
        return ClientCAs(b"\n".join(map(read, self.clients)), read(self.proxies))


class ClientCAs(msgspec.Struct, frozen=True):
    """PEM of the CAs of users and of proxies that forward identities; empty for none."""

    clients: bytes = b""
    proxies: bytes = b""

    def context(self, serving: Pair) -> ssl.SSLContext:
        """The TLS context of the server. `Certificates` decides by the issuing CA what a certificate is for."""
        return server_context(serving, b"\n".join(pem for pem in (self.clients, self.proxies) if pem))


def read(file: str) -> bytes:
    """The CA certificates of a PEM file; none for "". Raises InvalidCredentials, OSError."""
    if not file:
        return b""
    pem = Path(file).read_bytes()
    try:
        pki.check_cas(pem)
    except ValueError as error:
        raise InvalidCredentials(f"{file} holds no PEM certificate") from error
    return pem


class ReloadTarget(msgspec.Struct, frozen=True):
    """The parts of a server that use the CAs: `use` takes the TLS context of new connections."""

    serving: Pair
    certificates: Certificates
    use: Callable[[ssl.SSLContext], None]


async def reload_on_change(files: ClientCAFiles, current: ClientCAs, target: ReloadTarget) -> None:
    """Watch the files and reload them when they change, until cancelled."""
    seen: tuple[FileState, ...] = ()
    if not files.names:
        await asyncio.Event().wait()
    while True:
        # The first round always reads: a file may have changed between the start and this loop.
        states = tuple(_state(file) for file in files.names)
        if states != seen:
            seen = states
            current = _reload(files, current, target)
        await asyncio.sleep(CHECK_EVERY_S)


def _state(file: str) -> FileState:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reload(files: ClientCAFiles, current: ClientCAs, target: ReloadTarget) -> ClientCAs:
    try:
        found = files.read()
        if found == current:
            return current
        context = found.context(target.serving)
    except (InvalidCredentials, OSError) as error:
        log.error("client CAs not reloaded", reason=str(error))
        return current
    # Certificates first: a connection of the new context is then verified with the same CAs.
    target.certificates.trust(found.clients, found.proxies)
    target.use(context)
    log.info("client CAs reloaded")
    return found
