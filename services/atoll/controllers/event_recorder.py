"""Record Warning Events on objects, for users of `kubectl describe`.

Controllers call `warn` beside writing a condition. Invariant: repeated warnings with the same mark on an object are one
Event. Events are best effort: a rejected Event is ignored.
"""

from __future__ import annotations

import hashlib

import msgspec

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.types import EVENTS

#: Namespace of the Events of cluster-scoped objects.
DEFAULT_NAMESPACE = "default"
_MAX_NAME = 230


class Warning(msgspec.Struct, frozen=True):
    """Reason, message and reporting component of an Event. Warnings with equal `mark` are recorded once."""

    reason: str
    message: str
    component: str
    mark: str


async def warn(loopback: Loopback, kind: Kind, obj: Object, warned: Warning) -> None:
    """Create the Event unless it exists."""
    events = loopback.core.catalogs.base.of_type(EVENTS)
    if events is None:
        return
    metadata = obj["metadata"]
    mark = hashlib.sha256(f"{metadata['uid']}/{warned.mark}".encode()).hexdigest()[:16]
    name = f"{metadata['name'][:_MAX_NAME]}.{mark}"
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    target = Target(events, metadata["annotations"][wellknown.CLUSTER], namespace, name)
    if loopback.get(EVENTS, target.cluster, namespace, name) is not None:
        return
    try:
        await loopback.create(target, _event(kind, metadata, warned, target))
    except ApiError:
        # The Event exists already, or its namespace is terminating.
        return


def _event(kind: Kind, metadata: Object, warned: Warning, target: Target) -> Object:
    now, space = times.now(), metadata.get("namespace", "")
    involved = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        **({"namespace": space} if space else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": target.name, "namespace": target.namespace},
        "involvedObject": involved,
        "reason": warned.reason,
        "type": "Warning",
        "count": 1,
        "message": warned.message,
        "source": {"component": warned.component},
        "reportingComponent": warned.component,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
