"""A second address of a server: bytes are passed on until the relay is cut, and again once it is joined.

with TcpRelay(4222) as relay:
    connect(relay.port)
    relay.cut()
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class TcpRelay:
    """Passes connections on to a port of this machine, in threads."""

    def __init__(self, target: int) -> None:
        self._target, self._is_cut = target, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
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

    def join(self) -> None:
        self._is_cut = False

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
        for source, sink in ((client, server), (server, client)):
            self._start(_copy, source, sink)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
