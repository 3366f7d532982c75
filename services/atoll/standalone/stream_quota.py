"""The embedded event server's share of the disk: its changes stream is bounded by what the disk has.

`change_stream` runs it beside the publisher. What the stream may still grow by is claimed from the store's room: it
never takes the reserve by which a full store deletes. While the store is full the stream keeps the least. Invariant:
the store counts the claim before the stream may grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from atoll.machinery.storage.environment.filesystem import disk_bytes
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.stream.connection import ApiError, Unavailable
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.subjects import CHANGES, stream_name

log = structlog.get_logger()

#: Part of the disk that the stream may take, and the least that it is given: several objects of the largest size.
_PART, LEAST_BYTES = 16, 32 << 20
_INTERVAL_S, _INTERVAL_WHEN_FULL_S = 5.0, 1.0


class StreamQuota:
    """The bound of the changes stream of one shard; `directory` is that of its embedded server.

    `max_bytes` is the bound now. `size_bytes` replaces the measured size of the disk.
    """

    def __init__(self, directory: Path, store: LmdbStore, size_bytes: int = 0) -> None:
        shard = store.identity.shard
        share = (size_bytes or disk_bytes(Path(store.options.directory))) // _PART
        self._store, self._messages = store, f"store/jetstream/*/streams/{stream_name(CHANGES, shard)}/msgs/*"
        self._directory = directory
        self._share_bytes = max(LEAST_BYTES, min(int(definition(CHANGES, shard)["max_bytes"]), share))
        self.max_bytes = self._share_bytes
        self.update()

    def update(self) -> bool:
        """Measure, choose the bound and claim what it leaves to grow by. Return whether the bound changed."""
        space, reserve_bytes = self._store.space, self._store.options.reserve_bytes
        used_bytes, before = self._used_bytes(), self.max_bytes
        space.measure()
        unclaimed = space.room_bytes + space.claimed_bytes
        if unclaimed - max(0, self._share_bytes - used_bytes) >= 2 * reserve_bytes:
            self.max_bytes = self._share_bytes
        elif unclaimed - max(0, self.max_bytes - used_bytes) < reserve_bytes:
            self.max_bytes = LEAST_BYTES
        space.claimed_bytes = max(0, self.max_bytes - used_bytes)
        space.measure()
        return self.max_bytes != before

    def _used_bytes(self) -> int:
        return sum(_size_bytes(file) for file in self._directory.glob(self._messages))

    async def run(self, resize: Callable[[int], Awaitable[None]]) -> None:
        """Adapt the bound forever; `resize` sets that of the stream. Cancel it to stop."""
        while True:
            if self.update():
                log.warning("changes stream resized", max_bytes=self.max_bytes, store_full=self._store.space.full)
                try:
                    await resize(self.max_bytes)
                except (Unavailable, ApiError) as error:
                    # The publisher sets the bound with its next connection.
                    log.warning("changes stream not resized yet", error=str(error))
            await asyncio.sleep(_INTERVAL_WHEN_FULL_S if self._store.space.full else _INTERVAL_S)


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
