"""The share of the disk of the event server beside the store: changes streams are bounded by what the disk has.

`change_stream` runs it beside the publisher. The shards of a site share one server and one disk: their streams have
equal parts of one share. What the streams may still grow by is claimed from the store's room: they never take the
reserve by which a full store deletes. While the store is full its stream keeps the least. Invariant: the store counts
the claim before its stream may grow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from atoll.machinery.storage.environment.filesystem import disk_bytes
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.stream.connection import ApiError, Unavailable
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.subjects import CHANGES, stream_name

log = structlog.get_logger()

#: Part of the disk that all streams may take, and the least that each is given: several objects of the largest size.
_PART, LEAST_BYTES = 16, 32 << 20
_INTERVAL_S, _INTERVAL_WHEN_FULL_S = 5.0, 1.0
#: The changes streams of all shards in the directory of a server.
_STREAMS = f"store/jetstream/*/streams/{stream_name(CHANGES, '*')}"


class StreamQuota:
    """The bound of the changes stream of one shard; `directory` is that of a server on the disk of the store.

    `max_bytes` is the bound now. `size_bytes` replaces the measured size of the disk.
    """

    def __init__(self, directory: Path, store: LmdbStore, size_bytes: int = 0) -> None:
        shard = store.identity.shard
        self._part_bytes = (size_bytes or disk_bytes(Path(store.options.directory))) // _PART
        self._defined_bytes = int(definition(CHANGES, shard)["max_bytes"])
        self._store, self._directory = store, directory
        self.max_bytes = self._share_bytes(1)
        self.update()

    def update(self) -> bool:
        """Measure, choose the bound and claim what it leaves to grow by. Return whether the bound changed."""
        space, reserve_bytes = self._store.space, self._store.options.reserve_bytes
        streams = list(self._directory.glob(_STREAMS))
        used_bytes = sum(_size_bytes(file) for stream in streams for file in stream.glob("msgs/*"))
        count, before = max(1, len(streams)), self.max_bytes
        share_bytes = self._share_bytes(count)
        self.max_bytes = min(self.max_bytes, share_bytes)
        space.measure()
        unclaimed = space.room_bytes + space.claimed_bytes
        if unclaimed - max(0, count * share_bytes - used_bytes) >= 2 * reserve_bytes:
            self.max_bytes = share_bytes
        elif unclaimed - max(0, count * self.max_bytes - used_bytes) < reserve_bytes:
            self.max_bytes = LEAST_BYTES
        space.claimed_bytes = max(0, count * self.max_bytes - used_bytes)
        space.measure()
        return self.max_bytes != before

    def _share_bytes(self, streams: int) -> int:
        return max(LEAST_BYTES, min(self._defined_bytes, self._part_bytes // streams))

    async def run(self, resize: Callable[[int], Awaitable[None]]) -> None:
        """Adapt the bound forever, at once when the store becomes full; `resize` sets that of the stream. Cancel it to
        stop."""
        loop, became_full = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(became_full.set)

        self._store.space.on_full = wake
        while True:
            became_full.clear()
            if self.update():
                log.warning("changes stream resized", max_bytes=self.max_bytes, store_full=self._store.space.full)
                try:
                    await resize(self.max_bytes)
                except (Unavailable, ApiError) as error:
                    # The publisher sets the bound with its next connection.
                    log.warning("changes stream not resized yet", error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_WHEN_FULL_S if self._store.space.full else _INTERVAL_S):
                    await became_full.wait()


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
