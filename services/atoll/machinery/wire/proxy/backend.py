"""Who requests are passed on to: kept connections to each backend, and what is known of one that does not answer.

`relay` asks for a link; `Backends` keeps one Backend an address, and one sweep for all of them. Invariants: of a
backend that could not be reached, callers hear at once, but for one at a time who tries; kept connections are bounded
in number and age, and the one used last is used next, so that those no longer needed fall idle.
"""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import msgspec
import structlog

from atoll.machinery.wire.client import Origin
from atoll.machinery.wire.proxy.backend_connection import BackendConnection

log = structlog.get_logger()

_SWEEP_S = 1.0


class BackendLimits(msgspec.Struct, frozen=True):
    """Bounds of a backend: times in seconds."""

    connect_timeout_s: float = 3.0
    #: From the end of the request to the head of the answer: above what a shard gives a request (60 s).
    head_timeout_s: float = 75.0
    #: A backend that takes no byte of what waits for it for so long is left.
    stall_timeout_s: float = 60.0
    #: Below a shard's 120 s, so that ours closes first.
    idle_timeout_s: float = 60.0
    #: Kept for the next request.
    idle_links: int = 128
    #: Handshakes under way at a time; the rest waits its turn, within the connect timeout.
    connecting: int = 64
    #: How long a backend is left alone after it could not be reached: the first time, and at most.
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    #: A backend that nobody asked for is forgotten.
    forget_after_s: float = 600.0


class BackendUnreachable(Exception):
    """The backend cannot be reached: nothing was sent."""


class Backend:
    """One address, with the TLS context it is spoken to in."""

    def __init__(self, url: str, tls: ssl.SSLContext, timing: BackendLimits) -> None:
        parts = urlsplit(url)
        self.url = url
        self.timing = timing
        self.path = parts.path.rstrip("/")
        self._origin = Origin(parts.hostname or "", parts.port or 443, tls)
        self.authority = parts.netloc.rpartition("@")[2]
        self._loop = asyncio.get_running_loop()
        #: Oldest first; taken from the end.
        self._idle: list[BackendConnection] = []
        self._busy: set[BackendConnection] = set()
        self._room = asyncio.Semaphore(timing.connecting)
        self._connecting = 0
        self._failures = 0
        self._probing = False
        self._retry_at_s = 0.0
        self._reason = ""
        self.used_at_s = self._loop.time()

    @property
    def links(self) -> int:
        """Open connections."""
        return len(self._idle) + len(self._busy)

    @property
    def is_down(self) -> bool:
        """The last attempt to reach it failed."""
        return self._failures > 0

    @property
    def is_unused(self) -> bool:
        return not self._busy and not self._connecting

    def kept(self) -> BackendConnection | None:
        """A kept connection that is still good, the one used last."""
        while self._idle:
            link = self._idle.pop()
            if link.reusable and link.still_quiet():
                return self._take(link)
            link.abort()
        return None

    async def connect(self, *, fresh: bool = False) -> BackendConnection:
        """A new connection, or (unless `fresh`) one that fell idle while this waited for its turn. Raises BackendUnreachable: at once
        where the last attempts failed, unless it is time for another."""
        self._check()
        probing = self._failures > 0
        self._probing = self._probing or probing
        self._connecting += 1
        try:
            async with asyncio.timeout(self.timing.connect_timeout_s):
                async with self._room:
                    if not probing:
                        self._check()
                        if not fresh and (link := self.kept()) is not None:
                            return link
                    link = await self._connect()
        except (OSError, TimeoutError) as error:
            self._failed(str(error) or "timed out")
            raise BackendUnreachable(self._reason) from error
        finally:
            self._connecting -= 1
            if probing:
                self._probing = False
        if self._failures:
            log.info("backend reached again", backend=self.url)
        self._failures = 0
        return self._take(link)

    def release(self, link: BackendConnection) -> None:
        """The answer on `link` was whole, or nobody waits for it any more."""
        self._busy.discard(link)
        if not link.reusable or len(self._idle) >= self.timing.idle_links:
            link.abort()
            return
        link.idle_since_s = self._loop.time()
        self._idle.append(link)

    def check(self, now_s: float) -> None:
        """End waits that are over and close what is idle for too long. Called by the sweep."""
        for link in list(self._busy):
            link.check(now_s, self.timing.stall_timeout_s)
        oldest_s = now_s - self.timing.idle_timeout_s
        for link in [link for link in self._idle if link.idle_since_s <= oldest_s or not link.reusable]:
            self._idle.remove(link)
            link.close()
        if self._busy:
            self.used_at_s = now_s

    def close(self) -> None:
        """Close every connection; answers under way are cut."""
        for link in [*self._idle, *self._busy]:
            link.abort()
        self._idle.clear()

    def _take(self, link: BackendConnection) -> BackendConnection:
        self._busy.add(link)
        self.used_at_s = self._loop.time()
        return link

    def _check(self) -> None:
        if self._failures and (self._probing or self._loop.time() < self._retry_at_s):
            raise BackendUnreachable(self._reason)

    def _failed(self, reason: str) -> None:
        timing = self.timing
        if self._loop.time() < self._retry_at_s:
            return  # One of several that went together, and was counted with the first.
        pause_s = min(timing.first_pause_s * 2 ** min(self._failures, 16), timing.longest_pause_s)
        self._failures += 1
        self._retry_at_s = self._loop.time() + pause_s
        self._reason = reason
        if self._failures == 1:
            log.warning("backend cannot be reached", backend=self.url, reason=reason)

    async def _connect(self) -> BackendConnection:
        origin = self._origin
        _, link = await self._loop.create_connection(
            BackendConnection, origin.host, origin.port, ssl=origin.tls, server_hostname=origin.host
        )
        return link


class Backends:
    """Every backend of a process, by URL and trust. Close it when done."""

    def __init__(self, timing: BackendLimits | None = None) -> None:
        self._timing = timing or BackendLimits()
        self._known: dict[tuple[str, ssl.SSLContext], Backend] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep_s = min(_SWEEP_S, self._timing.idle_timeout_s / 4, self._timing.head_timeout_s / 4)
        self._timer = self._loop.call_later(self._sweep_s, self._sweep)

    def of(self, url: str, tls: ssl.SSLContext) -> Backend:
        """The backend at a base URL (https). Raises ValueError for what is no such URL."""
        found = self._known.get((url, tls))
        if found is None:
            if not url.startswith("https://"):
                raise ValueError(f"{url!r} is not an https URL")
            found = self._known[url, tls] = Backend(url, tls, self._timing)
        return found

    def all(self) -> list[Backend]:
        return list(self._known.values())

    def close(self) -> None:
        self._timer.cancel()
        for backend in self._known.values():
            backend.close()

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for key, backend in list(self._known.items()):
            backend.check(now_s)
            if backend.is_unused and now_s - backend.used_at_s > self._timing.forget_after_s:
                backend.close()
                del self._known[key]
        self._timer = self._loop.call_later(self._sweep_s, self._sweep)
