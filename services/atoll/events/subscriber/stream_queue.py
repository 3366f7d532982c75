"""The messages of one stream that arrived and were not handed out yet, in the order of the stream.

`delivery` fills and empties it, over one connection after the other. What was on its way when a connection broke comes
again after the server's patience, behind later messages. Invariant: while such messages are awaited nothing is handed
out, so that the order of the stream holds; they are awaited no longer than until a given time.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.machinery.stream.consumer.pull_consumer import Message


class StreamQueue:
    """Messages by sequence; each is held once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Message]] = []
        #: Sequences that the server still waits for: held here, or handed out and not acknowledged.
        self.open: set[int] = set()
        self._late, self._upto, self._until_s = 0, 0, 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def expect(self, pending: int, upto: int, until_s: float) -> None:
        """Of the messages up to a sequence so many were not acknowledged; those that are not here come again."""
        here = sum(sequence <= upto for sequence in self.open)
        self._late, self._upto, self._until_s = max(pending - here, 0), upto, until_s

    def add(self, sequence: int, message: Message) -> None:
        """Take what arrived; a copy of what is open is dropped."""
        if sequence in self.open:
            return
        if sequence <= self._upto:
            self._late = max(self._late - 1, 0)
        self.open.add(sequence)
        heapq.heappush(self._heap, (sequence, message))

    def take(self, now_s: float) -> tuple[int, Message] | None:
        """The next message, which stays open until `done`; None if there is none to hand out now."""
        if not self._heap or self.wait_s(now_s) > 0:
            return None
        return heapq.heappop(self._heap)

    def done(self, sequence: int) -> None:
        """A message was acknowledged."""
        self.open.discard(sequence)

    def wait_s(self, now_s: float) -> float:
        """For how long nothing is handed out, unless what is awaited comes."""
        return max(self._until_s - now_s, 0.0) if self._late else 0.0

    def rest(self) -> list[Message]:
        """What was not handed out."""
        return [message for _, message in self._heap]
