"""A real nats-server for tests, and raw access to it.

Tests enter `NatsServer(tmp_path)`; it is the product's own embedded server, so the tests prove that as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll.machinery.stream.connection import Access, Connection
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from harness.data.event_keys import PUBLIC
from harness.waits import source_of


async def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until a condition holds; fail the test if it does not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110  # conditions of other processes have no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never came: {source_of(condition)}") from None


class NatsServer:
    """An async context manager around the embedded server, with faults for tests."""

    def __init__(self, directory: Path, shard: str = "root", **options: Any) -> None:
        self.directory = directory / "nats"
        self.credentials_file = directory / "stream.json"
        self.shard = shard
        given = {"event_keys": PUBLIC, **options}
        self._options = ServerOptions(
            directory=self.directory, shard=shard, credentials_file=self.credentials_file, **given
        )
        self.server = EmbeddedServer(self._options)

    async def __aenter__(self) -> NatsServer:
        await self.server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.server.stop()

    @property
    def access(self) -> Access:
        return self.server.access

    @property
    def operator(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.credentials_file.read_text())
        return document

    def operator_access(self) -> Access:
        return Access(**self.operator["connect"], api_prefix=self.operator["api_prefix"])

    async def stop(self) -> None:
        await self.server.stop()

    async def start(self) -> None:
        await self.server.start()

    async def kill(self) -> None:
        """Kill it as a crash would and wait for the supervisor to restart it."""
        restarts = self.server.restarts
        os.kill(self.server.pid, signal.SIGKILL)
        await eventually(lambda: self.server.restarts > restarts)

    async def freeze(self) -> None:
        """Stop it as a pause of the machine would; returns when no thread of it runs any more."""
        os.kill(self.server.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.server.pid}/task")
        await eventually(lambda: all(_state(thread) == "T" for thread in threads.iterdir()))

    def thaw(self) -> None:
        os.kill(self.server.pid, signal.SIGCONT)

    def delete_store(self) -> None:
        """Only while stopped."""
        shutil.rmtree(self.directory / "store")

    def keep_store(self) -> Path:
        """A copy of the store as it is. Only while stopped."""
        copy = self.directory / "store-copy"
        shutil.copytree(self.directory / "store", copy)
        return copy

    def bring_back(self, copy: Path) -> None:
        """Put a copy in the store's place. Only while stopped."""
        self.delete_store()
        copy.rename(self.directory / "store")

    def blocks(self, stream: str) -> list[Path]:
        return sorted((self.directory / "store").glob(f"jetstream/*/streams/{stream}/msgs/*.blk"))

    def flip_bit(self, stream: str, needle: bytes) -> None:
        """Flip a bit behind the last occurrence of `needle` in a stream's files. Only while stopped."""
        for block in reversed(self.blocks(stream)):
            data = bytearray(block.read_bytes())
            at = data.rfind(needle)
            if at >= 0:
                data[at + len(needle) - 1] ^= 0x01
                block.write_bytes(data)
                return
        raise AssertionError(f"{needle!r} is in no block of {stream}")

    async def connect(self) -> Connection:
        """A connection with the shard's own credential."""
        return await Connection.open(self.access, "test")


def _state(thread: Path) -> str:
    """A thread's state in the kernel, `T` for stopped; so is one that ended meanwhile."""
    try:
        return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
