"""The changes of a shard as an async iterator, for programs of third parties.

    async for event in atoll.events.changes(".atoll/stream.json"):
        print(event.operation, event.key, event.object)

`changes` is for the operator, who may read all; `subscribe` is for everybody, of what a workspace lets one watch.
Here belongs what such a program needs: the changes, in order and checked for gaps, and positions to resume from.
Delivery is at least once: keep `event.position` after the event is handled (`PositionFile` does), and pass it to the
next call. Not
here: listing, watching or writing objects (`atoll.machinery.client` does that over the API), and any part of a server.
Importing this package loads no store, no event loop and no API server.
"""

from atoll.events.changes import LATEST, OLDEST, changes
from atoll.events.event import Event
from atoll.events.position_file import PositionFile
from atoll.events.subscribe import subscribe
from atoll.events.subscription_options import Gone, Revoked
from atoll.machinery.meta.names import ObjectKey, ResourceType

__all__ = [
    "LATEST",
    "OLDEST",
    "Event",
    "Gone",
    "ObjectKey",
    "PositionFile",
    "ResourceType",
    "Revoked",
    "changes",
    "subscribe",
]
