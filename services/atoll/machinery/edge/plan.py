"""The downsync plan of a syncer: what to do at the edge, from what is wanted, what is there, and what was done.

A syncer calls `plan` with all of it after a start and for the objects concerned after a change, does the actions in
order, and calls it again. Invariants: nothing is deleted but what this syncer made and a whole, complete and newest
list does not have; an object that is as wanted costs no action; a failing object holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from atoll.machinery.edge.applied import ApplyRecord, digest, is_in_force
from atoll.machinery.edge.categories import goes_to_edge
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ADOPTED, DOWNSYNCED, OVERWRITE, SYNCED_BY, SYNCER, ObjectRef, mark
from atoll.machinery.edge.projection import portable
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.edge.what import is_another_kind
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, labels_of, spec_of
from atoll.machinery.meta.types import CRDS, NAMESPACES

_DEFINITIONS = (CRDS.group, CRDS.resource)
_NAMESPACES = (NAMESPACES.group, NAMESPACES.resource)
_KEEP = "false"

Objects: TypeAlias = Mapping[ObjectRef, Object]


class Apply(msgspec.Struct, frozen=True):
    """Apply a configuration as SYNCER, with force.

    `is_new`: there is no object. If the server answers that it updated one, somebody made it meanwhile, and the next
    plan must see it without our mark: apply `adopting(configuration)` at once. `adopts`: it was there before; an Event
    tells so.
    """

    ref: ObjectRef
    configuration: Object
    is_new: bool = False
    adopts: bool = False


class Annotate(msgspec.Struct, frozen=True):
    """Set annotations of the object with this uid, and nothing else."""

    ref: ObjectRef
    uid: str
    annotations: Mapping[str, str]


class Delete(msgspec.Struct, frozen=True):
    """Delete the object with this uid and resourceVersion."""

    ref: ObjectRef
    uid: str
    resource_version: str


Action: TypeAlias = Apply | Annotate | Delete


class Wanted(msgspec.Struct, frozen=True):
    """What the mailbox says: its natured objects, and what its SyncerConfigs list.

    `is_complete`: the objects are all of those in the mailbox at one revision, not the first of a list.
    """

    objects: Objects
    carried: SyncSet
    is_complete: bool

    def listed(self) -> dict[ObjectRef, Object]:
        """Return what is to be at the edge."""
        return {
            ref: obj
            for ref, obj in self.objects.items()
            if goes_to_edge(*ref.kind)
            and "deletionTimestamp" not in obj["metadata"]
            and not is_system_object(ref, obj)
            and self.carried.lists(ref)
        }


class SyncState(msgspec.Struct, frozen=True):
    """What a syncer remembers. All of it may be lost: then applies of some kinds are repeated once.

    `number` is the highest of a whole set under which something was deleted or could have been.
    """

    syncer: str
    number: int = 0
    records: Mapping[ObjectRef, ApplyRecord] = {}
    failures: Mapping[ObjectRef, Failure] = {}


def plan(wanted: Wanted, live: Objects, state: SyncState, now_s: float) -> list[Action]:
    """Return the actions, in order: definitions, Namespaces, all else, then deletions the other way round.

    `live` has the objects at the edge that are wanted or carry this syncer's label, and the Namespaces and definitions
    of both, with whatever else lies in Namespaces and definitions that are to go: it keeps them. Several calls may be
    needed: objects wait for their definition and for a Namespace that is going, and these for what is in them.
    """
    listed = wanted.listed()
    actions: list[Action] = [*_needed_namespaces(listed, live)]
    held = _held_kinds(listed, live)
    owners = {
        obj["metadata"]["uid"]: live[ref]["metadata"]["uid"]
        for ref, obj in listed.items()
        if ref in live and "uid" in obj["metadata"]
    }
    replaced = _replaced(listed, live, state)
    for ref in sorted(listed, key=_order):
        if ref.kind not in held and ref not in replaced and not _is_going(_namespace_of(ref, live)):
            actions += _downsync(ref, portable(listed[ref], owners), live.get(ref), state, now_s)
    actions.sort(key=lambda action: _order(action.ref))
    actions += _deletions(wanted, listed, live, state, now_s)
    if may_delete(wanted, state):
        actions += (_deletion(ref, live[ref]) for ref in sorted(replaced) if _is_empty(ref, live, state, now_s))
    return actions


def adopting(configuration: Object) -> Object:
    """Return the configuration of an object that somebody else made."""
    annotations = {ADOPTED if key == DOWNSYNCED else key: value for key, value in annotations_of(configuration).items()}
    return {**configuration, "metadata": {**configuration["metadata"], "annotations": annotations}}


def is_made_by(syncer: str, ref: ObjectRef, obj: Object) -> bool:
    """Whether this syncer made an object at the edge. A copy of its annotations on another object does not count."""
    return labels_of(obj).get(SYNCED_BY) == syncer and annotations_of(obj).get(DOWNSYNCED) == mark(obj, ref)


def _order(ref: ObjectRef) -> tuple[int, ObjectRef]:
    return (_DEFINITIONS, _NAMESPACES).index(ref.kind) if ref.kind in (_DEFINITIONS, _NAMESPACES) else 2, ref


def _is_going(obj: Object | None) -> bool:
    return obj is not None and "deletionTimestamp" in obj["metadata"]


def _namespace_of(ref: ObjectRef, live: Objects) -> Object | None:
    return live.get(ObjectRef(*_NAMESPACES, "", ref.namespace)) if ref.namespace else None


def _needed_namespaces(listed: Objects, live: Objects) -> Iterator[Apply]:
    """Yield the Namespaces that objects need and nobody placed. They carry no mark, as they are kept."""
    for name in sorted({ref.namespace for ref in listed if ref.namespace}):
        ref = ObjectRef(*_NAMESPACES, "", name)
        if ref not in listed and ref not in live:
            yield Apply(ref, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, is_new=True)


def _held_kinds(listed: Objects, live: Objects) -> set[tuple[str, str]]:
    """Return the kinds whose definition is wanted and not yet established at the edge."""
    found = set()
    for ref, obj in listed.items():
        if ref.kind == _DEFINITIONS:
            there = live.get(ref, {})
            if is_another_kind(obj, there) or not is_true(conditions_of(there), "Established"):
                found.add(_defined(obj))
    return found


def _replaced(listed: Objects, live: Objects, state: SyncState) -> set[ObjectRef]:
    """Return definitions of ours that have to go before they can be what is wanted, if all of their kind is ours.

    What somebody else has of a kind keeps its definition: then what is wanted is refused, which is reported.
    """
    found = set()
    for ref, obj in listed.items():
        there = live.get(ref)
        if ref.kind != _DEFINITIONS or there is None or not is_another_kind(obj, there):
            continue
        if _KEEP in (annotations_of(each).get(OVERWRITE) for each in (obj, there)):
            continue
        of_kind = [each for each in live if each.kind == _defined(there)]
        if all(is_made_by(state.syncer, each, live[each]) for each in (ref, *of_kind)):
            found.add(ref)
    return found


def _defined(definition: Object) -> tuple[str, str]:
    spec = spec_of(definition)
    return spec["group"], spec["names"]["plural"]


def _downsync(
    ref: ObjectRef, configuration: Object, live: Object | None, state: SyncState, now_s: float
) -> Iterator[Apply | Annotate]:
    """Yield the action for one wanted object, if it needs one and is due."""
    keeps = annotations_of(configuration).get(OVERWRITE) == _KEEP
    if live is not None and keeps:
        if annotations_of(live).get(OVERWRITE) != _KEEP and not _is_going(live):
            yield Annotate(ref, live["metadata"]["uid"], {OVERWRITE: _KEEP})
        return
    if _is_going(live):
        return
    marked = _marked(ref, configuration, live, state.syncer)
    failure = state.failures.get(ref)
    if failure is not None and not failure.is_due(ref, digest(marked), now_s):
        return
    if live is None:
        yield Apply(ref, marked, is_new=True)
    elif not is_in_force(marked, live, SYNCER, state.records.get(ref)):
        adopts = ADOPTED in annotations_of(marked) and labels_of(live).get(SYNCED_BY) != state.syncer
        yield Apply(ref, marked, adopts=adopts)


def _marked(ref: ObjectRef, configuration: Object, live: Object | None, syncer: str) -> Object:
    """Return a configuration with the marks of its syncer, which say whether it may be deleted."""
    metadata = configuration["metadata"]
    annotations = {**annotations_of(configuration)}
    is_made = live is None or is_made_by(syncer, ref, live)
    annotations[DOWNSYNCED if is_made else ADOPTED] = mark(configuration, ref)
    if live is not None and OVERWRITE in annotations_of(live):
        # It was set apart from our fields, so that leaving it out would not remove it.
        annotations.setdefault(OVERWRITE, "true")
    labels = {**labels_of(configuration), SYNCED_BY: syncer}
    return {**configuration, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def may_delete(wanted: Wanted, state: SyncState) -> bool:
    """Whether the lists are such that what they do not have is to go: not those of a center that lost its newest."""
    return wanted.is_complete and wanted.carried.number > 0 and wanted.carried.number >= state.number


def acknowledged(wanted: Wanted, state: SyncState) -> SyncState:
    """Return the state after a plan was made: an older list deletes nothing any more."""
    number = max(state.number, wanted.carried.number if wanted.is_complete else 0)
    return msgspec.structs.replace(state, number=number)


def _deletions(wanted: Wanted, listed: Objects, live: Objects, state: SyncState, now_s: float) -> Iterator[Delete]:
    if not may_delete(wanted, state):
        return
    content = [
        *listed,
        *(ref for ref, obj in live.items() if goes_to_edge(*ref.kind) and not is_system_object(ref, obj)),
    ]
    namespaces, kinds = {ref.namespace for ref in content}, {ref.kind for ref in content}
    for ref in sorted(live, key=_order, reverse=True):
        obj = live[ref]
        if ref in listed or ref in wanted.carried.protected or not is_made_by(state.syncer, ref, obj):
            continue
        if _is_going(obj) or annotations_of(obj).get(OVERWRITE) == _KEEP:
            continue
        if (ref.kind == _NAMESPACES and ref.name in namespaces) or (
            ref.kind == _DEFINITIONS and _defined(obj) in kinds
        ):
            continue
        if _is_due(ref, state, now_s):
            yield _deletion(ref, obj)


def _deletion(ref: ObjectRef, obj: Object) -> Delete:
    return Delete(ref, obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])


def _is_due(ref: ObjectRef, state: SyncState, now_s: float) -> bool:
    failure = state.failures.get(ref)
    return failure is None or failure.is_due(ref, "", now_s)


def _is_empty(ref: ObjectRef, live: Objects, state: SyncState, now_s: float) -> bool:
    """Whether nothing is left of the kind of a definition, which is not going yet."""
    kind = _defined(live[ref])
    is_left = any(each.kind == kind for each in live)
    return not is_left and not _is_going(live[ref]) and _is_due(ref, state, now_s)
