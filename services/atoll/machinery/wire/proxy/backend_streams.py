"""The connections to a backend that carry streams, on which `Backend` opens one for each watch.

A backend that does not choose the protocol in a handshake, an older shard or one that is mapped, gets a connection for
each watch as before; each of these offers it again. Invariant: no stream is opened on a connection that was made before
its certificate was replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from atoll.machinery.process.tls import ClientContext, OfferingContext
from atoll.machinery.wire.client import Origin
from atoll.machinery.wire.multiplex.chosen import ChosenProtocol
from atoll.machinery.wire.multiplex.client_session import ClientSession
from atoll.machinery.wire.multiplex.frames import ALPN
from atoll.machinery.wire.proxy.backend_connection import BackendConnection

#: Streams of a connection at most. There is one more once each has so many times their number, so that few streams
#: share few connections and many are spread over a shard's workers.
MOST_STREAMS, SPREAD = 128, 16


class BackendStreams:
    """Those of one backend; `tls` is None where streams are not offered."""

    def __init__(self, origin: Origin, tls: ClientContext | None, make: Callable[[], BackendConnection]) -> None:
        self._origin, self._make = origin, make
        self._tls = tls
        self._offering = OfferingContext.over(tls, ALPN) if tls is not None else None
        self._sessions: list[ClientSession] = []
        #: The last handshake chose HTTP alone.
        self._is_refused = False
        #: Held by the one that makes a connection which others wait for.
        self.turn = asyncio.Lock()

    @property
    def are_served(self) -> bool:
        """Whether the backend is believed to take streams."""
        return self._offering is not None and not self._is_refused

    def open(self) -> BackendConnection | None:
        """A stream of the connection that has the fewest; None if it is time for another connection."""
        fit = [each for each in self._sessions if each.opens and each.renewals == self._renewals]
        session = min(fit, key=lambda each: len(each.streams), default=None)
        if session is None or len(session.streams) >= min(MOST_STREAMS, SPREAD * len(fit)):
            return None
        return self._open(session)

    async def connect(self) -> BackendConnection:
        """A stream of a new connection, or the connection itself where the backend takes no streams.

        Raises OSError.
        """
        origin, renewals = self._origin, self._renewals
        tls = self._offering or origin.tls
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: ChosenProtocol(self._make, ClientSession),
            origin.host,
            origin.port,
            ssl=tls,
            server_hostname=origin.server_name or origin.host,
        )
        chosen = cast(ClientSession | BackendConnection, protocol.chosen)
        chosen.renewals = renewals
        self._is_refused = not isinstance(chosen, ClientSession)
        if not isinstance(chosen, ClientSession):
            return chosen
        self._sessions.append(chosen)
        return self._open(chosen)

    def check(self, now_s: float, stall_s: float, idle_s: float) -> None:
        """Cut connections that are stalled; close those without streams that are idle or have an old certificate."""
        for session in list(self._sessions):
            session.check_stall(now_s, stall_s)
            is_old = session.renewals != self._renewals
            if not session.lost and not session.streams and (is_old or now_s - session.idle_since_s >= idle_s):
                session.close()
            if session.lost:
                self._sessions.remove(session)

    def close(self) -> None:
        """Cut all."""
        for session in self._sessions:
            session.abort()
        self._sessions.clear()

    @property
    def _renewals(self) -> int:
        return self._tls.renewals if self._tls is not None else 0

    def _open(self, session: ClientSession) -> BackendConnection:
        connection = self._make()
        connection.is_stream = True
        # As on a pooled connection: one that ends before any byte of the response had ended before.
        connection.used = session.last_number > 0
        session.open(connection)
        return connection
