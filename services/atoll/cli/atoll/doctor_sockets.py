"""Findings of `atoll doctor` about sockets: what a running shard of this machine listens on, and whom its NATS lets in.

The sockets are those that docs/operating.md lists for a shard and for `nats-server`. Invariant: nothing is sent to the
shard, and nothing but a greeting to NATS.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from atoll.cli.atoll.finding import FAIL, OK, WARN, Finding
from atoll.machinery.process.listen_address import is_loopback
from atoll.machinery.storage.environment.filesystem import DATA_FILE
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.credential_file import InvalidCredentialFile, read_access
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options

_TCP_LISTENS, _UNIX_LISTENS = "0A", "00010000"
_OF_WORKERS = re.compile(r"submit|m[0-9]+")
_NATS_PORT, _ANSWER_S, _LINE_BYTES = 4222, 5.0, 65_536
#: Rows of `/proc/net`: which column has the inode.
_TCP_INODE, _UNIX_INODE = 9, 6
_TABLES = ("tcp", "tcp6", "udp", "udp6")


def listeners(config: ShardConfig) -> Iterator[Finding]:
    """Check that the processes with the store of the root directory open listen on one TCP port alone, and on the
    sockets of their workers in that directory."""
    found = {each for pid in _holders(Path(store_options(config).directory)) for each in sockets(pid)}
    if not found:
        return
    ports = sorted(each for each in found if each.startswith("tcp "))
    root = Path(config.root_directory).resolve()
    other = sorted(each for each in found if not each.startswith("tcp ") and not _is_of_workers(each, root))
    unlisted = [*other, *(ports if len({each.rpartition(":")[2] for each in ports}) > 1 else ())]
    if unlisted:
        yield Finding(FAIL, "listeners", f"the shard listens on what is not documented: {', '.join(unlisted)}")
    else:
        yield Finding(OK, "listeners", f"the shard listens on {', '.join(ports) or 'no port'}, as documented")


def _is_of_workers(name: str, root: Path) -> bool:
    path = Path(name.removeprefix("unix "))
    return _OF_WORKERS.fullmatch(path.name) is not None and path.parent.resolve() == root


def _holders(store: Path) -> Iterator[int]:
    """Processes of this user that have the file of a store open."""
    wanted = str((store / DATA_FILE).resolve())
    for process in Path("/proc").glob("[0-9]*"):
        if wanted in _open_files(int(process.name)):
            yield int(process.name)


def _open_files(pid: int) -> set[str]:
    """What the descriptors of a process name; nothing of a process that ended, or of another user's."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found


def sockets(pid: int) -> set[str]:
    """What a process listens on, as in `tcp 127.0.0.1:6443` and `unix /path`, and each UDP socket of it (`udp ...`)."""
    held = _open_files(pid)

    def rows(table: str, inode: int) -> list[list[str]]:
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            return []
        return [row for row in map(str.split, lines) if f"socket:[{row[inode]}]" in held]

    found = {
        f"{table[:3]} {_address(row[1])}"
        for table in _TABLES
        for row in rows(table, _TCP_INODE)
        if table.startswith("udp") or row[3] == _TCP_LISTENS
    }
    named = (row for row in rows("unix", _UNIX_INODE) if row[3] == _UNIX_LISTENS)
    return found | {f"unix {row[7] if len(row) > 7 else ''}" for row in named}


def _address(text: str) -> str:
    """An address of `/proc/net`, whose words are in the order of the machine, as people write it."""
    words, _, port = text.partition(":")
    packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    host = socket.inet_ntop(family, packed)
    return f"[{host}]:{int(port, 16)}" if ":" in host else f"{host}:{int(port, 16)}"


# --- NATS


def nats(config: ShardConfig) -> Iterator[Finding]:
    """Check that NATS servers let nobody in without a credential, and that those of other machines take TLS alone."""
    try:
        access = _access(config)
    except (InvalidCredentialFile, msgspec.DecodeError, OSError) as error:
        yield Finding(FAIL, "nats-credential", f"it cannot be read: {error}")
        return
    for url in access.servers:
        yield from _server(access, url)


def _access(config: ShardConfig) -> Access:
    """How the shard reaches NATS; at no server before its first start."""
    if config.nats_url:
        return read_access(config.nats_url, config.nats_credentials_file)
    embedded = Path(config.root_directory) / "stream.json"
    if not embedded.exists():
        return Access([])
    return Access(msgspec.json.decode(embedded.read_bytes(), type=_Embedded).connect.servers)


class _Servers(msgspec.Struct):
    servers: list[str]


class _Embedded(msgspec.Struct):
    """What of the `stream.json` of `atoll start` names its server."""

    connect: _Servers


def _server(access: Access, url: str) -> Iterator[Finding]:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    host, port = parts.hostname or "", parts.port or _NATS_PORT
    context = ssl.create_default_context(cafile=access.ca_file or None, cadata=access.ca or None)
    try:
        greeting = _greeting(host, port, context)
    except (OSError, ValueError) as error:
        yield Finding(WARN, "nats-server-reached", f"{host}:{port} is no NATS server that answers: {error}")
        return
    if not greeting.takes_tls_alone and not is_loopback(host):
        yield Finding(FAIL, "nats-tls", f"{host}:{port} takes connections without TLS")
    if greeting.lets_in:
        yield Finding(FAIL, "nats-anonymous", f"{host}:{port} lets everybody in without a credential")
    else:
        yield Finding(OK, "nats-anonymous", f"{host}:{port} refuses connections without a credential")


class _Greeting(NamedTuple):
    """What a NATS server says to somebody without a credential."""

    takes_tls_alone: bool
    lets_in: bool


def _greeting(host: str, port: int, context: ssl.SSLContext) -> _Greeting:
    """Connect without a credential. Raises OSError, ValueError."""
    with socket.create_connection((host, port), _ANSWER_S) as raw:
        # To the byte: what follows the line may be a handshake.
        with raw.makefile("rb", buffering=0) as lines:
            kind, _, text = lines.readline(_LINE_BYTES).partition(b" ")
        if kind != b"INFO":
            raise ValueError("no greeting")
        needs_tls = bool(json.loads(text).get("tls_required"))
        if not needs_tls:
            return _Greeting(False, _answers(raw))
        with context.wrap_socket(raw, server_hostname=host) as stream:
            return _Greeting(True, _answers(stream))


def _answers(stream: socket.socket) -> bool:
    """Whether a server answers a PING without a credential."""
    stream.sendall(b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"1"}\r\nPING\r\n')
    with stream.makefile("rb") as lines:
        while line := lines.readline(_LINE_BYTES):
            if line.startswith((b"PONG", b"-ERR")):
                return line.startswith(b"PONG")
    return False
