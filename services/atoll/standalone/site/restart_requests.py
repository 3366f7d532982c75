"""Requests of shards that the NATS server on their disk be started again, as one file in its directory.

A shard with `--nats-directory` writes the file (`change_stream`), and the supervisor of the site follows it (`runner`).
nats-server refuses a stream with a failed write until it is restarted, and only publishers see that. Invariant: a
server is restarted at most once in `LEAST_S`, and not on a full disk, where it could not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from atoll.machinery.process.file_watch import CHECK_EVERY_S

log = structlog.get_logger()

RESTART_FILE = "restart"
#: Between two restarts. A publisher that is still refused writes the file again within seconds.
LEAST_S = 60.0
#: What a server needs to start.
ROOM_BYTES = 16 << 20


class RestartRequests:
    """Those for the server of this directory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / RESTART_FILE

    async def send(self) -> None:
        """Ask for a restart; nothing happens if nobody follows. Raises OSError."""
        self._file.touch(mode=0o600)

    async def follow(self, restart: Callable[[], Awaitable[None]]) -> None:
        """Call `restart` for requests from now on, until cancelled. One that fails is logged, and may be sent again."""
        self._drop()
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not self._file.exists() or shutil.disk_usage(self._file.parent).free < ROOM_BYTES:
                continue
            log.error("nats server is started again, as a shard cannot publish")
            try:
                await restart()
            except OSError as error:
                log.error("nats server could not be restarted", error=repr(error))
            await asyncio.sleep(LEAST_S)
            # What came meanwhile may be of the server before.
            self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()
