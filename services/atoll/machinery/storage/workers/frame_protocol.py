"""One end of the worker socket: splits arriving bytes into frames, and sends the frames of one loop turn together.

`submit_server` and `worker_store` extend `FrameProtocol`. Invariant: memory is bounded by one frame and one read of the
socket on the way in; a subclass bounds what it sends by `sending`.
"""

from __future__ import annotations

import asyncio
from typing import cast

import structlog

from atoll.machinery.storage.workers import frames
from atoll.machinery.storage.workers.frames import LENGTH, InvalidFrame


class FrameProtocol(asyncio.Protocol):
    """Frames of one connection. A subclass implements `receive`, `compose` and `lost`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._needed_bytes = LENGTH.size
        self._held = self._scheduled = False
        #: Whether the socket takes what is written; clear while the other end does not read.
        self.writable = asyncio.Event()
        self.writable.set()

    # --- for subclasses

    def receive(self, body: memoryview) -> None:
        """Take the body of one frame, valid during the call. Raise InvalidFrame to end the connection."""
        raise NotImplementedError

    def compose(self) -> list[bytes]:
        """Return the frames to send, in order."""
        raise NotImplementedError

    def lost(self) -> None:
        """Take the end of the connection."""
        raise NotImplementedError

    def send_soon(self) -> None:
        """Send what `compose` returns after the callbacks that are ready now, once for all calls of one loop turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def hold(self) -> None:
        """Receive no further frame until `release`. The socket is not read."""
        self._held = True
        if self._transport is not None:
            self._transport.pause_reading()

    def release(self) -> None:
        """Receive frames again."""
        if self._held:
            self._held = False
            self._loop.call_soon(self._split)
            if self._transport is not None:
                self._transport.resume_reading()

    def close(self) -> None:
        """End the connection after what was sent."""
        if self._transport is not None:
            self._transport.close()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send_soon()

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size_bytes += len(data)
        self._split()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.writable.set()
        self.lost()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
        self.send_soon()

    # --- internal

    def _send(self) -> None:
        self._scheduled = False
        if self._transport is not None and self.writable.is_set() and (found := self.compose()):
            self._transport.writelines(found)

    def _split(self) -> None:
        """Pass on the frames that are complete. Parts are joined once a frame, so a long one is copied once."""
        if self._held or self._size_bytes < self._needed_bytes:
            return
        self._needed_bytes = LENGTH.size
        data = memoryview(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        at = 0
        try:
            while not self._held and (end := self._end(data, at)) <= len(data):
                self.receive(data[at + LENGTH.size : end])
                at = end
        except InvalidFrame as error:
            structlog.get_logger().warning("worker connection refused", reason=str(error))
            at = len(data)
            self.close()
        self._parts, self._size_bytes = [bytes(data[at:])], len(data) - at

    def _end(self, data: memoryview, at: int) -> int:
        """Return the end of the frame at `at`, beyond `data` if it is incomplete. Raise InvalidFrame."""
        end = at + LENGTH.size
        if end <= len(data):
            (size,) = LENGTH.unpack_from(data, at)
            if size > frames.MAX_FRAME_BYTES:
                raise InvalidFrame(f"a frame of {size} bytes")
            end += size
        self._needed_bytes = end - at
        return end
