"""One direction of a bad line: when what is sent arrives, by its latency, its rate, and the segments that it loses.

A lost segment comes after the wait of a TCP sender, which doubles with each loss in a row; what was sent later waits
for it. A connection whose segment is lost too often ends. All connections share the rate, in turn.
"""

from __future__ import annotations

import queue
import random
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

SEGMENT_BYTES = 1460
#: Segments of one connection under way at a time; the sender waits then.
WINDOW = 8
#: The wait before a lost segment is sent again for the first time, and how often it may be lost.
AGAIN_S, MOST_LOSSES = 0.2, 6


class Shape(NamedTuple):
    """What a line does to each direction; `loss` is the share of segments."""

    delay_s: float = 0.0
    bytes_s: float = float("inf")
    loss: float = 0.0
    seed: int = 0


class Direction:
    """What the connections of one direction share."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self._chance = shape, random.Random(shape.seed)
        self._lock, self._free_at = threading.Lock(), 0.0
        self.ended = threading.Event()

    def arrives_at(self, size: int) -> float | None:
        """When a segment that is sent now arrives, by the monotonic clock; None if it never does."""
        with self._lock:
            losses = 0
            while self._chance.random() < self.shape.loss:
                losses += 1
            self._free_at = max(self._free_at, time.monotonic()) + size / self.shape.bytes_s
        if losses > MOST_LOSSES:
            return None
        return self._free_at + self.shape.delay_s + AGAIN_S * ((1 << losses) - 1)


class Flight:
    """What is under way to one socket. `deliver` runs in a thread until `land` was called or the line ends."""

    def __init__(self, direction: Direction, sink: socket.socket) -> None:
        self._direction, self._sink = direction, sink
        self._segments: queue.Queue[tuple[float, bytes]] = queue.Queue(WINDOW)

    def send(self, data: bytes) -> None:
        """Put bytes on the line. Raises OSError if the connection is lost."""
        for begin in range(0, len(data), SEGMENT_BYTES):
            segment = data[begin : begin + SEGMENT_BYTES]
            at = self._direction.arrives_at(len(segment))
            if at is None:
                with suppress(OSError):
                    self._sink.shutdown(socket.SHUT_RDWR)
                raise ConnectionResetError("a segment was lost too often")
            self._segments.put((at, segment))

    def land(self) -> None:
        """Nothing more is sent."""
        self._segments.put((0.0, b""))

    def deliver(self) -> None:
        is_open, ended = True, self._direction.ended
        while (found := self._segments.get())[1]:
            # What waits for an earlier segment is there at once when that comes.
            ended.wait(max(0.0, found[0] - time.monotonic()))
            try:
                if is_open:
                    self._sink.sendall(found[1])
            except OSError:
                is_open = False
