"""Files of a running process that are read again when they change: certificates, keys, authorities.

Processes run `on_change` beside their server. A file is looked at each second, as no notification reaches every file
system. Invariant: a file that cannot be read changes nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.process.private_files import Pair, PkiError, load_pair
from atoll.machinery.process.tls import ClientContext, client_context, public_context, server_context

log = structlog.get_logger()

#: Interval between two looks at the files.
CHECK_EVERY_S = 1.0

#: Modification time (ns), size and inode of a file; None for a file that is absent.
FileState = tuple[int, int, int] | None


async def on_change(files: Sequence[str], read: Callable[[], None]) -> None:
    """Call `read` now and after each change of one of the files, until cancelled."""
    seen: tuple[FileState, ...] = ()
    if not files:
        await asyncio.Event().wait()
    while True:
        # The first round always reads: a file may have changed between the start and this loop.
        states = tuple(_state(file) for file in files)
        if states != seen:
            seen = states
            read()
        await asyncio.sleep(CHECK_EVERY_S)


def _state(file: str) -> FileState:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ClientFiles(msgspec.Struct, frozen=True):
    """A client's context and the files that it is made of. `make` raises ValueError, PkiError, OSError."""

    files: tuple[str, ...]
    context: ClientContext
    make: Callable[[], ssl.SSLContext]

    def renew(self) -> None:
        """Have new connections use the files as they are now. Raises ValueError, PkiError, OSError."""
        self.context.replace(self.make())


def client_files(certificate: str, key: str, authorities: str) -> ClientFiles:
    """A context of these files; "" for no client certificate, and for the system's authorities.

    Raises ssl.SSLError, OSError.
    """

    def make() -> ClientContext:
        pair = Pair(Path(certificate).read_bytes(), Path(key).read_bytes()) if certificate else None
        return client_context(Path(authorities).read_bytes(), pair) if authorities else public_context(pair)

    return ClientFiles(tuple(filter(None, (certificate, key, authorities))), make(), make)


async def renew_clients(clients: Sequence[ClientFiles]) -> None:
    """Replace contexts whose files change, until cancelled."""
    renewals = (_Renewal("client certificate", client.files, client.renew) for client in clients)
    await asyncio.gather(*(each.run() for each in renewals), asyncio.Event().wait())


async def renew_server(certificate: str, key: str, clients: str, use: Callable[[ssl.SSLContext], None]) -> None:
    """Read a serving certificate and the authorities of clients again when they change, until cancelled.

    Without a certificate (""), which is then one that stays, nothing is read. `use` takes the context of new
    connections, whose clients TLS alone verifies.
    """
    files = tuple(filter(None, (certificate, key, clients))) if certificate else ()

    def renew() -> None:
        authorities = Path(clients).read_bytes() if clients else b""
        use(server_context(load_pair(Path(certificate), Path(key)), authorities))

    await _Renewal("serving certificate", files, renew).run()


class _Renewal:
    """Calls `renew` when files hold something else than at the last time. It raises ValueError, PkiError, OSError."""

    def __init__(self, what: str, files: tuple[str, ...], renew: Callable[[], None]) -> None:
        self._what, self._files, self._renew = what, files, renew
        self._last = _content(files)

    async def run(self) -> None:
        await on_change(self._files, self._read)

    def _read(self) -> None:
        found = _content(self._files)
        if found == self._last:
            return
        try:
            self._renew()
        except (ValueError, PkiError, OSError) as error:
            log.error(f"{self._what} not reloaded", reason=str(error))
            return
        self._last = found
        log.info(f"{self._what} reloaded", files=list(self._files))


def _content(files: Sequence[str]) -> list[bytes]:
    """What the files hold; nothing of those that are absent."""
    return [path.read_bytes() if path.exists() else b"" for path in map(Path, files)]
