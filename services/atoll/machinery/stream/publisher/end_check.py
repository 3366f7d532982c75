"""The end of a stream while its writer is silent: whether somebody else wrote there.

A writer that sends is refused behind a message of another. One that has nothing to send reads the stream's end each few
seconds instead, so that it learns of a process on a copy of its store without a write. Invariant: it only says that the
end is another one; what stands there is read by `stream_tail`, and what follows decided by `resume`.
"""

from __future__ import annotations

import time

from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.publish_window import OutOfSequence, PublishWindow


class EndCheck:
    """The check of one stream for as long as one window is open. An acknowledgement counts as a check."""

    def __init__(self, connection: Connection, stream: str, window: PublishWindow, interval_s: float) -> None:
        self._connection, self._stream, self._window, self._interval_s = connection, stream, window, interval_s
        self._acks, self._checked_at = window.acks, time.monotonic()

    async def check(self) -> None:
        """Read the end if the interval is over. Call it between two sends. Raises OutOfSequence, ApiError,
        Unavailable."""
        now, window = time.monotonic(), self._window
        if window.acks != self._acks:
            self._acks, self._checked_at = window.acks, now
        if window.in_flight or now - self._checked_at < self._interval_s:
            return
        info = await stream_admin.stream_info(self._connection, self._stream)
        self._checked_at = time.monotonic()
        if info is None or info["state"]["last_seq"] != window.acked.sequence:
            raise OutOfSequence("the stream has another end")
