"""The listen address of a process: validation, names in URLs and certificates, and the port.

The settings of every listening process are validated here, and the processes take their ports here. Invariant: a
process without a configured port listens on the port of its last start if that is free, because clients have stored it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from atoll.machinery.process.private_files import write_private

#: File in the root directory of a process with the port of its last start.
PORT_FILE = "secure-port"


def check_listen_address(bind_address: str, secure_port: int) -> None:
    """Raise ValueError for an invalid address or port."""
    if not 0 <= secure_port <= 65535:
        raise ValueError(f"secure-port {secure_port} is not between 0 and 65535")
    try:
        ipaddress.ip_address(bind_address)
    except ValueError as error:
        raise ValueError(f"bind-address {bind_address!r} is not an IP address") from error


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an address, is this machine by its loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_host(bind_address: str) -> str:
    """The host in URLs of clients on this machine for a process that listens on an IP address."""
    address = ipaddress.ip_address(bind_address)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def serving_names(bind_address: str, more: Iterable[str] = ()) -> list[str]:
    """Names for the serving certificate of a process that listens on an IP address, without duplicates.

    They are the local names, those of this machine if the address is reachable by them, and `more`, in a stable order.
    """
    address = ipaddress.ip_address(bind_address)
    outside = [socket.gethostname(), socket.getfqdn()] if address.is_unspecified else [str(address)]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *outside, *more]))


async def take_port(
    listen: Callable[[int], Awaitable[int]], bind_address: str, secure_port: int, directory: Path
) -> int:
    """Listen on a port; 0 takes the port of the last start, or any if that is not free.

    Return the port, which is stored in the directory. Raises OSError with a text for the operator.
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
