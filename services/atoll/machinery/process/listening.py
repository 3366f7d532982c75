"""Where a process listens: what may be said of it, what it is called in URLs and certificates, and which port it keeps.

The settings of every process that listens check themselves here, and the processes take their ports here. Invariant: a
process that was given no port comes back at the one that it had, if that is free, since clients wrote it down.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from atoll.machinery.process.pki import write_private

#: In the root directory of a process: the port that it was given when it asked for any.
PORT_FILE = "secure-port"


def check_place(bind_address: str, secure_port: int) -> None:
    """Raises ValueError for settings that nobody can listen by."""
    if not 0 <= secure_port <= 65535:
        raise ValueError(f"secure-port {secure_port} is not between 0 and 65535")
    try:
        ipaddress.ip_address(bind_address)
    except ValueError as error:
        raise ValueError(f"bind-address {bind_address!r} is not an IP address") from error


def url_host(bind_address: str) -> str:
    """Where clients on this machine find who listens at an IP address, as it stands in a URL."""
    address = ipaddress.ip_address(bind_address)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def serving_names(bind_address: str, more: Iterable[str] = ()) -> list[str]:
    """Names in the serving certificate of who listens at an IP address: this machine's, as far as others may come in,
    and `more`. Each once, in a steady order."""
    address = ipaddress.ip_address(bind_address)
    outside = [socket.gethostname(), socket.getfqdn()] if address.is_unspecified else [str(address)]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *outside, *more]))


async def take_port(
    listen: Callable[[int], Awaitable[int]], bind_address: str, secure_port: int, directory: Path
) -> int:
    """Listen at the port asked for; 0 takes the one of the last start, or any if that is not free.

    Gives the port, which is kept in the directory. Raises OSError, which says what to do about it.
    """
    file = directory / PORT_FILE
    if not secure_port:
        with contextlib.suppress(OSError, ValueError):
            return await listen(int(file.read_text()))
    try:
        port = await listen(secure_port)
    except OSError as error:
        where = f"{bind_address}:{secure_port} cannot be listened on ({error.strerror})"
        raise OSError(error.errno, f"{where}; --secure-port names another port, 0 picks a free one") from error
    write_private(file, b"%d\n" % port)
    return port
