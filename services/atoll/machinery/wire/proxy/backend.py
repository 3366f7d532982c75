"""Backends that requests are relayed to: pooled connections to each, streams for watches where the backend takes them,
and a circuit for one that cannot be reached.

`relay` takes connections here; `Backends` keeps one Backend for each address and sweeps them all. Invariants: while a
backend cannot be reached, requests fail at once, except for one at a time that tries; idle connections are bounded in
number and age.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
import structlog

from atoll.machinery.process import open_files
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.circuit import Circuit, CircuitPolicy
from atoll.machinery.process.tls import ClientContext
from atoll.machinery.wire.client import Origin
from atoll.machinery.wire.idle_pool import IdlePool
from atoll.machinery.wire.proxy.backend_connection import BackendConnection
from atoll.machinery.wire.proxy.backend_streams import BackendStreams

log = structlog.get_logger()

#: Longest interval of the sweep, which is at most a quarter of the shortest limit.
_SWEEP_S = 4.0
#: How often a want of files is logged.
_REPEAT_S = 10.0


class BackendLimits(msgspec.Struct, frozen=True):
    """Bounds of a backend: times in seconds."""

    connect_timeout_s: float = 3.0
    #: From the end of the request to the head of the response: above the 60 s that a shard gives a request.
    head_timeout_s: float = 75.0
    #: A backend that takes no byte of what waits for it for so long is left.
    stall_timeout_s: float = 60.0
    #: A backend that sends nothing of a response it began for so long is left.
    silence_timeout_s: float = math.inf
    #: The same for a response that has an end: a frozen shard. Watches have none.
    body_timeout_s: float = 60.0
    #: An upgraded connection on which neither side sends anything for so long is closed.
    upgraded_silence_timeout_s: float = math.inf
    #: Below a shard's 120 s, so that ours closes first.
    idle_timeout_s: float = 60.0
    #: Connections kept for the next request.
    idle_connections: int = 128
    #: Handshakes at a time; others wait their turn, within the connect timeout.
    connecting: int = 64
    #: How long no connection is tried after one failed: the first time, and at most.
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    #: A backend that was not used for so long is forgotten.
    forget_after_s: float = 600.0

    @property
    def shortest_s(self) -> float:
        """The shortest limit of what the sweep looks at."""
        silences_s = self.silence_timeout_s, self.body_timeout_s, self.upgraded_silence_timeout_s
        return min(self.head_timeout_s, self.stall_timeout_s, self.idle_timeout_s, *silences_s)


class BackendUnreachable(Exception):
    """The backend cannot be reached: nothing was sent."""


class Backend:
    """One address, and the TLS context of connections to it."""

    def __init__(
        self,
        origin: Origin,
        limits: BackendLimits,
        path: str = "",
        connection: Callable[[], BackendConnection] = BackendConnection,
        *,
        streams: bool = False,
    ) -> None:
        self.limits = limits
        #: The path of its base URL, without a slash at its end.
        self.path = path
        #: Value of the Host header.
        self.authority = origin.authority
        self._origin, self._make = origin, connection
        self._loop = asyncio.get_running_loop()
        self._idle: IdlePool[BackendConnection] = IdlePool(limits.idle_connections, origin.tls)
        self._streams = BackendStreams(origin, self._idle.context if streams else None, connection)
        self._busy: set[BackendConnection] = set()
        self._room = asyncio.Semaphore(limits.connecting)
        self._connecting = 0
        self._circuit = Circuit(CircuitPolicy(Backoff(limits.first_pause_s, limits.longest_pause_s, 1.0, 1.0)))
        self.used_at_s = self._loop.time()
        #: When a want of files is logged again.
        self._silent_until_s = 0.0

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._idle) + len(self._busy)

    @property
    def is_down(self) -> bool:
        """The last attempt to reach it failed."""
        return self._circuit.has_failed

    @property
    def is_unused(self) -> bool:
        return not self._busy and not self._connecting

    def idle_connection(self) -> BackendConnection | None:
        """An idle connection that is still good, the one used last."""
        connection = self._idle.take()
        return self._use(connection) if connection is not None else None

    def stream(self) -> BackendConnection | None:
        """For a response that lasts: a stream of an open connection, or an idle one where the backend takes none."""
        if not self._streams.are_served:
            return self.slim_connection()
        connection = self._streams.open()
        return self._use(connection) if connection is not None else None

    def slim_connection(self) -> BackendConnection | None:
        """An idle connection that is still good and never carried much at a time, for a response that lasts."""
        connection = self._idle.take_slim()
        return self._use(connection) if connection is not None else None

    async def connect(self, *, fresh: bool = False, stream: bool = False) -> BackendConnection:
        """A new connection, or (unless `fresh`) one that fell idle while this call waited for its turn.

        With `stream` it is a stream, of a new connection or of one that was made meanwhile, if the backend takes them.
        Raises BackendUnreachable: at once after failures, unless it is time for another attempt.
        """
        circuit, limits = self._circuit, self.limits
        probes = circuit.is_tripped
        if not circuit.enter(self._loop.time()):
            raise BackendUnreachable(circuit.reason)
        self._connecting += 1
        try:
            async with asyncio.timeout(limits.connect_timeout_s):
                if stream and self._streams.are_served:
                    async with self._streams.turn:
                        # It may have refused them meanwhile: then nobody waits for another.
                        if self._streams.are_served:
                            found = self._streams.open()
                            return self._use(found or await self._connect(probes=probes, stream=True))
                async with self._room:
                    if not (fresh or probes or stream) and (idle := self.idle_connection()) is not None:
                        return idle
                    return self._use(await self._connect(probes=probes, stream=stream))
        except (OSError, TimeoutError) as error:
            if open_files.is_shortage(error):
                self._lacks_files(str(error))
                raise BackendUnreachable(str(error)) from error
            self._failed(str(error) or "timed out")
            raise BackendUnreachable(circuit.reason) from error
        finally:
            self._connecting -= 1
            if probes:
                circuit.abandoned()

    def release(self, connection: BackendConnection) -> None:
        """Take back a connection whose response is complete, or no longer wanted."""
        self._busy.discard(connection)
        if connection.is_stream:
            connection.close()
        else:
            self._idle.put(connection, self._loop.time())

    def check(self, now_s: float) -> None:
        """End waits that are over, and close what has been idle for too long. Called by the sweep."""
        limits = self.limits
        for connection in list(self._busy):
            silence_s = limits.silence_timeout_s
            if not connection.endless:
                silence_s = min(silence_s, limits.body_timeout_s)
            connection.check(now_s, limits.stall_timeout_s, silence_s, limits.upgraded_silence_timeout_s)
        self._idle.expire(now_s - limits.idle_timeout_s)
        self._streams.check(now_s, limits.stall_timeout_s, limits.idle_timeout_s)
        if self._busy:
            self.used_at_s = now_s

    def close(self) -> None:
        """Close every connection; responses under way are cut."""
        for connection in list(self._busy):
            connection.abort()
        self._idle.clear()
        self._streams.close()

    def _use(self, connection: BackendConnection) -> BackendConnection:
        self._busy.add(connection)
        self.used_at_s = self._loop.time()
        return connection

    def _failed(self, reason: str) -> None:
        was_down = self.is_down
        self._circuit.failed(self._loop.time(), reason)
        if not was_down:
            log.warning("backend unreachable", backend=self.authority, reason=reason)

    def _lacks_files(self, reason: str) -> None:
        """A request failed for want of a file, which says nothing of the backend: others have connections to it."""
        now_s = self._loop.time()
        if now_s >= self._silent_until_s:
            log.error("no connection to a backend can be made", backend=self.authority, reason=reason)
            self._silent_until_s = now_s + _REPEAT_S

    async def _connect(self, *, probes: bool, stream: bool) -> BackendConnection:
        """Make a connection, if the backend was not found unreachable meanwhile. Raises BackendUnreachable, OSError."""
        circuit = self._circuit
        if not probes and circuit.is_open(self._loop.time()):
            raise BackendUnreachable(circuit.reason)
        if stream:
            connection = await self._streams.connect()
        else:
            origin, renewals = self._origin, self._idle.context.renewals
            _, connection = await self._loop.create_connection(
                self._make, origin.host, origin.port, ssl=origin.tls, server_hostname=origin.server_name or origin.host
            )
            connection.renewals = renewals
        if circuit.has_failed:
            log.info("backend reachable again", backend=self.authority)
        circuit.succeeded()
        return connection


class Backends:
    """The backends of a process, by origin. Close it when done.

    Beyond `most`, a backend without requests is forgotten for a new one. Backends with the context `streams` are
    offered to carry watches as streams of few connections.
    """

    def __init__(
        self,
        limits: BackendLimits | None = None,
        connection: Callable[[], BackendConnection] = BackendConnection,
        most: int = 65_536,
        *,
        streams: ClientContext | None = None,
    ) -> None:
        self._limits, self._connection, self._most = limits or BackendLimits(), connection, most
        self._streams = streams
        self._backends: dict[tuple[str, ssl.SSLContext], Backend] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep_s = min(_SWEEP_S, self._limits.shortest_s / 4)
        self._timer = self._loop.call_later(self._sweep_s, self._sweep)

    def at_url(self, url: str, tls: ssl.SSLContext) -> Backend:
        """The backend at a base URL (https). Raises ValueError for anything else."""
        found = self._backends.get((url, tls))
        if found is None:
            if not url.startswith("https://"):
                raise ValueError(f"{url!r} is not an https URL")
            parts = urlsplit(url)
            name = parts.netloc.rpartition("@")[2]
            origin = Origin(parts.hostname or "", parts.port or 443, tls, name=name)
            found = self._add((url, tls), origin, parts.path.rstrip("/"))
        return found

    def at_address(self, origin: Origin) -> Backend:
        """The backend at an origin whose `host` is an address and whose `server_name` is the name it was found by."""
        assert origin.tls is not None
        key = f"{origin.host} {origin.port} {origin.server_name}", origin.tls
        return self._backends.get(key) or self._add(key, origin, "")

    def all(self) -> list[Backend]:
        return list(self._backends.values())

    def close(self) -> None:
        self._timer.cancel()
        for backend in self._backends.values():
            backend.close()

    def _add(self, key: tuple[str, ssl.SSLContext], origin: Origin, path: str) -> Backend:
        if len(self._backends) >= self._most:
            unused = next((key for key, backend in self._backends.items() if backend.is_unused), None)
            if unused is not None:
                self._backends.pop(unused).close()
        streams = origin.tls is not None and origin.tls is self._streams
        backend = self._backends[key] = Backend(origin, self._limits, path, self._connection, streams=streams)
        return backend

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for key, backend in list(self._backends.items()):
            backend.check(now_s)
            if backend.is_unused and now_s - backend.used_at_s > self._limits.forget_after_s:
                backend.close()
                del self._backends[key]
        self._timer = self._loop.call_later(self._sweep_s, self._sweep)
