"""The controller of Events about workload objects: what their owner can repair, said where the object is.

Keys are workspaces. `rendering`, `copies` and `conflicts` tell. Invariants: what is said again raises the count of the
Event that says it; a workspace gets at most MAX_A_MINUTE writes a minute, and what is told beyond waits up to as many
Events, and is then only in the conditions of its placements.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from contextlib import suppress

import msgspec

from atoll.edge.events import MAX_MESSAGE, event_about
from atoll.edge.export_view import ExportView
from atoll.edge.kinds import EVENTS
from atoll.edge.placement_translator.contents import Contents
from atoll.machinery.client.client import Client
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta import times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Forbidden, NotFound

COMPONENT = "placement-translator"
MAX_A_MINUTE, MINUTE_S = 20, 60.0
#: Events whose counts are known, in all workspaces.
MAX_COUNTS = 4096
#: What the others of a burst wait for, so that they are one write.
BURST_S = 0.2


class Note(msgspec.Struct, frozen=True):
    """What to say of an object."""

    ref: ObjectRef
    reason: str
    message: str


class ObjectEvents:
    """The controller. `workspaces` is a client of the account whose rights in workspaces are their owners'."""

    name = "placement-translator-object-events"

    def __init__(self, view: ExportView, workspaces: Client, contents: Contents) -> None:
        self._view, self._workspaces, self._contents = view, workspaces, contents
        self.queue: WorkQueue[str] = WorkQueue()
        #: Workspace -> what to say, and how often it was told.
        self._notes: dict[str, dict[Note, int]] = {}
        #: Workspace -> moments of the last writes.
        self._written: dict[str, deque[float]] = {}
        self._counts: LruCache[tuple[str, str], int] = LruCache(MAX_COUNTS)

    def tell(self, cluster: str, ref: ObjectRef, reason: str, message: str) -> None:
        """Something about an object of a workspace needs its owner."""
        notes, note = self._notes.setdefault(cluster, {}), Note(ref, reason, message[:MAX_MESSAGE])
        if note in notes or len(notes) < MAX_A_MINUTE:
            notes[note] = notes.get(note, 0) + 1
            self.queue.add(cluster, delay_s=BURST_S)

    async def synced(self) -> None:
        """Wait until all bindings were seen."""
        await self._view.complete.wait()

    async def reconcile(self, cluster: str) -> Requeue:
        """Write what was told."""
        notes, written = self._notes.pop(cluster, {}), self._written.setdefault(cluster, deque())
        client, now_s = self._view.client(cluster), time.monotonic()
        while written and now_s - written[0] >= MINUTE_S:
            written.popleft()
        try:
            for note, repeats in list(notes.items())[: MAX_A_MINUTE - len(written)]:
                if client is not None:
                    written.append(now_s)
                    await self._write(client, cluster, note, repeats)
                del notes[note]
        finally:
            if notes and client is not None:
                self._notes[cluster] = dict(list({**self._notes.get(cluster, {}), **notes}.items())[:MAX_A_MINUTE])
        if not written:
            # Nothing is kept of a workspace that is quiet.
            del self._written[cluster]
            return None
        return max((written[0] if notes else written[-1]) + MINUTE_S - time.monotonic(), 0.0)

    async def _write(self, client: Client, cluster: str, note: Note, repeats: int) -> None:
        event = self._event(cluster, note)
        if event is None:
            return
        metadata = event["metadata"]
        key = cluster, f"{metadata['namespace']}/{metadata['name']}"
        event["count"] = count = (self._counts.get(key) or 0) + repeats
        try:
            await client.create(EVENTS, event)
        except AlreadyExists:
            await self._count(cluster, event, repeats)
        except NotFound:
            # Its Namespace is gone.
            return
        self._counts.put(key, count)

    async def _count(self, cluster: str, event: Object, repeats: int) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        here = self._workspaces.cluster(cluster)
        with suppress(NotFound, Forbidden):
            stored = await here.get(EVENTS, name, namespace)
            count = int(stored.get("count") or 1) + repeats
            await here.patch(EVENTS, name, {"count": count, "lastTimestamp": times.now()}, namespace)

    def _event(self, cluster: str, note: Note) -> Object | None:
        content, ref = self._contents.get(cluster), note.ref
        item = content.items.get(ref) if content is not None else None
        kind = content.kinds.get(ref.kind) if content is not None else None
        if item is None or kind is None:
            return None
        api_version = "/".join(filter(None, (ref.group, item.version)))
        involved = {"apiVersion": api_version, "kind": kind.kind, "name": ref.name, "uid": item.uid}
        if ref.namespace:
            involved["namespace"] = ref.namespace
        text = f"{item.uid}/{note.reason}/{note.message}"
        mark = hashlib.sha256(text.encode()).hexdigest()[:16]
        return event_about(involved, COMPONENT, note.reason, note.message, mark)
