"""A real `atoll start` in a process of its own, on a free port, in a temporary directory.

    with ShardProcess(tmp_path) as shard:
        shard.kubeconfig, shard.url, shard.pid, shard.stderr_path

Entering waits for /readyz; leaving sends SIGTERM. In async tests use `async with`, which does its waiting in a
thread. `kill` is SIGKILL; `restart` goes on with the same directory and port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from harness.clients.api import Api
from harness.servers.launch import Process, launch
from harness.waits import source_of

#: A shard with two workers starts three interpreters: more than 20 seconds on a busy machine of two cores.
START_TIMEOUT_S, STOP_TIMEOUT_S = 150.0, 60.0
_SERVES = re.compile(r"^atoll serves (https://\S+)", re.MULTILINE)


class ShardFailed(AssertionError):
    """The process ended, or did not become ready in time; carries the end of its log."""


class ShardProcess:
    """One root directory and the process that serves it, started with `flags` besides the necessary ones."""

    #: What `python -m` runs.
    module = "atoll.cli"
    #: Whether it is forked although it may have an environment of its own.
    forked = False

    def __init__(self, directory: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.root = directory / "atoll"
        self.kubeconfig = self.root / "admin.kubeconfig"
        self.stdout_path, self.stderr_path = directory / "shard.out", directory / "shard.err"
        self.flags, self.environment = flags, environment or {}
        self.url = ""
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def pid(self) -> int:
        assert self._process is not None, "started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until /readyz says ok. Raises ShardFailed."""
        self.spawn()
        try:
            self._until(self._announced, timeout_s)
            self._until(self._ready, timeout_s)
        except BaseException:
            self.kill()
            raise

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        assert not self.running, "already running"
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.stdout_path.write_bytes(b"")
        command = [
            sys.executable,
            "-m",
            self.module,
            "start",
            "--root-directory",
            str(self.root),
            "--secure-port",
            "0",
            "--allow-any-filesystem",
            "true",
            *self.flags,
        ]
        self._process = launch(
            command,
            self.stdout_path,
            self.stderr_path,
            environment=self.environment,
            directory=Path.cwd(),
            forked=self.forked,
        )

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, and the exit code. Harmless if it does not run."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        """SIGKILL, as a crash would; returns when the process is gone."""
        return self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Stop if it runs, and start again on the same directory."""
        self.stop()
        self.start()

    def token(self, user: str = "kcp-admin") -> str:
        """The bearer token of a user of admin.kubeconfig."""
        return str(self.entry("user", user)["token"])

    def tls(self) -> ssl.SSLContext:
        """A context that trusts only this shard's authority, shared by all clients: none changes it."""
        return _trusting(self.authority())

    def new_tls(self) -> ssl.SSLContext:
        """Such a context for one client, which may add its certificate."""
        return ssl.create_default_context(cadata=self.authority().decode())

    def authority(self) -> bytes:
        """The certificate of this shard's authority, PEM."""
        return base64.b64decode(self.entry("cluster", "base")["certificate-authority-data"])

    def get(self, path: str, user: str = "") -> tuple[int, bytes]:
        """Status and body of a GET, anonymous unless a user of admin.kubeconfig is named."""
        parts = urlsplit(self.url)
        headers = {"Authorization": f"Bearer {self.token(user)}"} if user else {}
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=self.tls())
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.stderr_path.read_text(errors="replace").splitlines()[-lines:])

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """A cluster or a user of admin.kubeconfig."""
        document = _parsed(self.kubeconfig.read_text())
        return next(dict(item[kind]) for item in document[f"{kind}s"] if item["name"] == name)

    def _announced(self) -> bool:
        """The line on standard output; kubeconfig and port file may be those of an earlier start."""
        found = _SERVES.search(self.stdout_path.read_text())
        self.url = found[1] if found else ""
        return found is not None

    def _ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if not self.running:
                raise ShardFailed(f"atoll start ended:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ShardFailed(f"{source_of(condition)} not after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ShardFailed(f"still there {timeout_s} s after {number.name}:\n{self.log_tail()}") from None


@lru_cache(maxsize=32)
def _parsed(kubeconfig: str) -> Any:
    """A kubeconfig's document. Every connection reads it, and parsing takes longer than most requests."""
    return yaml.load(kubeconfig, yaml.CSafeLoader)


@lru_cache(maxsize=32)
def _trusting(authority: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.decode())


def process_of(api: Api) -> ShardProcess:
    """The process that serves a client, which must be a shard's."""
    assert isinstance(api.shard, ShardProcess)
    return api.shard
