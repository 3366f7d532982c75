"""`atoll cache-server` as a process, and requests to it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.credential_file import NatsCredential, write_credential
from harness.clients.raw_http import RawClient
from harness.servers.in_process.cache_server import BASE, MASTER, Answer, Events, People
from harness.servers.launch import Process, launch

_SERVES = re.compile(r"serves https://127\.0\.0\.1:(\d+)/services/cache")
START_TIMEOUT_S, STOP_TIMEOUT_S, PATIENCE_S = 150.0, 60.0, 60.0


class CacheProcess:
    """One cache server, from its directory, on another port each time."""

    def __init__(self, directory: Path, access: Access, **flags: str) -> None:
        self.directory, self.people, self.port = directory, People(), 0
        directory.mkdir(parents=True, exist_ok=True)
        credential = NatsCredential(
            access.user,
            access.password,
            access.inbox_prefix,
            access.ca_file,
            access.api_prefix,
            event_keys={shard: tuple(keys) for shard, keys in (access.event_keys or {}).items()},
        )
        write_credential(directory / "nats.json", credential)
        for name, data in (
            ("serving.crt", self.people.serving.certificate),
            ("serving.key", self.people.serving.key),
            ("clients.crt", self.people.ca.certificate),
        ):
            (directory / name).write_bytes(data)
        self._flags = {"nats-url": access.servers[0], **flags}
        #: What is set for it besides (`harness.servers.mutant_shard`).
        self.environment: dict[str, str] = {}
        self._process: Process | None = None

    def __enter__(self) -> CacheProcess:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it listens."""
        flags = {
            "root-directory": "cache",
            "secure-port": "0",
            "tls-cert-file": "serving.crt",
            "tls-private-key-file": "serving.key",
            "client-ca-file": "clients.crt",
            "allow-any-filesystem": "true",
            "nats-credentials-file": "nats.json",
            **self._flags,
        }
        command = [sys.executable, "-m", "atoll.cli", "cache-server", *(f"--{k}={v}" for k, v in flags.items())]
        out = self.directory / "out"
        out.write_bytes(b"")
        self._process = launch(
            command, out, self.directory / "err", environment=self.environment, directory=self.directory
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := _SERVES.search(out.read_text())):
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.port = int(found[1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM; harmless if it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(STOP_TIMEOUT_S) == 0, self.log()

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        return "\n".join((self.directory / "err").read_text(errors="replace").splitlines()[-40:])

    async def ask(
        self, path: str, who: str = MASTER, method: str = "GET", headers: str = "", body: bytes = b""
    ) -> Answer:
        """One request on a connection of its own."""
        client = await RawClient.connect(self.port, self.people.client(who))
        try:
            answer = await client.ask(path, method, body, headers)
            return Answer(answer.status, answer.body)
        finally:
            client.close()

    async def get(self, path: str) -> Answer:
        """A GET below the service."""
        return await self.ask(BASE + path)

    async def ready(self) -> None:
        """Wait until the rows were complete once."""
        await self.until("/readyz", lambda answer: answer.code == 200)

    async def until(self, path: str, holds: Callable[[Answer], bool]) -> None:
        """Repeat a request until its answer satisfies a condition."""
        deadline, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < deadline:
            found = await self.ask(path)
            if holds(found):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{path} answers {found}\n{self.log()}")

    async def metric(self, name: str, **labels: str) -> float:
        """A metric of the process; 0 if it does not exist."""
        given = "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}" if labels else ""
        for line in (await self.ask("/metrics")).body.decode().splitlines():
            if line.startswith(f"{name}{given} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def watching(self, path: str) -> Events:
        """A watch, for as long as the process lives."""
        client = await RawClient.connect(self.port, self.people.client(MASTER))
        await client.send(f"GET {BASE}{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        status, _ = await client.head()
        assert status == 200, await client.rest()
        return Events(client)
