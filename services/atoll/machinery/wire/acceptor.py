"""One listening socket: which connections are accepted, and when the TLS handshake of each begins.

Owned by the Server, whose limits it checks before each accept. A handshake costs a hundred times a request, so their
number at a time is bounded; a socket that has sent nothing yet does not count, and a stalled handshake gives way to a
waiting one. Invariant: sockets that are accepted and not yet connections are counted, bounded and closed on every path.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from typing import Any, Protocol

import structlog

from atoll.machinery.wire.host import Host

log = structlog.get_logger()

BACKLOG = 4096
#: Accepted in one loop turn, so that a storm of connections does not stop running requests.
BATCH = 32
#: A handshake older than this is cancelled if others wait.
_STALLED_HANDSHAKE_S = 1.0
#: Pause after `accept` failed (out of descriptors or memory).
_ACCEPT_PAUSE_S = 1.0
_TLS_HANDSHAKE = 0x16
_PLAIN_TO_TLS = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"Client sent an HTTP request to an HTTPS server.\n"
)


class Listening(Protocol):
    """A listening socket, or what stands for one."""

    def fileno(self) -> int: ...

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and its address. Raises OSError."""

    def close(self) -> None: ...


class Acceptor:
    """Accepts on one socket for a Server. `pending` counts sockets that are not yet connections."""

    def __init__(self, server: Host, sock: Listening, ssl_context: ssl.SSLContext | None) -> None:
        self._server = server
        self._sock = sock
        self._ssl_context = ssl_context
        self._accepting = False
        self._closed = False
        self._paused_until_s = 0.0
        #: Sockets that sent nothing yet, and when each is closed.
        self._silent: dict[socket.socket, float] = {}
        self._waiting: deque[socket.socket] = deque()
        #: Handshakes (or plain connections being made) and when each began, oldest first.
        self._opening: dict[asyncio.Task[None], float] = {}

    @property
    def pending(self) -> int:
        return len(self._silent) + len(self._waiting) + len(self._opening)

    def resume(self) -> None:
        """Accept again, if the server has room."""
        if self._accepting or self._closed or not self._has_room():
            return
        self._accepting = True
        self._server.loop.add_reader(self._sock.fileno(), self._accept)

    def use(self, ssl_context: ssl.SSLContext) -> None:
        """Use another context for new handshakes. Does nothing for a plain-text address."""
        if self._ssl_context is not None:
            self._ssl_context = ssl_context

    def check(self, now: float) -> None:
        """Close silent sockets, begin waiting handshakes, accept again after a failure. Called by the sweep."""
        for sock in [sock for sock, deadline in self._silent.items() if deadline <= now]:
            self._forget_silent(sock)
            sock.close()
        self._begin_waiting()
        self.resume()

    def stop(self) -> None:
        """Stop listening. Who is connected already, also without having been accepted, goes on."""
        if self._closed:
            return
        self._pause()
        while self._accept():
            pass
        self._closed = True
        self._sock.close()

    def close(self) -> None:
        """Stop listening and close the sockets that are not yet connections."""
        self.stop()
        for sock in list(self._silent):
            self._forget_silent(sock)
            sock.close()
        while self._waiting:
            self._waiting.popleft().close()
        for task in self._opening:
            task.cancel()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._server.loop.remove_reader(self._sock.fileno())

    def _has_room(self) -> bool:
        server = self._server
        return server.connections < server.limits.connections and server.now() >= self._paused_until_s

    def _accept(self) -> bool:
        """Accept a batch; return whether more may wait."""
        for _ in range(BATCH):
            if not self._has_room():
                self._pause()
                return False
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as error:
                log.error("accept failed", error=str(error))
                self._paused_until_s = self._server.now() + _ACCEPT_PAUSE_S
                self._pause()
                return False
            sock.setblocking(False)
            self._admit(sock)
        return True

    def _admit(self, sock: socket.socket) -> None:
        if self._ssl_context is None:
            self._open(sock)
            return
        self._silent[sock] = self._server.now() + self._server.limits.handshake_timeout_s
        self._server.loop.add_reader(sock.fileno(), self._first_byte, sock)

    def _forget_silent(self, sock: socket.socket) -> None:
        del self._silent[sock]
        self._server.loop.remove_reader(sock.fileno())

    def _first_byte(self, sock: socket.socket) -> None:
        """The first byte arrived: begin a TLS handshake, or refuse anything else cheaply."""
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        self._forget_silent(sock)
        if first and first[0] == _TLS_HANDSHAKE:
            self._waiting.append(sock)
            self._begin_waiting()
            return
        if first.isalpha():
            with contextlib.suppress(OSError):
                sock.recv(65536)
                sock.send(_PLAIN_TO_TLS)
        sock.close()

    def _begin_waiting(self) -> None:
        limit = self._server.limits.handshakes
        while self._waiting:
            if len(self._opening) >= limit and not self._evict():
                return
            self._open(self._waiting.popleft())

    def _evict(self) -> bool:
        """Cancel the oldest handshake if it is stalled. Return whether its place is free."""
        task, began_s = next(iter(self._opening.items()))
        if self._server.now() - began_s < _STALLED_HANDSHAKE_S:
            return False
        del self._opening[task]
        task.cancel()
        return True

    def _open(self, sock: socket.socket) -> None:
        task = self._server.track(self._connect(sock))
        self._opening[task] = self._server.now()
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)
        self._begin_waiting()
        self.resume()

    async def _connect(self, sock: socket.socket) -> None:
        limits, tls, counts = self._server.limits, self._ssl_context, self._server.counts
        counts.handshakes += tls is not None
        try:
            await self._server.loop.connect_accepted_socket(
                self._server.make_protocol,
                sock,
                ssl=tls,
                ssl_handshake_timeout=limits.handshake_timeout_s if tls else None,
                ssl_shutdown_timeout=limits.linger_s if tls else None,
            )
        except (OSError, TimeoutError) as error:
            counts.failed_handshakes += tls is not None
            log.debug("handshake failed", error=str(error))
            sock.close()
        except BaseException:
            sock.close()
            raise


async def bind(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking TCP socket on the first address of `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        keep_alive(sock)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Enable TCP keep-alive, which accepted sockets inherit: a vanished peer is noticed within two minutes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
