"""Reads the changes of one shard: the headers of what is followed, from a position on, with a consumer of its own.

`changes` runs one for each shard. With few subjects followed the server selects them, else the whole stream is read and
what nobody follows is passed by undecoded. Invariant: what begins to be followed is read from where the reading was at
that moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from atoll.edge.followed import Followed
from atoll.events.event import Event, Position, decode_position
from atoll.events.reader import ChangeReader, Selection
from atoll.machinery.process.tasks import stop
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.origin_check import OriginCheck
from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import CHANGES, all_subjects, stream_name

#: Everything is read again at most this often: whoever writes into the stream could ask for it all the time.
REREAD_S = 1.0
#: Messages of a shard that are told before others are served: some 5 ms. After a start, which may be told all copies
#: of a fill, an edit has ten turns of the event loop to a mailbox.
BATCH = 64


class ShardChanges:
    """`run` it as a task. `tell` is called with each event of what is followed, and with RESYNC."""

    def __init__(
        self, access: Access, shard: str, followed: Followed[Any], tell: Callable[[Event], None], position: bytes | None
    ) -> None:
        self._access, self._shard, self._followed, self._tell = access.at(shard), shard, followed, tell
        self._filters: tuple[str, ...] = ()
        self._position = _decoded(position)
        self._reader: ChangeReader | None = None
        self._moved = asyncio.Event()
        #: Whether an event was read that is not told yet.
        self._has_untold = False
        self._reread_at_s = 0.0

    @property
    def interruption(self) -> str:
        """Why nothing is read now; empty while the stream is."""
        return self._reader.interruption if self._reader is not None else "not begun"

    @property
    def pending(self) -> int:
        """Messages that wait to be read, as far as known."""
        return self._reader.pending if self._reader is not None else 0

    @property
    def position(self) -> bytes | None:
        """The position of all that was told."""
        if self._reader is not None and not self._has_untold:
            self._position = self._reader.position
        return self._position.encode().encode() if self._position is not None else None

    def filters_changed(self) -> None:
        """Select anew, if what is followed is selected by other subjects now."""
        if self._followed.filters(self._shard) != self._filters:
            self._moved.set()

    async def run(self) -> None:
        """Read until cancelled. Raises what `tell` raises."""
        while True:
            self._moved.clear()
            self._filters = self._followed.filters(self._shard)
            reading = asyncio.create_task(self._read(self._new_reader()))
            moving = asyncio.create_task(self._moved.wait())
            try:
                await asyncio.wait((reading, moving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                moving.cancel()
                await stop(reading)

    def _new_reader(self) -> ChangeReader:
        is_whole = self._filters == all_subjects(CHANGES, self._shard)
        selection = Selection(
            stream_name(CHANGES, self._shard),
            self._filters,
            follower_consumer(self._access.user or "edge"),
            headers_only=True,
            is_wanted=self._followed.wants if is_whole else None,
            batch=BATCH,
        )
        # Signatures are over payloads: nothing is to be verified by.
        unverified = OriginCheck(selection.stream, None)
        self._has_untold = False
        self._reader = ChangeReader(self._access, selection, self._position, unverified, from_oldest=False)
        return self._reader

    async def _read(self, reader: ChangeReader) -> None:
        async with aclosing(reader.events()) as events:
            async for event in events:
                self._has_untold = True
                if self._moved.is_set():
                    return
                if event.key is None:
                    await asyncio.sleep(max(self._reread_at_s - time.monotonic(), 0.0))
                    self._reread_at_s = time.monotonic() + REREAD_S
                self._tell(event)
                self._position, self._has_untold = decode_position(event.position), False


def _decoded(position: bytes | None) -> Position | None:
    if position is None:
        return None
    try:
        return decode_position(position.decode())
    except ValueError:
        return None
