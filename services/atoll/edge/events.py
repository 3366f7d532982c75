"""Events of the edge service about EdgePlacements and workload objects: what their owner can repair.

Invariant: the name of an Event has a mark of what it says, so the same is said once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from contextlib import suppress

from atoll.edge.kinds import EVENTS
from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import API_VERSION
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import ERROR, FALSE, WARNING, find
from atoll.machinery.meta.objects import Object, conditions_of
from atoll.machinery.meta.status import AlreadyExists, NotFound

MAX_MESSAGE = 1024
_BAD = frozenset({WARNING, ERROR})


def warning_event(placement: Object, component: str, reason: str, message: str, mark: str) -> Object:
    """Return the Event of a warning."""
    metadata = placement["metadata"]
    involved = {"apiVersion": API_VERSION, "kind": "EdgePlacement", "name": metadata["name"], "uid": metadata["uid"]}
    return event_about(involved, component, reason, message, mark)


def event_about(involved: Object, component: str, reason: str, message: str, mark: str) -> Object:
    """Return the Event of a warning about an object, in its namespace or, if it has none, in `default`."""
    now = times.now()
    metadata = {"name": f"{involved['name'][:230]}.{mark}", "namespace": involved.get("namespace") or "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": involved,
        "reason": reason,
        "type": "Warning",
        "count": 1,
        "message": message[:MAX_MESSAGE],
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


async def tell(
    client: Client, placement: Object, status: Object, kinds: Iterable[str], component: str, quiet: Collection[str] = ()
) -> None:
    """Make an Event of each of these conditions of a new status that came to need its owner, whatever the reason but
    `quiet` ones."""
    for kind in kinds:
        after, before = find(status["conditions"], kind), find(conditions_of(placement), kind)
        if after is None or after["status"] != FALSE or after.get("severity") not in _BAD or after["reason"] in quiet:
            continue
        text = after.get("message", "")
        if before is not None and before.get("message") == text:
            continue
        mark = hashlib.sha256(f"{placement['metadata']['uid']}/{kind}/{text}".encode()).hexdigest()[:16]
        with suppress(AlreadyExists, NotFound):
            await client.create(EVENTS, warning_event(placement, component, after["reason"], text, mark))
