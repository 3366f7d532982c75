"""Placements, their destinations, and the mailboxes of these, as control objects say.

`translator` puts changes in; all other parts ask. Invariant: a placement counts only while it is valid and not deleted,
and a destination only while its mailbox is ready.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

from atoll.edge.mailboxes import inventory_of, mailbox_name
from atoll.machinery.edge.applied import digest
from atoll.machinery.edge.customization import parameters_of
from atoll.machinery.edge.placements import InvalidPlacement, Placement, placement_of
from atoll.machinery.edge.slices import destinations_of, placement_name_of
from atoll.machinery.edge.where import Destination, Key
from atoll.machinery.meta.objects import Object


class Topology:
    """Keys of placements are (logical cluster, name); mailboxes go by their logical cluster."""

    def __init__(self) -> None:
        #: Set once everything was seen.
        self.complete = asyncio.Event()
        #: Whether what is not here of a workspace is not there: its shard showed all of it.
        self.has_read: Callable[[str], bool] = lambda cluster: False
        #: Whether no shard showed anything of a workspace, and all of them showed everything.
        self.is_nowhere: Callable[[str], bool] = lambda cluster: False
        #: Workspace -> name -> placement as it is stored.
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self._valid: dict[str, dict[str, Placement]] = defaultdict(dict)
        #: Workspace -> uid -> name of a placement.
        self._by_uid: dict[str, dict[str, str]] = defaultdict(dict)
        self._slices: dict[Key, dict[str, Object]] = defaultdict(dict)
        self._destinations: dict[Key, dict[str, Destination]] = {}
        #: Locations, which say their parameters, and the destinations that each stands for.
        self._locations: dict[Key, Object] = {}
        self._at: dict[Key, set[tuple[Key, str]]] = defaultdict(set)
        #: Name of a mailbox -> placements with it as a destination.
        self._senders: dict[str, set[Key]] = defaultdict(set)
        #: Name of a mailbox that is ready -> its logical cluster, and the other way round.
        self._clusters: dict[str, str] = {}
        self._names: dict[str, str] = {}
        #: SyncTargets, by name of their mailbox, and those that are not heard of.
        self._targets: set[str] = set()
        self._silent: set[str] = set()

    # --- changes

    def set_placement(self, cluster: str, name: str, obj: Object | None) -> bool:
        """Take over a placement, None if it is gone; return whether what it asks for changed."""
        before = self._valid[cluster].pop(name, None)
        stored = self._objects[cluster].pop(name, None)
        if stored is not None:
            self._by_uid[cluster].pop(stored["metadata"].get("uid", ""), None)
        if obj is not None and "deletionTimestamp" not in obj["metadata"]:
            self._objects[cluster][name] = obj
            self._by_uid[cluster][obj["metadata"].get("uid", "")] = name
            with suppress(InvalidPlacement):
                self._valid[cluster][name] = placement_of(obj)
        after = self._valid[cluster].get(name)
        for each in (self._objects, self._valid, self._by_uid):
            if not each[cluster]:
                del each[cluster]
        return before != after

    def set_slice(self, cluster: str, old: Object | None, new: Object | None) -> dict[Key, set[str]]:
        """Take over a slice; return placements with the names of mailboxes that come, go or have another Location."""
        changed: dict[Key, dict[str, Destination]] = {}
        for each in (old, new):
            if each is not None:
                key = cluster, placement_name_of(each)
                changed.setdefault(key, self._destinations.get(key, {}))
                self._slices[key].pop(each["metadata"]["name"], None)
        if new is not None:
            self._slices[cluster, placement_name_of(new)][new["metadata"]["name"]] = new
        for key in changed:
            self._resolve(key)
        return {
            key: {name for name, _ in before.items() ^ self._destinations.get(key, {}).items()}
            for key, before in changed.items()
        }

    def _resolve(self, key: Key) -> None:
        slices = self._slices[key]
        found = {mailbox_name(each.cluster, each.sync_target_uid): each for each in destinations_of(slices.values())}
        for name, each in self._destinations.pop(key, {}).items():
            location = each.cluster, each.location_name
            self._at[location].discard((key, name))
            if not self._at[location]:
                del self._at[location]
            self._senders[name].discard(key)
            if not self._senders[name]:
                del self._senders[name]
        for name, each in found.items():
            self._senders[name].add(key)
            self._at[each.cluster, each.location_name].add((key, name))
        if slices:
            self._destinations[key] = found
        else:
            del self._slices[key]

    def set_mailbox(self, name: str, cluster: str) -> str:
        """Take over a mailbox, "" while it is not ready; return the logical cluster that it had before."""
        before = self._clusters.pop(name, "")
        self._names.pop(before, None)
        if cluster:
            self._clusters[name], self._names[cluster] = cluster, name
        return before

    def set_location(self, location: Key, obj: Object | None) -> bool:
        """Take over a Location; return whether it defines other parameters. One that is gone takes no copy along."""
        before = self._locations.pop(location, None)
        if obj is None:
            return False
        self._locations[location] = obj
        return before is None or parameters_of(before) != parameters_of(obj)

    def set_target(self, mailbox: str, *, present: bool) -> bool:
        """Take over whether the SyncTarget of a mailbox, by name, is there; return whether that is new."""
        is_new = (mailbox in self._targets) != present
        (self._targets.add if present else self._targets.discard)(mailbox)
        return is_new

    def set_silent(self, mailbox: str, is_silent: bool) -> bool:
        """Take over whether the syncer of a mailbox, by name, is not heard of; return whether that is new."""
        is_new = (mailbox in self._silent) != is_silent
        (self._silent.add if is_silent else self._silent.discard)(mailbox)
        return is_new

    # --- answers

    def object_of(self, cluster: str, name: str) -> Object | None:
        """Return a placement as it is stored."""
        return self._objects.get(cluster, {}).get(name)

    def names(self, cluster: str) -> list[str]:
        """Return the names of all placements of a workspace."""
        return sorted(self._objects.get(cluster, ()))

    def placements(self, cluster: str) -> list[Placement]:
        """Return the valid placements of a workspace."""
        return list(self._valid.get(cluster, {}).values())

    def placement(self, cluster: str, name: str) -> Placement | None:
        """Return a placement if it is valid."""
        return self._valid.get(cluster, {}).get(name)

    def placement_with(self, cluster: str, uid: str) -> Placement | None:
        """Return the placement with a uid if it is valid."""
        return self.placement(cluster, self._by_uid.get(cluster, {}).get(uid, ""))

    def workspaces(self) -> set[str]:
        """Return the workspaces with placements."""
        return set(self._objects)

    def destinations(self, cluster: str, placement: str) -> dict[str, Destination]:
        """Return the destinations of a placement, by the name of their mailbox."""
        return self._destinations.get((cluster, placement), {}) if placement in self._valid.get(cluster, {}) else {}

    def mailboxes(self, cluster: str, placements: Iterable[str]) -> set[str]:
        """Return the logical clusters of the mailboxes of placements."""
        names = {name for each in placements for name in self.destinations(cluster, each)}
        return {self._clusters[name] for name in names if name in self._clusters}

    def senders(self, mailbox: str) -> dict[str, set[str]]:
        """Return the placements with a mailbox as a destination, by workspace."""
        found: dict[str, set[str]] = {}
        for cluster, placement in self._senders.get(self._names.get(mailbox, ""), ()):
            if placement in self._valid.get(cluster, {}):
                found.setdefault(cluster, set()).add(placement)
        return found

    def is_sent_to(self, mailbox: str) -> bool:
        """Whether a mailbox is a destination, without a walk of all placements that have it as one."""
        keys = self._senders.get(self._names.get(mailbox, ""), ())
        return any(placement in self._valid.get(cluster, {}) for cluster, placement in keys)

    def cluster_of(self, name: str) -> str:
        """Return the logical cluster of a mailbox, "" while it is not ready."""
        return self._clusters.get(name, "")

    def destination(self, mailbox: str) -> Destination | None:
        """Return a mailbox as a destination; of several Locations the first placement's counts."""
        name = self._names.get(mailbox, "")
        for key in sorted(self._senders.get(name, ())):
            return self._destinations[key][name]
        return None

    def is_mailbox(self, cluster: str) -> bool:
        """Whether a logical cluster is a mailbox that is ready."""
        return cluster in self._names

    def is_ending(self, mailbox: str) -> bool:
        """Whether a mailbox goes, as its SyncTarget is gone. Then nothing is withdrawn: its edge keeps what it has."""
        name = self._names.get(mailbox, "")
        return name not in self._targets and self.has_read(inventory_of(name))

    def is_silent(self, name: str) -> bool:
        """Whether the syncer of a mailbox is not heard of."""
        return name in self._silent

    def all_mailboxes(self) -> list[str]:
        """Return the logical clusters of all mailboxes that are ready."""
        return list(self._names)

    def mailboxes_at(self, location: Key) -> set[str]:
        """Return the logical clusters of the mailboxes that a Location stands for."""
        names = {name for _, name in self._at.get(location, ())}
        return {self._clusters[name] for name in names if name in self._clusters}

    def parameters(self, mailbox: str, cluster: str, placements: Iterable[str]) -> tuple[dict[str, str], str] | None:
        """Return the parameters of a mailbox for what these placements send, and a digest; None without its Location.

        Of several Locations for one mailbox the first counts.
        """
        name = self._names.get(mailbox, "")
        found = (self.destinations(cluster, each).get(name) for each in placements)
        locations = [(each.cluster, each.location_name) for each in found if each is not None]
        location = self._locations.get(min(locations)) if locations else None
        if location is None:
            return None
        parameters = parameters_of(location)
        return parameters, digest(parameters)
