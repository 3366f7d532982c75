"""The where resolver: slices and status of EdgePlacements, and the numbers of instances of Locations.

It feeds what the view shows into the index of `machinery.edge.where`, and writes what that says. Keys are placements
and Locations. Invariants: what is there already is not written again; a destination goes only after its inventory was
read.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from atoll.edge.events import tell, warning_event
from atoll.edge.export_view import UNREAD, ExportView
from atoll.edge.kinds import BINDINGS, EVENTS, LOCATIONS, PLACEMENTS, SLICES, SYNC_TARGETS
from atoll.edge.location_access import LocationAccess
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import head, key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.placements import InvalidPlacement, placement_of
from atoll.machinery.edge.slices import SliceWrites, destinations_of, placement_name_of, plan_slices
from atoll.machinery.edge.where import Destination, Key, Resolution, WhereIndex, location_of, sync_target_of
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import FALSE, TRUE, WARNING, Condition, find, set_condition
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, status_of
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.process.backoff import Backoff

KINDS = (PLACEMENTS, SLICES, LOCATIONS, SYNC_TARGETS)
#: Prefix of the annotations that say what is wrong with a placement from before it was refused.
ERROR_ANNOTATION = "validation-error.kubestellar.io/"
RESOLVED = "Resolved"
#: Most names in a condition's text.
MAX_NAMED, MAX_WARNINGS = 10, 4096
#: After others wrote the status at the same time: until theirs was seen.
CONTESTED = Backoff(0.1, 10.0)


def _kept_location(obj: Object) -> Object:
    found = head(obj, "deletionTimestamp")
    return {**found, DECODED: location_of(key_of(found)[0], obj), "status": status_of(obj)}


def _kept_target(obj: Object) -> Object:
    found = head(obj, "deletionTimestamp")
    return {**found, DECODED: sync_target_of(key_of(found)[0], obj)}


#: Field of what is kept: what the index knows of an object.
DECODED = "decoded"
#: What counts here of what there may be ten thousands of.
_KEPT = {LOCATIONS: _kept_location, SYNC_TARGETS: _kept_target}


class WhereKey(NamedTuple):
    """A placement or a Location, by its resource."""

    resource: Resource
    cluster: str
    name: str


class WhereResolver:
    """The controller."""

    name = "where-resolver"

    def __init__(self, client: Client, export: str) -> None:
        self.queue: WorkQueue[WhereKey] = WorkQueue(in_turn=True)
        self.view = ExportView(client, export, KINDS, self._changed, self._follow_access, _KEPT)
        self.access = LocationAccess(self.view, self._access_changed)
        self._index = WhereIndex()
        self._objects: dict[WhereKey, Object] = {}
        #: Placement -> its slices by name.
        self._slices: dict[Key, dict[str, Object]] = defaultdict(dict)
        self._warned: LruCache[str, bool] = LruCache(MAX_WARNINGS)

    async def synced(self) -> None:
        """Wait until everything that a decision needs was seen."""
        await self.view.complete.wait()

    async def _follow_access(self, client: Client) -> None:
        await self.access.follow(client)

    # --- changes

    def _changed(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        key = cluster, name
        if new is not None and "deletionTimestamp" in new["metadata"]:
            new = None
        if kind == SLICES:
            self._slice_changed(cluster, name, old, new)
        elif kind == SYNC_TARGETS:
            self._target_changed(key, new)
        elif kind == LOCATIONS:
            self._store(WhereKey(kind, cluster, name), new)
            self._add(self._index.set_location(key, None if new is None else new[DECODED]))
        elif kind == PLACEMENTS:
            self._placement_changed(WhereKey(kind, cluster, name), new)
        elif kind == BINDINGS:
            # The workspace may be known, or accept the claims, from now on.
            self.access.changed(cluster)

    def _store(self, key: WhereKey, new: Object | None) -> None:
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        self.queue.add(key)

    def _placement_changed(self, key: WhereKey, new: Object | None) -> None:
        before = self._objects.get(key)
        if before is not None and new is not None and _own_part(before) == _own_part(new):
            # What others write in its status.
            self._objects[key] = new
            return
        self._store(key, new)
        self._index.set_placement((key.cluster, key.name), None if new is None else _selectors(new))

    def _target_changed(self, key: Key, new: Object | None) -> None:
        target = None if new is None else new[DECODED]
        if target == self._index.sync_target(key):
            # What heartbeats write in its status.
            return
        before = self._index.locations_at(key)
        self._add(self._index.set_sync_target(key, target))
        for each in (*before, *self._index.locations_at(key)):
            self.queue.add(WhereKey(LOCATIONS, each.cluster, each.name))

    def _slice_changed(self, cluster: str, name: str, old: Object | None, new: Object | None) -> None:
        for each in (old, new):
            if each is not None:
                placement = cluster, placement_name_of(each)
                self._slices[placement].pop(name, None)
                self._add({placement})
        if new is not None:
            self._slices[cluster, placement_name_of(new)][name] = new

    def _access_changed(self, cluster: str) -> None:
        """Resolve what selects Locations of a workspace ("*": of any) anew."""
        self._add(self._index.placements() if cluster == "*" else self._index.placements_in(cluster))

    def _add(self, placements: set[Key]) -> None:
        for cluster, name in placements:
            self.queue.add(WhereKey(PLACEMENTS, cluster, name))

    # --- reconcile

    def keys(self) -> Collection[WhereKey]:
        """All placements and Locations."""
        return self._objects.keys()

    async def reconcile(self, key: WhereKey) -> Requeue:
        """Write slices and status of a placement, or the status of a Location."""
        obj, client = self._objects.get(key), self.view.client(key.cluster)
        if obj is None or client is None:
            self._forget(key)
            return None
        if key.resource == LOCATIONS:
            return await self._write_location(client, key, obj)
        return await self._resolve(client, key, obj)

    def _forget(self, key: WhereKey) -> None:
        if key.resource == PLACEMENTS and not self._slices.get((key.cluster, key.name)):
            self._slices.pop((key.cluster, key.name), None)

    async def _resolve(self, client: Client, key: WhereKey, obj: Object) -> Requeue:
        place, errors = (key.cluster, key.name), _errors(obj)
        allowed = {
            (location.cluster, location.name)
            for location in self._index.locations_of(place)
            if await self.access.allows(location, key.cluster)
        }
        slices, now_s = list(self._slices[place].values()), time.time()
        found = self._index.resolve(
            place, now_s, destinations_of(slices), lambda location: (location.cluster, location.name) in allowed
        )
        unread = [each for each in destinations_of(slices) if not self.view.has_read(each.cluster)]
        found = msgspec.structs.replace(found, destinations=with_unread(found.destinations, unread))
        await _write_slices(client, plan_slices(obj, found.destinations, slices))
        await _write_errors(client, obj, errors)
        status = placement_status(obj, found, errors)
        if status != status_of(obj):
            if not await _write_status(client, obj, status):
                return CONTESTED
            await tell(client, obj, status, (RESOLVED,), self.name)
        await self._warn(client, obj, found)
        if unread:
            return UNREAD
        return None if found.next_eviction_s is None else max(found.next_eviction_s - now_s, 0.0)

    async def _write_location(self, client: Client, key: WhereKey, obj: Object) -> Requeue:
        targets, now_s = self._index.targets_at((key.cluster, key.name)), time.time()
        schedulable = [each for each in targets if not each.is_unschedulable]
        evictions = [each.evict_after_s for each in schedulable if each.evict_after_s is not None]
        next_s = min((each for each in evictions if each > now_s), default=None)
        usable = len(schedulable) - sum(each <= now_s for each in evictions)
        status = {**status_of(obj), "instances": len(targets), "availableInstances": usable}
        if status != status_of(obj):
            await client.patch(LOCATIONS, key.name, {"status": status}, subresource="status")
        return None if next_s is None else next_s - now_s

    async def _warn(self, client: Client, obj: Object, found: Resolution) -> None:
        for (cluster, uid), locations in found.shared.items():
            mark = hashlib.sha256(f"{obj['metadata']['uid']}/{cluster}/{uid}/{locations}".encode()).hexdigest()[:16]
            if self._warned.get(mark):
                continue
            text = f"SyncTarget {uid} is at Locations {', '.join(locations)}: the first counts"
            event = warning_event(obj, self.name, "SharedSyncTarget", text, mark)
            with suppress(AlreadyExists):
                await client.create(EVENTS, event)
            self._warned.put(mark, True)


def with_unread(found: Sequence[Destination], unread: Sequence[Destination]) -> tuple[Destination, ...]:
    """Return destinations with those that a placement has in inventories that were not read: they stay."""
    present = {each.sync_target for each in found}
    return tuple(sorted([*found, *(each for each in unread if each.sync_target not in present)]))


def placement_status(obj: Object, found: Resolution, errors: list[str]) -> Object:
    """Return the status of a placement after its resolution; other fields stay."""
    status, metadata = status_of(obj), obj["metadata"]
    condition = Condition(RESOLVED, TRUE)
    if errors:
        condition = Condition(RESOLVED, FALSE, "Invalid", "; ".join(errors[:MAX_NAMED]), WARNING)
    elif not found.location_count:
        # The same where there are none and where it may not place at them.
        condition = Condition(RESOLVED, TRUE, "NoLocations", "it selects no Location where this workspace may place")
    return {
        **status,
        "specGeneration": metadata["generation"],
        "matchingLocationCount": found.location_count,
        "conditions": set_condition(conditions_of(obj), condition, times.now()),
        "destinations": {**(status.get("destinations") or {}), "total": len(found.destinations)},
    }


def _own_part(obj: Object) -> tuple[object, ...]:
    """Return what is resolved of a placement, and what is written of it here."""
    metadata, status = obj["metadata"], status_of(obj)
    own = (status.get("specGeneration"), status.get("matchingLocationCount"), find(conditions_of(obj), RESOLVED))
    total = (status.get("destinations") or {}).get("total")
    return metadata["uid"], metadata["generation"], annotations_of(obj), *own, total


def _selectors(obj: Object) -> tuple[LabelSelector, ...]:
    try:
        return placement_of(obj).selectors
    except InvalidPlacement:
        return ()


def _errors(obj: Object) -> list[str]:
    try:
        placement_of(obj)
    except InvalidPlacement as invalid:
        return [str(error) for error in invalid.errors]
    return []


async def _write_slices(client: Client, plan: SliceWrites) -> None:
    for each in plan.create:
        await client.create(SLICES, each)
    for each in plan.update:
        await client.update(SLICES, each)
    for each in plan.delete:
        metadata = each["metadata"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
        try:
            await client.request("DELETE", SLICES.path(name=metadata["name"]), body=body)
        except NotFound:
            continue


async def _write_errors(client: Client, obj: Object, errors: list[str]) -> None:
    """Keep the annotations that say what is wrong."""
    wanted: dict[str, str | None] = {f"{ERROR_ANNOTATION}{number}": text for number, text in enumerate(errors)}
    present = {key: text for key, text in annotations_of(obj).items() if key.startswith(ERROR_ANNOTATION)}
    if wanted != present:
        gone = dict.fromkeys(present.keys() - wanted.keys())
        patch = {"metadata": {"annotations": {**gone, **wanted}}}
        await client.patch(PLACEMENTS, obj["metadata"]["name"], patch)


async def _write_status(client: Client, obj: Object, status: Object) -> bool:
    """Write the status, unless others wrote meanwhile; return whether it was written."""
    metadata = obj["metadata"]
    patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
    try:
        await client.patch(PLACEMENTS, metadata["name"], patch, subresource="status")
    except Conflict:
        return False
    return True
