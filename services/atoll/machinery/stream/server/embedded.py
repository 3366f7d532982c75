"""The embedded nats-server: a child process from a wheel, supervised for as long as this process lives.

`atoll start` enters it and passes the access to the publisher; `stream.json` beside it serves the operator's own
programs. A child that dies is restarted after a back-off, with the same port and passwords; one that stands still is
killed; one that runs reads its certificate again when that changes. Invariant: at most one server on a store directory,
and none that outlives this process, even if it is killed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.file_watch import on_change
from atoll.machinery.process.listen_address import url_host
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.connection import Access, TooOld, check_version
from atoll.machinery.stream.server.config import (
    ListenOptions,
    NatsUser,
    ServerSecrets,
    TenantOptions,
    TlsFiles,
    builtin_users,
    load_secrets,
    server_config,
    stream_file,
)
from atoll.machinery.stream.server.process import (
    ServerFailed,
    ServerInfo,
    die_with_parent,
    find_binary,
    read_server_info,
    reserve_port,
    stop_orphan,
)
from atoll.machinery.stream.server.silence import Probing, answers, until_silent

__all__ = ["EmbeddedServer", "ServerFailed", "ServerOptions", "find_binary"]

log = structlog.get_logger()

_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_HEALTHY_S = 30.0


class ServerOptions(msgspec.Struct, frozen=True):
    """`directory` belongs to the server alone. `port` 0 keeps the last one, or picks a free one at first.

    `shard` comes with users for itself and the operator; empty for the server of a site, where `users` are all.
    `memory_limit_bytes` is far above what subscribers need, 0.15 MB each: close to it a server only collects garbage.
    """

    directory: Path
    shard: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    credentials_file: Path | None = None
    event_keys: tuple[str, ...] = ()
    users: tuple[NatsUser, ...] = ()
    tenants: TenantOptions | None = None
    tls: TlsFiles | None = None
    memory_limit_bytes: int = 1 << 30
    store_limit_bytes: int = 16 << 30
    backoff: Backoff = Backoff(0.1, 5.0, least=1.0)
    probing: Probing = Probing()


class EmbeddedServer:
    """An async context manager. `access` is that of the shard in the options; `restarts` counts deaths survived."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._binary = find_binary()
        self._config = options.directory / "server.conf"
        self._pid_file = options.directory / "server.pid"
        self._secrets: ServerSecrets | None = None
        self._users: list[NatsUser] = []
        #: The certificate and the key that the child has read.
        self._served: list[bytes] = []
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._came_up = asyncio.Event()
        #: The child that was ready: one that starts may read its store for long.
        self._ready_pid = 0
        self._reserved: socket.socket | None = None
        self.restarts = 0

    @property
    def access(self) -> Access:
        assert self._secrets is not None, "started"
        return builtin_users(self._options.shard, self._secrets)[0].access(self.address, self._options.tls)

    @property
    def address(self) -> str:
        assert self._secrets is not None, "started"
        scheme = "tls" if self._options.tls else "nats"
        return f"{scheme}://{url_host(self._options.host)}:{self._secrets.port}"

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
        await stop_orphan(self._pid_file, self._config)
        try:
            self._prepare()
            await self._spawn()
        except BaseException:
            await self.stop()
            raise
        self._supervisor = asyncio.ensure_future(self._look_after())

    async def restart(self) -> None:
        """Kill a child that hangs; it is restarted like one that died. Raises TimeoutError if it does not come up."""
        process = self._process
        self._came_up.clear()
        if process is not None and process.returncode is None:
            process.kill()
        async with asyncio.timeout(_READY_TIMEOUT_S):
            await self._came_up.wait()

    async def stop(self) -> None:
        """End the child: SIGTERM, then SIGKILL."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
            self._supervisor = None
        await self._end()
        self._release()

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _prepare(self) -> None:
        options, path = self._options, self._options.directory / "secrets.json"
        saved = load_secrets(path, options.port)
        saved = self._secrets = msgspec.structs.replace(saved, port=self._reserve(saved.port))
        write_private(path, msgspec.json.encode(saved))
        own = builtin_users(options.shard, saved) if options.shard else []
        # The one account of earlier versions; streams are made again in the account of their shard.
        shutil.rmtree(options.directory / "store/jetstream/ATOLL", ignore_errors=True)
        self._users = [*own, *options.users]
        if options.credentials_file is not None and options.shard:
            operator = own[1].access(self.address, options.tls)
            write_private(options.credentials_file, stream_file(operator, options.shard, options.event_keys))

    def _configure(self, name: str) -> None:
        assert self._secrets is not None
        options, port = self._options, self._secrets.port
        where = ListenOptions(options.directory, options.host, port, options.store_limit_bytes, options.tls, name=name)
        write_private(self._config, server_config(where, self._users, options.tenants))

    def _reserve(self, port: int) -> int:
        """Reserve a port until `stop`: nobody else gets it before the child listens, or while it is started again."""
        options = self._options
        self._release()
        try:
            self._reserved = reserve_port(options.host, port)
        except OSError:
            if options.port:
                raise ServerFailed(f"port {options.port} is taken") from None
            self._reserved = reserve_port(options.host, 0)
        return int(self._reserved.getsockname()[1])

    async def _spawn(self) -> None:
        # A unique name distinguishes the child from a stranger that took the port first.
        name = f"atoll-{self._options.shard or 'site'}-{secrets.token_hex(4)}"
        tls = self._options.tls
        self._served = [file.read_bytes() for file in (tls.cert_file, tls.key_file)] if tls is not None else []
        # In the file, as a server that is named by a flag refuses to read it again.
        self._configure(name)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "GOMEMLIMIT": str(self._options.memory_limit_bytes),
            # Collect at 1.5 times the live heap instead of twice: memory matters more here than CPU.
            "GOGC": "50",
        }
        # A session of its own: an interrupt at the terminal reaches this process only, which stops the child last.
        self._process = await asyncio.create_subprocess_exec(
            str(self._binary),
            "-c",
            str(self._config),
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        write_private(self._pid_file, f"{self._process.pid}\n".encode())
        hello = await self._wait_until_ready(self._process, name)
        check_version(hello.version)
        if not (hello.jetstream and hello.auth_required):
            raise ServerFailed("the server came up without JetStream or without authentication")
        self._ready_pid = self._process.pid
        log.info("nats server ready", version=hello.version, pid=self._process.pid)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, name: str) -> ServerInfo:
        assert self._secrets is not None
        deadline, pause_s = time.monotonic() + _READY_TIMEOUT_S, 0.005
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise ServerFailed(f"nats-server ended with {process.returncode}, see server.log")
            hello = await read_server_info(url_host(self._options.host).strip("[]"), self._secrets.port)
            if hello is not None and hello.server_name == name:
                return hello
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
        raise ServerFailed(f"nats-server did not answer within {_READY_TIMEOUT_S:.0f} s")

    async def _look_after(self) -> None:
        tls = self._options.tls
        files = (tls.cert_file, tls.key_file) if tls is not None else ()
        certificate = on_change(tuple(map(str, files)), partial(self._reload, files))
        await asyncio.gather(self._supervise(), self._kill_silent(), certificate)

    def _reload(self, files: Sequence[Path]) -> None:
        """Have the child read its certificate again: it keeps what it has if the files do not belong together."""
        found = [file.read_bytes() for file in files if file.exists()]
        if found != self._served and self.pid:
            self._served = found
            os.kill(self.pid, signal.SIGHUP)

    async def _kill_silent(self) -> None:
        """Kill a child that stands still, so that it is restarted."""
        while True:
            await until_silent(self._answers, self._options.probing)
            log.error("nats server does not answer", pid=self.pid)
            if self._process is not None and self._has_been_ready():
                self._process.kill()

    async def _answers(self) -> bool:
        """Whether the child answers, or is none that was ready."""
        assert self._secrets is not None
        if not self._has_been_ready():
            return True
        host = url_host(self._options.host).strip("[]")
        return await answers(host, self._secrets.port, self._options.probing.wait_s)

    def _has_been_ready(self) -> bool:
        return self.pid != 0 and self.pid == self._ready_pid

    async def _supervise(self) -> None:
        """Restart the child whenever it ends."""
        failures = 0
        while True:
            assert self._process is not None
            since = time.monotonic()
            code = await self._process.wait()
            failures = 0 if time.monotonic() - since > _HEALTHY_S else failures
            pause_s = self._options.backoff.delay_s(failures)
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
