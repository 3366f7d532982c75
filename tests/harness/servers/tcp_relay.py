"""A second address of a server: bytes are passed on until the relay is cut or goes deaf, and again once it is joined.

with TcpRelay(4222) as relay:
    connect(relay.port)
    relay.cut()                     # every connection ends, and each new one
    relay.cut_within(100)           # after 100 more bytes to clients, in the middle of whatever they are of
    relay.swallow()                 # half-open: connections stay, and nothing comes through, in one direction or both
    relay.join()

A connection that was there while bytes were swallowed never speaks again, as its stream has a hole.
`TcpRelay(4222, Shape(delay_s=2.0))` passes everything on as a bad line does.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

from harness.servers.bad_line import Direction, Flight, Shape

UP, DOWN = "to the server", "to the client"
_READ_BYTES = 65536


class TcpRelay:
    """Passes connections on to a port of this machine, in threads."""

    def __init__(self, target: int, shape: Shape | None = None) -> None:
        self._target, self._is_cut = target, False
        self._directions = {each: Direction(shape) for each in (UP, DOWN)} if shape is not None else {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        #: Directions in which new connections are deaf, and the sockets that nothing is written to any more.
        self._swallowed: set[str] = set()
        self._deaf: set[socket.socket] = set()
        self._left: int | None = None
        #: How many connections were passed on.
        self.passed = 0

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        # Wakes the thread that accepts; a close alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for direction in self._directions.values():
            direction.ended.set()
        self.cut()
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def cut(self) -> None:
        """Close all connections, and every new one."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def cut_within(self, count: int) -> None:
        """Cut after this number of bytes to clients."""
        with self._lock:
            self._left = count

    def swallow(self, *directions: str) -> None:
        """Pass nothing on from now on, by default in both directions, and close nothing."""
        with self._lock:
            self._swallowed = set(directions or (UP, DOWN))
            for client, server in zip(self._open[::2], self._open[1::2], strict=True):
                self._deafen(client, server)

    def _deafen(self, client: socket.socket, server: socket.socket) -> None:
        self._deaf |= {sink for sink, direction in ((client, DOWN), (server, UP)) if direction in self._swallowed}

    def join(self) -> None:
        with self._lock:
            self._is_cut, self._left, self._swallowed = False, None, set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self._pass(client)

    def _pass(self, client: socket.socket) -> None:
        if self._is_cut:
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self._target))
        self._open += [client, server]
        self.passed += 1
        self._deafen(client, server)
        for source, sink, direction in ((client, server, UP), (server, client, DOWN)):
            self._start(self._copy, source, sink, direction)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with self._sending(sink, direction) as send, contextlib.suppress(OSError):
            while data := source.recv(_READ_BYTES):
                data, is_last = self._allowed(data, direction)
                if sink not in self._deaf:
                    send(data)
                if is_last:
                    self.cut()
        if sink not in self._deaf:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _sending(self, sink: socket.socket, direction: str) -> Iterator[Callable[[bytes], None]]:
        """How bytes are sent on; all that a bad line has of them is sent in the end."""
        if direction not in self._directions:
            yield sink.sendall
            return
        flight = Flight(self._directions[direction], sink)
        delivering = threading.Thread(target=flight.deliver, daemon=True)
        delivering.start()
        try:
            yield flight.send
        finally:
            flight.land()
            delivering.join()

    def _allowed(self, data: bytes, direction: str) -> tuple[bytes, bool]:
        """The part of bytes that is passed on, and whether everything is cut then."""
        with self._lock:
            if self._left is None or direction != DOWN:
                return data, False
            data = data[: self._left]
            self._left -= len(data)
            return data, self._left == 0
