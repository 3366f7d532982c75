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
    await asyncio.gather(*(_Renewal(client).run() for client in clients), asyncio.Event().wait())


async def renew_server(certificate: str, key: str, clients: str, use: Callable[[ssl.SSLContext], None]) -> None:
    """Read a serving certificate and the authorities of clients again when they change, until cancelled.

    Without a certificate (""), which is then one that stays, nothing is read. `use` takes the context of new
    connections, whose clients TLS alone verifies.
    """
    files = tuple(filter(None, (certificate, key, clients))) if certificate else ()
    last = _content(files)

    def read() -> None:
        nonlocal last
        found = _content(files)
        if found == last:
            return
        try:
            authorities = Path(clients).read_bytes() if clients else b""
            use(server_context(load_pair(Path(certificate), Path(key)), authorities))
        except (ValueError, PkiError, OSError) as error:
            log.error("serving certificate not reloaded", reason=str(error))
            return
        last = found
        log.info("serving certificate reloaded")

    await on_change(files, read)


class _Renewal:
    def __init__(self, client: ClientFiles) -> None:
        self._client = client
        self._read = _content(client.files)

    async def run(self) -> None:
        await on_change(self._client.files, self._renew)

    def _renew(self) -> None:
        client, found = self._client, _content(self._client.files)
        if found == self._read:
            return
        try:
            client.context.replace(client.make())
        except (ValueError, PkiError, OSError) as error:
            log.error("client certificate not reloaded", reason=str(error))
            return
        self._read = found
        log.info("client certificate reloaded", files=list(client.files))


def _content(files: Sequence[str]) -> list[bytes]:
    """What the files hold; nothing of those that are absent."""
    return [path.read_bytes() if path.exists() else b"" for path in map(Path, files)]
