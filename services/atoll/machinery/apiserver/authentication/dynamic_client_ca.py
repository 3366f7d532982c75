"""CAs of client certificates and of proxies, revocation lists, and the serving certificate: read from files, and again
when these change.

A process that listens runs `reload_on_change` beside its server. New connections are verified with the new CAs, and a
certificate of a removed CA authenticates no request any more, on open connections too; requests in progress with it go
on, but those with a revoked certificate are cut. Invariant: a file that is absent or holds no certificate (no list)
changes nothing, and is logged once.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.process import file_watch, pki, revocation
from atoll.machinery.process.private_files import InvalidCredentials, Pair, PkiError, load_pair
from atoll.machinery.process.revocation import Revoked
from atoll.machinery.process.tls import server_context
from atoll.machinery.wire.exchange import HttpRequest

log = structlog.get_logger()


class ClientCAFiles(NamedTuple):
    """PEM files with the CAs of users, and the one with the CAs of proxies that forward identities; "" for none.

    `serving` are those of the serving certificate and its key; empty for one that stays. `revoked` has the revocation
    lists of client certificates; "" for none.
    """

    clients: Sequence[str] = ()
    proxies: str = ""
    serving: tuple[str, str] = ("", "")
    revoked: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.clients, self.proxies, *self.serving, self.revoked)))

    def read(self) -> ClientCAs:
        """Raises InvalidCredentials, OSError."""
        return ClientCAs(b"\n".join(map(read, self.clients)), read(self.proxies), _read_revoked(self.revoked))


class ClientCAs(msgspec.Struct, frozen=True):
    """PEM of the CAs of users and of proxies that forward identities; empty for none. And what is revoked."""

    clients: bytes = b""
    proxies: bytes = b""
    revoked: Revoked = frozenset()

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


def _read_revoked(file: str) -> Revoked:
    try:
        return revocation.read(Path(file).read_bytes()) if file else frozenset()
    except ValueError as error:
        raise InvalidCredentials(f"{file} holds no PEM revocation list") from error


class Listening(Protocol):
    """The server whose clients are verified."""

    def use(self, ssl_context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections."""

    def cut_requests(self, refused: Callable[[HttpRequest], bool]) -> None:
        """Cut the connections whose request in progress is refused."""


class ReloadTarget(msgspec.Struct, frozen=True):
    """The parts of a server that use the CAs."""

    serving: Pair
    certificates: Certificates
    server: Listening


async def reload_on_change(files: ClientCAFiles, current: ClientCAs, target: ReloadTarget) -> None:
    """Watch the files and reload them when they change, until cancelled."""
    serving = target.serving

    def read() -> None:
        nonlocal current, serving
        current, serving = _reload(files, current, serving, target)

    await file_watch.on_change(files.names, read)


def _reload(files: ClientCAFiles, current: ClientCAs, serving: Pair, target: ReloadTarget) -> tuple[ClientCAs, Pair]:
    try:
        found = files.read()
        pair = load_pair(*map(Path, files.serving)) if files.serving[0] else serving
        if (found, pair) == (current, serving):
            return current, serving
        context = found.context(pair)
    except (InvalidCredentials, PkiError, OSError) as error:
        log.error("client CAs not reloaded", reason=str(error))
        return current, serving
    # Certificates first: a connection of the new context is then verified with the same CAs.
    if found != current:
        target.certificates.trust(found.clients, found.proxies, found.revoked)
    target.server.use(context)
    if not found.revoked <= current.revoked:
        target.server.cut_requests(partial(_is_revoked, target.certificates))
    log.info("client CAs reloaded" if found != current else "serving certificate reloaded")
    return found, pair


def _is_revoked(certificates: Certificates, request: HttpRequest) -> bool:
    der = request.peer.certificate
    return der is not None and certificates.is_revoked(der)
