"""What comes back from the edge: status into mailboxes, and the one status that a workspace asked for.

A syncer calls `status_return` for each object that changed at the edge; the placement translator calls
`singleton_configurations` for each source of which a placement wants the reported state. Invariant: what is there never
becomes older: of one edge cluster, a lower revision writes nothing, unless the cluster itself became older.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.edge.categories import returns_status
from atoll.machinery.edge.names import EDGE_REVISION, EXECUTING_COUNT, ObjectRef
from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, annotations_of


class PutStatus(msgspec.Struct, frozen=True):
    """Write the status of the mailbox object with this resourceVersion, and where it is from (EDGE_REVISION)."""

    ref: ObjectRef
    resource_version: str
    status: Object
    edge_revision: str


def edge_revision(edge_uid: str, live: Object) -> str:
    """Return the value of EDGE_REVISION for an object of an edge cluster; `edge_uid` is that of its kube-system."""
    return f"{edge_uid}/{live['metadata']['resourceVersion']}"


def is_older(revision: str, held: str) -> bool:
    """Whether a state of the edge is older than the one that is held; of another edge cluster it never is."""
    edge, _, number = revision.partition("/")
    held_edge, _, held_number = held.partition("/")
    if edge != held_edge or not (number.isdecimal() and held_number.isdecimal()):
        return False
    return int(number) < int(held_number)


def status_return(ref: ObjectRef, live: Object, held: Object | None, edge_uid: str) -> PutStatus | None:
    """Return the write that brings the status of an object to the mailbox, None if there is none to make.

    `held` is the mailbox object, None if it is gone; definitions keep their own status. What the mailbox has of itself,
    as the phase of a new claim, is no report: the first one is written also if it says the same. Whether the mailbox
    has a newer one, `is_behind` says.
    """
    if held is None or not returns_status(*ref.kind) or "status" not in live:
        return None
    if same(live["status"], held.get("status")) and EDGE_REVISION in annotations_of(held):
        return None
    return PutStatus(ref, held["metadata"]["resourceVersion"], live["status"], edge_revision(edge_uid, live))


def is_behind(write: PutStatus, held: Object) -> bool:
    """Whether a write would make the status of a mailbox object older, as far as revisions tell.

    It may be that the edge cluster was restored from an older state of itself: then its own answer has that revision.
    """
    return is_older(write.edge_revision, annotations_of(held).get(EDGE_REVISION, ""))


class SingletonConfigurations(msgspec.Struct, frozen=True):
    """What the translator applies to a source object and to its status; empty ones take back what it applied before."""

    metadata: Object
    status: Object


def singleton_configurations(source: Object, count: int | None, copy: Object | None) -> SingletonConfigurations:
    """Return the reported state of a source: how often it runs, and with one copy its status.

    `count` is the number of its destinations, None while nobody asks; `copy` is that of the only one, if it is there.
    """
    identity = {key: source["metadata"][key] for key in ("name", "namespace") if key in source["metadata"]}
    base: Object = {"apiVersion": source["apiVersion"], "kind": source["kind"], "metadata": identity}
    counted = base
    if count is not None:
        counted = {**base, "metadata": {**identity, "annotations": {EXECUTING_COUNT: str(count)}}}
    if count != 1 or copy is None or "status" not in copy:
        return SingletonConfigurations(counted, base)
    return SingletonConfigurations(counted, {**base, "status": copy["status"]})
