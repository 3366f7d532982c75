"""Name resolution for calls that tenants configure: off the loop, bounded, with a deadline.

`guard` resolves before it connects, and connects to the addresses it checked, so that a name cannot change in between.
Each look-up has a thread of its own: the system's resolver cannot be interrupted, and a slow name server must not fill
a pool that other look-ups share. Threads are bounded; a look-up without a free one fails at once. Results are cached
for half a minute.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import TypeAlias

from atoll.machinery.meta.lru import LruCache

#: Blocking look-up of (host, port): numeric addresses, none twice. Raises OSError.
Lookup: TypeAlias = Callable[[str, int], list[str]]

TIMEOUT_S, KEEP_S = 5.0, 30.0
MAX_LOOKUPS, MAX_NAMES, MAX_ADDRESSES = 32, 1024, 16
#: Concurrent look-ups in one domain: a name server that never answers delays its own names first.
MAX_OF_DOMAIN = 8


class Unresolved(Exception):
    """A name has no address, or none was found in time."""


def _domain(host: str) -> str:
    """The last two labels of a name."""
    return ".".join(host.rstrip(".").split(".")[-2:])


def system_lookup(host: str, port: int) -> list[str]:
    """Ask the system's resolver. Raises OSError."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


class Resolver:
    """Look-ups of one process."""

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._cache: LruCache[str, tuple[float, tuple[str, ...]]] = LruCache(MAX_NAMES)
        self._running: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """Every address of a host, at least one. Raises Unresolved."""
        loop = asyncio.get_running_loop()
        cached = self._cache.get(host)
        if cached is not None and cached[0] > loop.time():
            return cached[1]
        answer = self._running.get(host) or self._start(loop, host, port)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = await asyncio.shield(answer)
        except TimeoutError:
            raise Unresolved(f"lookup {host}: timed out") from None
        except (OSError, ValueError) as error:
            raise Unresolved(f"lookup {host}: no such host") from error
        if not found or len(found) > MAX_ADDRESSES:
            raise Unresolved(f"lookup {host}: {len(found)} addresses")
        addresses = tuple(found)
        self._cache.put(host, (loop.time() + KEEP_S, addresses))
        return addresses

    def _start(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> asyncio.Future[list[str]]:
        alike = sum(_domain(each) == _domain(host) for each in self._running)
        if len(self._running) >= MAX_LOOKUPS or alike >= MAX_OF_DOMAIN:
            raise Unresolved(f"lookup {host}: too many lookups under way")
        future: asyncio.Future[list[str]] = loop.create_future()
        # The caller may be gone when the result arrives.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._running[host] = future

        def done(found: list[str] | BaseException) -> None:
            self._running.pop(host, None)
            if isinstance(found, BaseException):
                future.set_exception(found)
            else:
                future.set_result(found)

        def run() -> None:
            found: list[str] | BaseException
            try:
                found = self._lookup(host, port)
            except Exception as error:  # the waiting callers get every error
                found = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, found)

        threading.Thread(target=run, name="egress-lookup", daemon=True).start()
        return future
