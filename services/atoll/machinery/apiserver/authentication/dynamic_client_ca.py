"""ClientCAs of client certificates and of proxies: read from files, and taken over anew when these change.

Whoever listens runs `renew` beside its server: new connections go by the new authorities, and a certificate of one that
was taken out makes nobody any more, on connections that are open too. Invariant: a file that is absent or holds no
certificates leaves what was in force, and is told of once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.process import pki
from atoll.machinery.process.pki import Pair
from atoll.machinery.process.tls import server_context

log = structlog.get_logger()

#: How often the files are looked at.
LOOK_EVERY_S = 1.0

Stamp = tuple[int, int, int]


class InvalidCredentials(Exception):
    """A file with tokens, keys or authorities that is not what it should be; names the file, quotes nothing of it."""


class ClientCAs(msgspec.Struct, frozen=True):
    """PEM of the authorities of users and of those of proxies that speak for users; empty where there are none."""

    clients: bytes = b""
    proxies: bytes = b""

    def context(self, serving: Pair) -> ssl.SSLContext:
        """What connections are served by; which of the CAs signed a certificate decides what it is good for."""
        return server_context(serving, b"\n".join(pem for pem in (self.clients, self.proxies) if pem))


def read(file: str) -> bytes:
    """The CA certificates of a PEM file, none without one. Raises InvalidCredentials, OSError."""
    if not file:
        return b""
    pem = Path(file).read_bytes()
    try:
        pki.check_authorities(pem)
    except ValueError as error:
        raise InvalidCredentials(f"{file} holds no PEM certificate") from error
    return pem


class ReloadTarget(msgspec.Struct, frozen=True):
    """What goes by the authorities: certificates are judged, and `use` is given the context of new connections."""

    serving: Pair
    certificates: Certificates
    use: Callable[[ssl.SSLContext], None]


async def renew(files: tuple[str, str], before: ClientCAs, renewed: ReloadTarget) -> None:
    """Look at the files of clients' and proxies' authorities ("" for none) until cancelled."""
    seen: tuple[Stamp | None, ...] = ()
    if not any(files):
        await asyncio.Event().wait()
    while True:
        # What was written between the first reading and the first look is found as well: nothing is seen yet.
        stamps = tuple(_stamp(file) for file in files)
        if stamps != seen:
            seen = stamps
            before = _taken_over(files, before, renewed)
        await asyncio.sleep(LOOK_EVERY_S)


def _stamp(file: str) -> Stamp | None:
    try:
        found = Path(file).stat() if file else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None


def _taken_over(files: tuple[str, str], before: ClientCAs, renewed: ReloadTarget) -> ClientCAs:
    try:
        found = ClientCAs(*map(read, files))
        if found == before:
            return before
        context = found.context(renewed.serving)
    except (InvalidCredentials, OSError) as error:
        log.error("authorities not taken over", reason=str(error))
        return before
    # Certificates first: whoever is let in by the new context is judged by the same authorities.
    renewed.certificates.trust(found.clients, found.proxies)
    renewed.use(context)
    log.info("authorities read")
    return found
