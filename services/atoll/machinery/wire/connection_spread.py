"""Accepted connections that one process passes to others: each goes to the process that has the fewest.

The main process of a shard with API workers accepts (`ConnectionSpreader`); a worker's `Server` takes what arrives
(`PassedConnections`) as from a listening socket. A socket pair for each worker carries descriptors one way and counts
the other. Invariant: an accepted socket is passed on or held, at most one of them, and closed in this process after.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import structlog

from atoll.machinery.wire.acceptor import BACKLOG, BATCH, keep_alive

log = structlog.get_logger()

#: Connections received since the start, and open ones.
_REPORT = struct.Struct(">QQ")
_READ_BYTES = 256 * _REPORT.size
#: Pause while no worker can take a connection, or after `accept` failed.
_PAUSE_S = 0.05


class PassedConnections:
    """The receiving end, with the methods of a listening socket that an acceptor uses."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._received = 0
        self._reported = (0, 0)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a connection waits."""
        return self._channel.fileno()

    def accept(self) -> tuple[socket.socket, None]:
        """Return the next connection. Raises BlockingIOError without one, ConnectionAbortedError at the end."""
        data, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        self._received += len(data)
        if not descriptors:
            raise ConnectionAbortedError
        return socket.socket(fileno=descriptors[0]), None

    def report(self, open_connections: int) -> None:
        """Tell the other end how many connections are open, if that changed."""
        counts = (self._received, open_connections)
        if counts != self._reported:
            # While the other end does not read, the next report carries the newer counts.
            with contextlib.suppress(OSError):
                self._channel.send(_REPORT.pack(*counts))
                self._reported = counts

    def close(self) -> None:
        """Close the channel; connections that wait in it are closed."""
        self._channel.close()


class _Receiver:
    """A worker as the spreader counts it."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.channel = channel
        self._passed = self._received = self._open = 0

    @property
    def load(self) -> int:
        """Connections that are open there or on their way."""
        return self._open + self._passed - self._received

    def take(self, sock: socket.socket) -> bool:
        """Pass a connection on. Return False if the channel is full or the worker is gone."""
        try:
            socket.send_fds(self.channel, [b"+"], [sock.fileno()])
        except OSError:
            return False
        self._passed += 1
        return True

    def read(self) -> bool:
        """Read the latest report. Return False at the end of the channel."""
        try:
            data = self.channel.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self._received, self._open = _REPORT.unpack_from(data, len(data) - _REPORT.size)
        return bool(data)


class ConnectionSpreader:
    """Accepts on one socket, which is bound, for the receivers."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._receivers: dict[int, _Receiver] = {}
        self._held: socket.socket | None = None
        self._is_listening = self._is_accepting = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, number: int, channel: socket.socket) -> None:
        """Pass connections to one more worker. The first one begins the listening."""
        self.remove(number)
        self._receivers[number] = _Receiver(channel)
        self._loop.add_reader(channel.fileno(), self._read, number)
        if not self._is_listening:
            self._is_listening = True
            # Connections of a killed process then leave the port free for the next one.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keep_alive(self._sock)
            self._sock.setblocking(False)
            self._sock.listen(BACKLOG)
        self._resume()

    def remove(self, number: int) -> None:
        """Pass nothing more to a worker. Connections wait for the next one if it was the last. Idempotent."""
        receiver = self._receivers.pop(number, None)
        if receiver is not None:
            self._loop.remove_reader(receiver.channel.fileno())
            receiver.channel.close()
        if not self._receivers:
            self._pause()

    def close(self) -> None:
        """Stop listening."""
        self._pause()
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        for number in tuple(self._receivers):
            self.remove(number)
        if self._held is not None:
            self._held.close()

    def _read(self, number: int) -> None:
        if not self._receivers[number].read():
            self.remove(number)

    def _resume(self) -> None:
        if self._receivers and not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._sock.fileno())

    def _pause_briefly(self) -> None:
        self._pause()
        self._timer = self._loop.call_later(_PAUSE_S, self._resume)

    def _accept(self) -> None:
        for _ in range(BATCH):
            if self._held is None:
                try:
                    self._held, _address = self._sock.accept()
                except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                    return
                except OSError as error:
                    log.error("accept failed", error=str(error))
                    self._pause_briefly()
                    return
            by_load = sorted(self._receivers.values(), key=lambda receiver: receiver.load)
            if not any(receiver.take(self._held) for receiver in by_load):
                self._pause_briefly()
                return
            self._held.close()
            self._held = None
