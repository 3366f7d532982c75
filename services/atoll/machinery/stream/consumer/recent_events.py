"""The events that a consumer had last, for objects that are selected right behind their event.

The state consumer keeps some. Where its filters have whole resources in them, an event comes also of an object that is
not selected yet, and its sink drops it; such an object needs no reading. Invariant: all events came by the same
filters, without a gap, so that of an object the one that is here is the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.events import Event

#: Most are selected within a second; events of whole resources are a few KiB.
MOST, MOST_BYTES = 500, 1 << 20


class RecentEvents:
    """The last event of each object, of the last few objects."""

    def __init__(self) -> None:
        self._events: dict[ObjectKey, Event] = {}
        self._size_bytes = 0

    def add(self, events: Iterable[Event]) -> None:
        """Keep events of objects, in their order."""
        for event in events:
            if event.key is None:
                continue
            self._drop(event.key)
            self._events[event.key] = event
            self._size_bytes += len(event.payload)
            while len(self._events) > MOST or self._size_bytes > MOST_BYTES:
                self._drop(next(iter(self._events)))

    def of(self, keys: Iterable[ObjectKey]) -> dict[ObjectKey, Event]:
        """Return the last events of these objects, as far as they are here."""
        return {key: self._events[key] for key in keys if key in self._events}

    def clear(self) -> None:
        """Drop all: other filters come, or events were missed."""
        self._events.clear()
        self._size_bytes = 0

    def _drop(self, key: ObjectKey) -> None:
        event = self._events.pop(key, None)
        if event is not None:
            self._size_bytes -= len(event.payload)
