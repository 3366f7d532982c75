"""The upsync plan of a syncer: objects of the edge that sets ask for, as copies in the mailbox.

A syncer calls `plan_upsync` as it calls `plan`. Invariants: nothing in the mailbox is written or deleted but what came
up before; copies are within the bounds, and which ones does not depend on the order of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from atoll.machinery.edge.categories import comes_up
from atoll.machinery.edge.names import ADOPTED, DOWNSYNCED, EDGE_REVISION, SYNCED_BY, UPSYNCED, ObjectRef, mark
from atoll.machinery.edge.projection import LAST_APPLIED
from atoll.machinery.edge.returns import edge_revision, is_older
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, labels_of

Objects: TypeAlias = Mapping[ObjectRef, Object]


class Bounds(msgspec.Struct, frozen=True):
    """What may come up into a mailbox."""

    objects: int = 10_000
    size_bytes: int = 64 * 1024 * 1024


BOUNDS = Bounds()


class PutCopy(msgspec.Struct, frozen=True):
    """Write a copy with its status. An empty resourceVersion creates it; otherwise it replaces that one."""

    ref: ObjectRef
    obj: Object
    resource_version: str = ""


class DeleteCopy(msgspec.Struct, frozen=True):
    """Delete the copy with this uid and resourceVersion."""

    ref: ObjectRef
    uid: str
    resource_version: str


class UpsyncPlan(msgspec.Struct, frozen=True):
    """Writes in order: deletions, which make room, before the rest.

    `taken` are objects whose name something in the mailbox has that did not come up; `left_out` are beyond the bounds;
    `behind` are older than their copies, as far as revisions tell.
    """

    writes: tuple[PutCopy | DeleteCopy, ...]
    taken: tuple[ObjectRef, ...] = ()
    left_out: tuple[ObjectRef, ...] = ()
    behind: tuple[ObjectRef, ...] = ()


def upsync_copy(ref: ObjectRef, live: Object, edge_uid: str) -> Object:
    """Return the copy of an object of the edge: all of it but what only its own cluster can use."""
    metadata: Object = {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    if labels := {key: value for key, value in labels_of(live).items() if key != SYNCED_BY}:
        metadata["labels"] = labels
    dropped = (DOWNSYNCED, ADOPTED, LAST_APPLIED)
    annotations = {key: value for key, value in annotations_of(live).items() if key not in dropped}
    metadata["annotations"] = annotations | {UPSYNCED: mark(live, ref), EDGE_REVISION: edge_revision(edge_uid, live)}
    return {**live, "metadata": metadata}


def is_upsynced(ref: ObjectRef, held: Object) -> bool:
    """Whether a mailbox object came up from the edge."""
    return annotations_of(held).get(UPSYNCED) == mark(held, ref)


def plan_upsync(
    carried: SyncSet, live: Objects, held: Objects, edge_uid: str, bounds: Bounds = BOUNDS, *, is_current: bool = False
) -> UpsyncPlan:
    """Return the writes to the mailbox. `live` is all of the kinds that sets ask for, `held` all that came up.

    Of the names in `live`, `held` also has the objects that did not come up. With `is_current` the cluster just
    answered `live`: what is behind then is so because it was restored from an older state.
    """
    wanted = {
        ref: obj
        for ref, obj in live.items()
        if comes_up(*ref.kind) and carried.comes_up(ref) and not is_system_object(ref, obj)
    }
    taken = tuple(sorted(ref for ref in wanted if ref in held and not is_upsynced(ref, held[ref])))
    made = {ref: upsync_copy(ref, obj, edge_uid) for ref, obj in wanted.items() if ref not in set(taken)}
    copies, left_out = _bounded(made, held, bounds)
    deletions = [
        DeleteCopy(ref, obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
        for ref, obj in sorted(held.items())
        if ref not in copies
        and is_upsynced(ref, obj)
        and not _ends(obj["metadata"])
        # While parts of the lists change, a set that is in none of them may still be wanted.
        and (carried.number or carried.comes_up(ref))
    ]
    behind = () if is_current else tuple(ref for ref in sorted(copies) if _is_behind(copies[ref], held.get(ref)))
    puts = _puts({ref: copy for ref, copy in copies.items() if ref not in behind}, held)
    return UpsyncPlan((*deletions, *puts), taken, left_out, behind)


def _ends(metadata: Object) -> bool:
    """Whether an object goes by itself: not a Pod in its grace period, which no node ends in a mailbox."""
    return "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")


def _bounded(made: Objects, held: Objects, bounds: Bounds) -> tuple[dict[ObjectRef, Object], tuple[ObjectRef, ...]]:
    """Return the copies within the bounds, those that are up already first, and what is left out."""
    copies: dict[ObjectRef, Object] = {}
    left_out = []
    size = 0
    for ref in sorted(made, key=lambda each: (each not in held, each)):
        bytes_up = size + len(encode_json(made[ref]))
        if len(copies) >= bounds.objects or bytes_up > bounds.size_bytes:
            left_out.append(ref)
        else:
            copies[ref], size = made[ref], bytes_up
    return copies, tuple(left_out)


def _puts(copies: Objects, held: Objects) -> Iterator[PutCopy]:
    for ref, copy in sorted(copies.items()):
        there = held.get(ref)
        if there is None:
            yield PutCopy(ref, copy)
        elif "deletionTimestamp" not in there["metadata"] and _differs(copy, there):
            yield PutCopy(ref, copy, there["metadata"]["resourceVersion"])


def _differs(copy: Object, held: Object) -> bool:
    """Whether a copy is not equal; a revision without another change is no change."""
    return not same(_content(copy), _content(held))


def _is_behind(copy: Object, held: Object | None) -> bool:
    """Whether a copy that is not equal is older, as far as revisions tell."""
    if held is None or not is_older(annotations_of(copy)[EDGE_REVISION], annotations_of(held).get(EDGE_REVISION, "")):
        return False
    return _differs(copy, held)


def _content(obj: Object) -> Object:
    annotations = {key: value for key, value in annotations_of(obj).items() if key != EDGE_REVISION}
    return {**obj, "metadata": {"labels": labels_of(obj), "annotations": annotations}}
