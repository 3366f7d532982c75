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

from atoll.machinery.edge.label_index import LabelIndex, SelectorIndex
from atoll.machinery.meta.objects import Object, labels_of, spec_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.times import parse_time

#: Logical cluster and name.
Key: TypeAlias = tuple[str, str]
K = TypeVar("K")
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

    `location_count` are the selected Locations that it may use: of others it learns nothing. `shared` names SyncTargets
    at several of them, with all of these: the first by name counts. `next_eviction_s` is when the result may change by
    itself.
    """

    destinations: tuple[Destination, ...]
    location_count: int
    shared: Mapping[Key, tuple[str, ...]] = {}
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


class _Inventory:
    """Locations and SyncTargets of one logical cluster by name, and which of them select which."""

    def __init__(self) -> None:
        self.locations: dict[str, Location] = {}
        self.targets: dict[str, SyncTarget] = {}
        self._labelled: LabelIndex[str] = LabelIndex()
        self._selecting: SelectorIndex[str] = SelectorIndex()

    def set_location(self, name: str, location: Location | None) -> Location | None:
        """Return what it was before."""
        before = _set(self.locations, name, location)
        self._selecting.move(name, _selector(before), _selector(location))
        return before

    def set_target(self, name: str, target: SyncTarget | None) -> SyncTarget | None:
        """Return what it was before."""
        before = _set(self.targets, name, target)
        self._labelled.move(name, _labels(before), _labels(target))
        return before

    def at(self, location: Location) -> list[SyncTarget]:
        """Return the SyncTargets at a Location, sorted by name."""
        names = self._labelled.matching(location.selector, self.targets)
        return [self.targets[name] for name in sorted(names) if location.selector.matches(self.targets[name].labels)]

    def places_of(self, target: SyncTarget) -> list[Location]:
        """Return the Locations where a SyncTarget is, sorted by name."""
        found = [self.locations[name] for name in sorted(self._selecting.matching(target.labels))]
        return [each for each in found if each.selector.matches(target.labels)]


class WhereIndex:
    """All placements, Locations and SyncTargets. Setting one to None forgets it; one under deletion is forgotten."""

    def __init__(self) -> None:
        self._placements: dict[Key, tuple[LabelSelector, ...]] = {}
        self._inventories: dict[str, _Inventory] = defaultdict(_Inventory)
        self._locations: dict[Key, Location] = {}
        self._labelled: LabelIndex[Key] = LabelIndex()
        self._selecting: SelectorIndex[Key] = SelectorIndex()

    def set_placement(self, key: Key, selectors: tuple[LabelSelector, ...] | None) -> None:
        """Set the location selectors of an EdgePlacement."""
        before = _set(self._placements, key, selectors)
        self._selecting.move(key, before or (), selectors or ())

    def set_location(self, key: Key, location: Location | None) -> set[Key]:
        """Set a Location, and return the placements that selected it or do now."""
        before = self._locations.get(key)
        if before == location:
            # One of both is kept.
            return set()
        _set(self._locations, key, location)
        self._labelled.move(key, _labels(before), _labels(location))
        self._inventories[key[0]].set_location(key[1], location)
        self._forget_empty(key[0])
        return {key for each in (before, location) if each is not None for key in self._placements_selecting(each)}

    def set_sync_target(self, key: Key, target: SyncTarget | None) -> set[Key]:
        """Set a SyncTarget, and return the placements that it was a destination of or may be now."""
        inventory = self._inventories[key[0]]
        before = inventory.set_target(key[1], target)
        self._forget_empty(key[0])
        if before == target:
            return set()
        concerned = [place for each in (before, target) if each is not None for place in inventory.places_of(each)]
        return {key for location in concerned for key in self._placements_selecting(location)}

    def sync_target(self, key: Key) -> SyncTarget | None:
        """Return a SyncTarget as it was set last."""
        inventory = self._inventories.get(key[0])
        return inventory.targets.get(key[1]) if inventory is not None else None

    def targets_at(self, location: Key) -> list[SyncTarget]:
        """Return the SyncTargets at a Location, sorted by name; none if there is no such Location."""
        found = self._locations.get(location)
        return [] if found is None else self._inventories[found.cluster].at(found)

    def locations_at(self, target: Key) -> list[Location]:
        """Return the Locations where a SyncTarget is, sorted by name."""
        found = self.sync_target(target)
        return [] if found is None else self._inventories[found.cluster].places_of(found)

    def locations_of(self, placement: Key) -> list[Location]:
        """Return the Locations that a placement selects, sorted by logical cluster and name."""
        found = {
            key
            for selector in self._placements.get(placement, ())
            for key in self._labelled.matching(selector, self._locations)
            if selector.matches(self._locations[key].labels)
        }
        return [self._locations[key] for key in sorted(found)]

    def placements_at(self, location: Key) -> set[Key]:
        """Return the placements that select a Location."""
        found = self._locations.get(location)
        return set() if found is None else set(self._placements_selecting(found))

    def placements(self) -> set[Key]:
        """Return all placements."""
        return set(self._placements)

    def placements_in(self, cluster: str) -> set[Key]:
        """Return the placements that select any Location of a logical cluster; of one without any it costs nothing."""
        inventory = self._inventories.get(cluster)
        names = inventory.locations if inventory is not None else ()
        return set[Key]().union(*(self.placements_at((cluster, name)) for name in names))

    def resolve(
        self, placement: Key, now_s: float, assigned: Collection[Destination], may_use: Callable[[Location], bool]
    ) -> Resolution:
        """Return where a placement goes. `assigned` are the destinations that it has: unschedulable ones stay."""
        usable = [location for location in self.locations_of(placement) if may_use(location)]
        held = {each.sync_target for each in assigned}
        destinations: dict[Key, Destination] = {}
        shared: dict[Key, tuple[str, ...]] = {}
        evictions = []
        for location in usable:
            for target in self._inventories[location.cluster].at(location):
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
        return Resolution(in_order, len(usable), shared, min(evictions, default=None))

    def _forget_empty(self, cluster: str) -> None:
        inventory = self._inventories[cluster]
        if not inventory.locations and not inventory.targets:
            del self._inventories[cluster]

    def _placements_selecting(self, location: Location) -> Iterator[Key]:
        for key in self._selecting.matching(location.labels):
            if any(test.matches(location.labels) for test in self._placements[key]):
                yield key


def _is_eligible(target: SyncTarget, now_s: float, is_held: bool) -> bool:
    if target.evict_after_s is not None and target.evict_after_s <= now_s:
        return False
    return is_held or not target.is_unschedulable


def _labels(obj: Location | SyncTarget | None) -> Mapping[str, str]:
    return {} if obj is None else obj.labels


def _selector(location: Location | None) -> tuple[LabelSelector, ...]:
    return () if location is None else (location.selector,)


def _set(rows: dict[K, T], key: K, value: T | None) -> T | None:
    """Set or remove a row; return what was there."""
    before = rows.get(key)
    if value is not None:
        rows[key] = value
    elif before is not None:
        del rows[key]
    return before
