"""The watchers that a change concerns: by type and cluster, then by namespace, name and one label.

The hub calls it for each commit. A watcher registers with what its changes have in common, as far as that is an
equality: thousands of watches of one object, one namespace or one label value then cost nothing when another object
changes. Invariant: a watcher is found for every change whose image before or after matches its interest, and maybe for
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import EVERYTHING, Change, Interest, Scope


class Watcher(Protocol):
    """A cursor as the hub uses it."""

    def wake(self, nothing_before: int) -> None:
        """A commit changed the scope. An idle watcher has nothing to read up to `nothing_before`."""

    def mark(self, nothing_before: int) -> None:
        """The same for a watcher that is woken later; until then it reads everything."""

    def nudge(self) -> None:
        """Wake a marked watcher."""


#: Namespace, and the interest beyond it.
_Slot = tuple[str, Interest]


class _Group:
    """The watchers of one type in one cluster."""

    __slots__ = ("labelled", "named", "slots")

    def __init__(self) -> None:
        self.slots: dict[_Slot, set[Watcher]] = {}
        #: Number of slots with a name, and with a label: without any nothing is looked up, or decoded.
        self.named = self.labelled = 0

    def add(self, slot: _Slot, watcher: Watcher) -> None:
        watchers = self.slots.get(slot)
        if watchers is None:
            watchers = self.slots[slot] = set()
            self._count(slot[1], 1)
        watchers.add(watcher)

    def discard(self, slot: _Slot, watcher: Watcher) -> None:
        watchers = self.slots.get(slot)
        if watchers is None:
            return
        watchers.discard(watcher)
        if not watchers:
            del self.slots[slot]
            self._count(slot[1], -1)

    def _count(self, interest: Interest, by: int) -> None:
        if interest.name:
            self.named += by
        elif interest.label is not None:
            self.labelled += by

    def matching(self, change: Change) -> Iterator[set[Watcher]]:
        """Yield the watchers of each slot that a change matches."""
        key, slots = change.key, self.slots
        interests = [EVERYTHING]
        if self.named:
            interests.append(Interest(name=key.name))
        if self.labelled:
            interests.extend(Interest(label=pair) for pair in _pairs(change))
        for namespace in {"", key.namespace}:
            for interest in interests:
                watchers = slots.get((namespace, interest))
                if watchers is not None:
                    yield watchers


def _pairs(change: Change) -> set[tuple[str, str]]:
    """Return the labels before and after a change: an object that leaves a selector is an event too."""
    pairs: set[tuple[str, str]] = set()
    for image in (change.before, change.after):
        if image is not None:
            pairs.update(partial.labels(image).items())
    return pairs


class Registrations:
    """All watchers of one event loop."""

    def __init__(self) -> None:
        self._groups: dict[tuple[ResourceType, str], _Group] = {}

    def __iter__(self) -> Iterator[Watcher]:
        return iter(
            [watcher for group in self._groups.values() for watchers in group.slots.values() for watcher in watchers]
        )

    def __len__(self) -> int:
        return sum(len(watchers) for group in self._groups.values() for watchers in group.slots.values())

    def add(self, scope: Scope, interest: Interest, watcher: Watcher) -> None:
        """Add a watcher, until `discard` with the same scope and interest."""
        group = self._groups.setdefault((scope.type, scope.cluster), _Group())
        group.add((scope.namespace, interest), watcher)

    def discard(self, scope: Scope, interest: Interest, watcher: Watcher) -> None:
        """Remove a watcher. Idempotent."""
        group = self._groups.get((scope.type, scope.cluster))
        if group is None:
            return
        group.discard((scope.namespace, interest), watcher)
        if not group.slots:
            del self._groups[scope.type, scope.cluster]

    def watchers_of(self, changes: Iterable[Change]) -> list[Watcher]:
        """Return the watchers that the changes of a commit concern, each once; a slot is visited once."""
        slots: dict[int, set[Watcher]] = {}
        for change in changes:
            type, cluster = change.key.type, change.key.cluster
            for where in ((type, cluster), (type, "")):
                group = self._groups.get(where)
                for watchers in group.matching(change) if group is not None else ():
                    slots[id(watchers)] = watchers
        if len(slots) == 1:
            return list(*slots.values())
        return list(set().union(*slots.values()))
