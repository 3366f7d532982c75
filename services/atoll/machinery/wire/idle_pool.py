"""Idle connections of a client, kept for the next request to the same origin.

`HttpClient` and the proxy's `Backend` each keep one pool. Invariants: the connection used last is taken first, so that
those no longer needed grow old and are closed; a connection that the server has closed, or on which unrequested bytes
arrived, or that presents a certificate that was replaced, is never handed out.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from atoll.machinery.process.tls import ClientContext

#: A TLS connection keeps memory in proportion to its longest read and write until it ends, and a watch may keep it for
#: hours. A handshake, a request with a token, its reply and an event are shorter than this.
SLIM_BYTES = 4 * 1024
_NEVER_REPLACED = ClientContext(ssl.PROTOCOL_TLS_CLIENT)


class PooledConnection(asyncio.Protocol, ABC):
    """A connection that carries one request at a time, and can be kept between two of them."""

    __slots__ = ("_poll", "_transport", "closed", "idle_since_s", "longest_bytes", "renewals", "used")

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.closed = False
        #: A request was answered on it.
        self.used = False
        self.idle_since_s = 0.0
        #: Those of its context when it was made.
        self.renewals = 0
        self._poll: select.poll | None = None
        #: The most that was carried at once.
        self.longest_bytes = 0

    @property
    @abstractmethod
    def reusable(self) -> bool:
        """Whether another request may be sent on it."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once; a response under way fails."""

    @abstractmethod
    def close(self) -> None:
        """Close after what was written has been sent."""

    @property
    def is_slim(self) -> bool:
        """Whether it keeps little memory of what it carried, so that a watch may have it."""
        return self.longest_bytes <= SLIM_BYTES

    def still_quiet(self) -> bool:
        """Whether nothing waits in the socket of this idle connection.

        A byte or an end of stream that the loop has not seen yet means that the server closed the connection: a request
        written now would be lost, with its outcome unknown.
        """
        poll = self._poll
        if poll is None:
            poll = self._poll = select.poll()
            poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)


C = TypeVar("C", bound=PooledConnection)


class IdlePool(Generic[C]):
    """At most `limit` idle connections, oldest first; none that was made before its context was last replaced."""

    def __init__(self, limit: int, tls: ssl.SSLContext | None = None) -> None:
        self._limit = limit
        #: A context of another kind is never replaced.
        self.context = tls if isinstance(tls, ClientContext) else _NEVER_REPLACED
        self._idle: list[C] = []

    def __len__(self) -> int:
        return len(self._idle)

    def __iter__(self) -> Iterator[C]:
        return iter(self._idle)

    def take(self) -> C | None:
        """Remove and return the connection used last that is still good; None if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_good(connection):
                return connection
            connection.abort()
        return None

    def take_slim(self) -> C | None:
        """Remove and return the connection used last that is slim and still good; None if there is none."""
        for connection in [each for each in reversed(self._idle) if each.is_slim]:
            self._idle.remove(connection)
            if self._is_good(connection):
                return connection
            connection.abort()
        return None

    def _is_good(self, connection: C) -> bool:
        return connection.renewals == self.context.renewals and connection.reusable and connection.still_quiet()

    def put(self, connection: C, now_s: float) -> bool:
        """Keep a connection, or close it if it cannot be used again or the pool is full. Return whether it is kept."""
        is_current = connection.renewals == self.context.renewals
        if not is_current or not connection.reusable or len(self._idle) >= self._limit:
            connection.abort()
            return False
        connection.idle_since_s = now_s
        self._idle.append(connection)
        return True

    def expire(self, oldest_s: float) -> None:
        """Close connections that have been idle since `oldest_s` or longer, and those that ended."""
        self.close_if(lambda each: each.idle_since_s <= oldest_s)

    def close_if(self, is_due: Callable[[C], bool]) -> None:
        """Close the connections that are due, and those that ended."""
        for connection in [each for each in self._idle if is_due(each) or not each.reusable]:
            self._idle.remove(connection)
            connection.close()

    def clear(self) -> None:
        """Close all."""
        while self._idle:
            self._idle.pop().abort()
