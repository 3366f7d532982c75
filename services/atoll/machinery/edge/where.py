"""Where resolution: EdgePlacements, Locations and SyncTargets to sorted destinations.

The where resolver feeds every change of these into one `WhereIndex`, which returns the placements that it may concern,
and asks for their destinations. Invariant: the index is a function of the objects that there are now, whatever the
order in which they arrived and from which shard; only SyncTargets that take no new destinations keep those they have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from atoll.machinery.meta.objects import Object, labels_of, spec_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.times import parse_time

#: Logical cluster and name.
Key: TypeAlias = tuple[str, str]
T = TypeVar("T")


class Location(msgspec.Struct, frozen=True):
    """A Location: its labels, and which SyncTargets of its logical cluster are there."""

    cluster: str
    name: str
    labels: Mapping[str, str]
    selector: LabelSelector


class SyncTarget(msgspec.Struct, frozen=True):
    """An edge cluster. With `evict_after_s`, seconds since 1970, it has no destinations from that time on."""

    cluster: str
    name: str
    uid: str
    labels: Mapping[str, str]
    is_unschedulable: bool = False
    evict_after_s: float | None = None


class Destination(msgspec.Struct, frozen=True, order=True):
    """One mailbox, as SinglePlacementSlices name it: the SyncTarget, and the Location that it was found by."""

    cluster: str
    location_name: str
    sync_target_name: str
    sync_target_uid: str

    @property
    def sync_target(self) -> Key:
        """Logical cluster and uid of the SyncTarget: what makes destinations one."""
        return self.cluster, self.sync_target_uid


class Resolution(msgspec.Struct, frozen=True):
    """The destinations of a placement, sorted, and what its owner should know.

    `shared` names SyncTargets at several of the Locations, with all of these: the first by name counts. `refused` are
    selected Locations that the workspace may not use. `next_eviction_s` is when the result may change by itself.
    """

    destinations: tuple[Destination, ...]
    location_count: int
    shared: Mapping[Key, tuple[str, ...]] = {}
    refused: tuple[Key, ...] = ()
    next_eviction_s: float | None = None


def location_of(cluster: str, obj: Object) -> Location:
    """Decode a Location; with an invalid selector or none there is nothing at it."""
    try:
        selector = compile_label_selector(spec_of(obj).get("instanceSelector"))
    except SelectorError:
        selector = compile_label_selector(None)
    return Location(cluster, obj["metadata"]["name"], labels_of(obj), selector)


def sync_target_of(cluster: str, obj: Object) -> SyncTarget:
    """Decode a SyncTarget."""
    metadata, spec = obj["metadata"], spec_of(obj)
    evict_after = spec.get("evictAfter")
    return SyncTarget(
        cluster,
        metadata["name"],
        metadata["uid"],
        labels_of(obj),
        bool(spec.get("unschedulable")),
        parse_time(evict_after) if isinstance(evict_after, str) else None,
    )


class WhereIndex:
    """All placements, Locations and SyncTargets. Setting one to None forgets it; one under deletion is forgotten."""

    def __init__(self) -> None:
        self._placements: dict[Key, tuple[LabelSelector, ...]] = {}
        self._locations: dict[str, dict[str, Location]] = defaultdict(dict)
        self._targets: dict[str, dict[str, SyncTarget]] = defaultdict(dict)
        # Names of SyncTargets by logical cluster, label and value: most Locations select one by `id`.
        self._labelled: dict[tuple[str, str, str], set[str]] = defaultdict(set)

    def set_placement(self, key: Key, selectors: tuple[LabelSelector, ...] | None) -> None:
        """Set the location selectors of an EdgePlacement."""
        if selectors is None:
            self._placements.pop(key, None)
        else:
            self._placements[key] = selectors

    def set_location(self, key: Key, location: Location | None) -> set[Key]:
        """Set a Location, and return the placements that selected it or do now."""
        before = _set(self._locations, key, location)
        if before == location:
            return set()
        return {key for each in (before, location) if each is not None for key in self._selecting(each)}

    def set_sync_target(self, key: Key, target: SyncTarget | None) -> set[Key]:
        """Set a SyncTarget, and return the placements that it was a destination of or may be now."""
        before = _set(self._targets, key, target)
        if before == target:
            return set()
        self._index_labels(before, target)
        places = [each for each in (before, target) if each is not None]
        concerned = [
            location
            for location in self._locations.get(key[0], {}).values()
            if any(location.selector.matches(each.labels) for each in places)
        ]
        return {key for location in concerned for key in self._selecting(location)}

    def targets_at(self, location: Key) -> list[SyncTarget]:
        """Return the SyncTargets at a Location, sorted by name; none if there is no such Location."""
        cluster, name = location
        found = self._locations.get(cluster, {}).get(name)
        return [] if found is None else self._at(found)

    def locations_at(self, target: Key) -> list[Location]:
        """Return the Locations where a SyncTarget is, sorted by name."""
        cluster, name = target
        found = self._targets.get(cluster, {}).get(name)
        if found is None:
            return []
        places = sorted(self._locations.get(cluster, {}).items())
        return [place for _, place in places if place.selector.matches(found.labels)]

    def locations_of(self, placement: Key) -> list[Location]:
        """Return the Locations that a placement selects, sorted by logical cluster and name."""
        selectors = self._placements.get(placement, ())
        if not selectors:
            return []
        found = [each for each in self._all_locations() if any(test.matches(each.labels) for test in selectors)]
        return sorted(found, key=lambda each: (each.cluster, each.name))

    def placements_at(self, location: Key) -> set[Key]:
        """Return the placements that select a Location."""
        cluster, name = location
        found = self._locations.get(cluster, {}).get(name)
        return set() if found is None else set(self._selecting(found))

    def resolve(
        self, placement: Key, now_s: float, assigned: Collection[Destination], may_use: Callable[[Location], bool]
    ) -> Resolution:
        """Return where a placement goes. `assigned` are the destinations that it has: unschedulable ones stay."""
        selected = self.locations_of(placement)
        usable = [location for location in selected if may_use(location)]
        refused = {(each.cluster, each.name) for each in selected} - {(each.cluster, each.name) for each in usable}
        held = {each.sync_target for each in assigned}
        destinations: dict[Key, Destination] = {}
        shared: dict[Key, tuple[str, ...]] = {}
        evictions = []
        for location in usable:
            for target in self._at(location):
                key = (target.cluster, target.uid)
                if not _is_eligible(target, now_s, key in held):
                    continue
                if target.evict_after_s is not None:
                    evictions.append(target.evict_after_s)
                new = Destination(location.cluster, location.name, target.name, target.uid)
                first = destinations.setdefault(key, new)
                if first is not new:
                    shared[key] = (*shared.get(key, (first.location_name,)), location.name)
        in_order = tuple(sorted(destinations.values()))
        return Resolution(in_order, len(usable), shared, tuple(sorted(refused)), min(evictions, default=None))

    def _at(self, location: Location) -> list[SyncTarget]:
        targets = self._targets.get(location.cluster, {})
        exact = [(location.cluster, *label) for label in location.selector.exact().items()]
        names = min((self._labelled.get(label, set()) for label in exact), key=len, default=targets)
        return [targets[name] for name in sorted(names) if location.selector.matches(targets[name].labels)]

    def _index_labels(self, before: SyncTarget | None, target: SyncTarget | None) -> None:
        if before is not None:
            for label in before.labels.items():
                names = self._labelled[before.cluster, *label]
                names.discard(before.name)
                if not names:
                    del self._labelled[before.cluster, *label]
        if target is not None:
            for label in target.labels.items():
                self._labelled[target.cluster, *label].add(target.name)

    def _all_locations(self) -> Iterator[Location]:
        for locations in self._locations.values():
            yield from locations.values()

    def _selecting(self, location: Location) -> Iterator[Key]:
        for key, selectors in self._placements.items():
            if any(test.matches(location.labels) for test in selectors):
                yield key


def _is_eligible(target: SyncTarget, now_s: float, is_held: bool) -> bool:
    if target.evict_after_s is not None and target.evict_after_s <= now_s:
        return False
    return is_held or not target.is_unschedulable


def _set(rows: dict[str, dict[str, T]], key: Key, value: T | None) -> T | None:
    """Set or remove the row of a key; return what was there."""
    cluster, name = key
    before = rows.get(cluster, {}).get(name)
    if value is not None:
        rows[cluster][name] = value
    elif before is not None:
        del rows[cluster][name]
        if not rows[cluster]:
            del rows[cluster]
    return before
