"""Writes the state stream: the last state of every replicated object.

An entry matters only where an object is, becomes or ceases to be replicated. A restart is a refill from the current
objects between two RESYNC. Invariant: an interrupted refill is recognised by the phase of the stream's last message,
and begun again; each refill has a number above those before it, on every message sent in it and after it.
"""

from __future__ import annotations

import time

import msgspec

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.definitions import TOMBSTONE_TTL_S
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.log_events import control, tombstone
from atoll.machinery.stream.publisher.log_source import SourceEntry, standing_pages
from atoll.machinery.stream.publisher.publish_window import PublishWindow
from atoll.machinery.stream.publisher.resume import ResumePlan
from atoll.machinery.stream.publisher.stream_writer import Outgoing, StreamWriter

_TTL = (f"Nats-TTL: {TOMBSTONE_TTL_S}s",)


class StateWriter(StreamWriter):
    """Carries the last state of every replicated object."""

    kind = subjects.STATE
    renews_signatures = True
    fences = False
    follows = True

    def _outgoing(self, entry: SourceEntry) -> Outgoing:
        event = self._event(entry) if self._policy.may_replicate(entry.key.type) else None
        deleted = event is not None and event.operation is Operation.DELETED
        return Outgoing(entry.revision, event, _TTL if deleted else ())

    def _event(self, entry: SourceEntry) -> Event | None:
        stands = self._policy.replicated(entry.key, entry.value)
        if entry.operation == Operation.DELETED:
            return tombstone(self._identity, entry.key, entry.revision) if stands else None
        if stands:
            return self._from_entry(entry)
        before = self._log.before(entry)
        if before is None or not self._policy.replicated(entry.key, before):
            return None
        return tombstone(self._identity, entry.key, entry.revision)

    @property
    def _filled_under(self) -> str:
        return self._policy.state_version

    async def _restart(self, window: PublishWindow, connection: Connection, plan: ResumePlan) -> int:
        """Refill from the objects. Earlier states are not needed, so the log is not replayed."""
        del plan
        position = self._log.last()
        self._filling = max(self._filling + 1, time.time_ns() // 1000)
        # The first BEGIN moves the stream's end past the cursor, so that an interrupted purge is noticed.
        await self._mark_phase(window, position, Phase.BEGIN)
        await window.drain()
        await stream_admin.purge_stream(connection, self.stream)
        await self._mark_phase(window, position, Phase.BEGIN)
        for type in self._log.types():
            if self._policy.may_replicate(type):
                await self._refill(window, type, position)
        await self._mark_phase(window, position, Phase.END)
        return position

    async def _mark_phase(self, window: PublishWindow, position: int, phase: Phase) -> None:
        event = control(self.kind, Operation.RESYNC, self._identity, position, phase)
        await self._send(window, [Outgoing(position, event)])

    async def _refill(self, window: PublishWindow, type: ResourceType, position: int) -> None:
        for page in standing_pages(self._log, type):
            standing = [entry for entry in page if self._policy.replicated(entry.key, entry.value)]
            await self._send(window, (Outgoing(position, self._refilled(entry)) for entry in standing))

    def _refilled(self, entry: SourceEntry) -> Event:
        event = self._from_entry(entry)
        return msgspec.structs.replace(event, phase=Phase.REFILL)
