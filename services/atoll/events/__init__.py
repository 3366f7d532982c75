"""The changes of a shard as an async iterator, for programs of third parties.

    async for event in atoll.events.changes(".atoll/stream.json"):
        print(event.operation, event.key, event.object)

Here belongs what such a program needs: the changes, in order and checked for gaps, and positions to resume from.
Delivery is at least once: keep `event.position` after the event is handled (`PositionFile` does), and pass it to the
next call. Not
here: listing, watching or writing objects (`atoll.machinery.client` does that over the API), and any part of a server.
Importing this package loads no store, no event loop and no API server.
"""

from atoll.events.changes import LATEST, OLDEST, changes
from atoll.events.event import Event
from atoll.events.position_file import PositionFile
from atoll.machinery.meta.names import ObjectKey, ResourceType

__all__ = ["LATEST", "OLDEST", "Event", "ObjectKey", "PositionFile", "ResourceType", "changes"]
