"""Writes the changes stream: every change of the published types.

A restart is a RESYNC and then the retained log. Invariant: every entry of a published type becomes one message, in
revision order.
"""

from __future__ import annotations

from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.log_events import control
from atoll.machinery.stream.publisher.log_source import SourceEntry
from atoll.machinery.stream.publisher.publish_window import PublishWindow
from atoll.machinery.stream.publisher.resume import ResumePlan
from atoll.machinery.stream.publisher.stream_writer import Outgoing, StreamWriter


class ChangesWriter(StreamWriter):
    """Carries every change of the published types."""

    kind = subjects.CHANGES
    renews_signatures = False
    fences = True
    follows = False

    def _outgoing(self, entry: SourceEntry) -> Outgoing:
        wanted = self._policy.published(entry.key.type)
        return Outgoing(entry.revision, self._from_entry(entry) if wanted else None)

    async def _restart(self, window: PublishWindow, connection: Connection, plan: ResumePlan) -> int:
        if plan.purge:
            await self._resync(window, plan.after)
            await window.drain()
            await stream_admin.purge_stream(connection, self.stream)
        await self._resync(window, plan.after)
        return plan.after

    async def _resync(self, window: PublishWindow, after: int) -> None:
        await self._send(window, [Outgoing(after, control(self.kind, Operation.RESYNC, self._identity, after))])
