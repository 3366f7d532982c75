"""Which associated objects come up whole, and for which placed ones. No I/O.

`associated` says what belongs to each placed object, `upsync` asks for each object whether it comes up. Invariant:
until every placed object that may have some was looked at, it is not known that an object belongs to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atoll.machinery.edge.names import ObjectRef


class AssociatedCopies:
    """`changed` is told of each object that comes up from now on, or does no more; `completed` once all are known."""

    def __init__(self) -> None:
        self.changed: Callable[[ObjectRef], None] = lambda ref: None
        self.completed: Callable[[], None] = lambda: None
        self._of: dict[ObjectRef, frozenset[ObjectRef]] = {}
        self._placed: dict[ObjectRef, set[ObjectRef]] = {}
        #: Placed objects that were not looked at.
        self._due: set[ObjectRef] = set()

    @property
    def is_complete(self) -> bool:
        """Whether all is known that comes up."""
        return not self._due

    def expect(self, placed: Iterable[ObjectRef]) -> None:
        """These are looked at soon; no others are."""
        was_complete, self._due = self.is_complete, set(placed)
        if not was_complete and self.is_complete:
            self.completed()

    def put(self, placed: ObjectRef, refs: frozenset[ObjectRef]) -> None:
        """Replace what comes up for a placed object."""
        before = self._of.pop(placed, frozenset())
        if refs:
            self._of[placed] = refs
        for ref in refs - before:
            self._placed.setdefault(ref, set()).add(placed)
        for ref in before - refs:
            self._placed[ref].discard(placed)
            if not self._placed[ref]:
                del self._placed[ref]
        for ref in sorted(before ^ refs):
            self.changed(ref)
        if placed in self._due:
            self._due.discard(placed)
            if not self._due:
                self.completed()

    def placed(self, ref: ObjectRef) -> ObjectRef | None:
        """Return the placed object for which an object comes up, the first of several; None if it does not."""
        found = self._placed.get(ref)
        return min(found) if found else None
