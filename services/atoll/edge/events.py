"""Events of the edge service about EdgePlacements and workload objects: what their owner can repair.

Invariant: the name of an Event has a mark of what it says, so the same is said once.
"""

from __future__ import annotations

from atoll.machinery.edge.names import API_VERSION
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object

MAX_MESSAGE = 1024


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
