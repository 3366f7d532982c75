"""What a subscriber knows of objects: the revision of each that it was told of, and images where they are asked for.

`subscriber` tells it of each event and of each list. Invariant: what is kept is bounded, in objects and in bytes; what
was forgotten is unknown, never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from atoll.events.event import Event
from atoll.events.subscriber.subscription_api import Listed
from atoll.machinery.meta.names import ObjectKey, ResourceType

_MAX_OBJECTS = 200_000
_MAX_BYTES = 64 << 20


class LastStates:
    """By key; `images` says whether objects are kept too."""

    def __init__(self, *, images: bool) -> None:
        self._images = images
        self._states: OrderedDict[ObjectKey, tuple[int, bytes]] = OrderedDict()
        self._bytes = 0

    def before(self, key: ObjectKey, revision: int) -> bytes:
        """The object before a change of this revision; empty where it is not known."""
        last, image = self._states.get(key, (0, b""))
        return image if last < revision else b""

    def tell(self, event: Event) -> None:
        """Keep what an event says."""
        if event.key is None:
            return
        if event.operation == "DELETED":
            self._drop(event.key)
        else:
            self._keep(event.key, event.revision, event.payload)

    def image(self, listed: Listed) -> None:
        """Keep the objects of a list, which no events are made of."""
        for key, (revision, payload) in listed.objects.items():
            self._keep(key, revision, payload)

    def differences(self, listed: Listed, type: ResourceType) -> Iterator[Event]:
        """The events that lead from what is known of a resource to a list, which then is known."""
        for key in [key for key in self._states if key.type == type]:
            if key not in listed.objects:
                before = self._states[key][1]
                yield Event("DELETED", listed.revision, "", key, before, before=before)
                self._drop(key)
        for key, (revision, payload) in listed.objects.items():
            last, before = self._states.get(key, (0, b""))
            if revision > last:
                yield Event("MODIFIED" if last else "ADDED", revision, "", key, payload, before=before)
                self._keep(key, revision, payload)

    def _keep(self, key: ObjectKey, revision: int, payload: bytes) -> None:
        self._drop(key)
        image = payload if self._images else b""
        self._states[key] = revision, image
        self._bytes += len(image)
        while len(self._states) > _MAX_OBJECTS or self._bytes > _MAX_BYTES:
            _, (_, forgotten) = self._states.popitem(last=False)
            self._bytes -= len(forgotten)

    def _drop(self, key: ObjectKey) -> None:
        _, image = self._states.pop(key, (0, b""))
        self._bytes -= len(image)
