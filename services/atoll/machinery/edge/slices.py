"""SinglePlacementSlices: the destinations of an EdgePlacement in objects of at most 1,000.

The where resolver writes what `plan_slices` returns, in this order; the placement translator reads `destinations_of`.
Invariant: a destination stays in the slice where it is, so that between two writes of a plan no reader misses one that
is there before and after. Within a slice they are sorted; equal content gives no write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from atoll.machinery.edge.names import API_VERSION, SOURCE_PLACEMENT
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.objects import Object, labels_of, owner_references_of

MAX_DESTINATIONS = 1_000
#: A further slice has a number and 10 digits of a hash behind the name of its placement.
_NAME_SIZE, _LABEL_SIZE, _HASH_SIZE = 220, 63, 10


class SliceWrites(msgspec.Struct, frozen=True):
    """Slices to create, to replace (with the uid and resourceVersion that were read) and to delete, in this order."""

    create: tuple[Object, ...] = ()
    update: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()


def label_of(placement: str) -> str:
    """Return the value of the label of a placement's slices; a name that is no label value is cut, with a hash."""
    if len(placement) <= _LABEL_SIZE:
        return placement
    return f"{placement[: _LABEL_SIZE - _HASH_SIZE - 1].rstrip('.-')}-{_hash(placement)}"


def slice_name(placement: str, number: int) -> str:
    """Return the name of a slice; the first, number 1, has the name of its placement."""
    return placement if number == 1 else f"{placement[:_NAME_SIZE]}-{number}-{_hash(placement)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_SIZE]


def placement_name_of(slice: Object) -> str:
    """Return the name of the placement of a slice."""
    owners = [each["name"] for each in owner_references_of(slice) if each["kind"] == "EdgePlacement"]
    return str(owners[0] if owners else slice["metadata"]["name"])


def destinations_of(slices: Iterable[Object]) -> list[Destination]:
    """Return the destinations that slices name, sorted; of one SyncTarget the first."""
    found = {each.sync_target: each for each in sorted(_all(slices), reverse=True)}
    return sorted(found.values())


def _all(slices: Iterable[Object]) -> Iterable[Destination]:
    for each in slices:
        for row in each.get("destinations") or ():
            yield Destination(row["cluster"], row["locationName"], row["syncTargetName"], row["syncTargetUID"])


def plan_slices(placement: Object, destinations: Sequence[Destination], existing: Iterable[Object]) -> SliceWrites:
    """Return the writes after which the slices of a placement hold these destinations, each once.

    `existing` are the slices with the placement's label or name. The first slice is there even without destinations.
    """
    name = placement["metadata"]["name"]
    slices = {each["metadata"]["name"]: each for each in existing}
    content = _assigned(name, destinations, slices)
    create, update = [], []
    for slice, held in content.items():
        new = _slice(placement, slice, held, slices.get(slice))
        if slice not in slices:
            create.append(new)
        elif _differs(new, slices[slice]):
            update.append(new)
    delete = tuple(each for slice, each in sorted(slices.items()) if slice not in content)
    return SliceWrites(tuple(create), tuple(update), delete)


def _assigned(
    placement: str, destinations: Sequence[Destination], slices: dict[str, Object]
) -> dict[str, list[Destination]]:
    """Return the destinations of each slice: where they are, else in the first one with room."""
    left = {each.sync_target: each for each in destinations}
    content: dict[str, list[Destination]] = {placement: []}
    for name in sorted(slices, key=lambda each: (each != placement, each)):
        kept = content.setdefault(name, [])
        for each in sorted(_all([slices[name]])):
            if len(kept) < MAX_DESTINATIONS and (new := left.pop(each.sync_target, None)) is not None:
                kept.append(new)
    number = 1
    for each in left.values():
        while len(content.setdefault(slice_name(placement, number), [])) >= MAX_DESTINATIONS:
            number += 1
        content[slice_name(placement, number)].append(each)
    return {name: sorted(held) for name, held in content.items() if held or name == placement}


def _slice(placement: Object, name: str, destinations: list[Destination], live: Object | None) -> Object:
    owner, metadata = placement["metadata"], dict((live or {"metadata": {}})["metadata"])
    metadata |= {"name": name, "labels": {**(metadata.get("labels") or {}), SOURCE_PLACEMENT: label_of(owner["name"])}}
    metadata["ownerReferences"] = [
        {
            "apiVersion": API_VERSION,
            "kind": "EdgePlacement",
            "name": owner["name"],
            "uid": owner["uid"],
            "controller": True,
        }
    ]
    rows = [
        {
            "cluster": each.cluster,
            "locationName": each.location_name,
            "syncTargetName": each.sync_target_name,
            "syncTargetUID": each.sync_target_uid,
        }
        for each in destinations
    ]
    return {"apiVersion": API_VERSION, "kind": "SinglePlacementSlice", "metadata": metadata, "destinations": rows}


def _differs(new: Object, live: Object) -> bool:
    if new["destinations"] != live.get("destinations") or labels_of(new) != labels_of(live):
        return True
    return owner_references_of(new) != owner_references_of(live)
