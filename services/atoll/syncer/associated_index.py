"""Which associated objects belong to which placed ones: what is kept of each, by what relates it. No I/O.

`associated` fills it and asks. An associated object has ties: the uids of its owners, the value of a label, its own
name; a placed object looks for ties. Memory: below 1 KB an associated object. Invariant: what belongs to a placed
object does not depend on the order in which both came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern
from typing import TypeAlias

from atoll.machinery.edge.associated import Rule, names_at
from atoll.machinery.edge.associated_states import Observed
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object, labels_of, owner_references_of

#: The uid of an owner; a label's key, value and namespace; or the object itself.
Tie: TypeAlias = "str | tuple[str, str, str] | ObjectRef"
#: Most owners between two objects that are followed upwards.
_DEPTH = 8


def ties_of(ref: ObjectRef, obj: Object, labels: Iterable[str]) -> tuple[Tie, ...]:
    """Return what an associated object may be found by; `labels` are the keys that rules for its kind name."""
    found: list[Tie] = [intern(str(each["uid"])) for each in owner_references_of(obj)]
    own = labels_of(obj)
    return (*found, *((key, own[key], ref.namespace) for key in labels if key in own), ref)


class AssociatedIndex:
    """All that is known of the kinds that are followed."""

    def __init__(self) -> None:
        self._rows: dict[ObjectRef, tuple[Observed, tuple[Tie, ...]]] = {}
        #: Only ties to others: what is tied by its name is in `_rows`.
        self._tied: dict[Tie, set[ObjectRef]] = {}
        self._owners: dict[str, ObjectRef] = {}
        #: Placed objects by what they look for.
        self._placed: dict[Tie, set[ObjectRef]] = {}
        self._looks_for: dict[ObjectRef, set[Tie]] = {}

    def get(self, ref: ObjectRef) -> Observed | None:
        """Return what is kept of an associated object."""
        row = self._rows.get(ref)
        return row[0] if row is not None else None

    def put(self, ref: ObjectRef, found: Observed | None, ties: tuple[Tie, ...] = ()) -> set[ObjectRef]:
        """Replace what is kept of an object; return the placed objects that it belonged to, or does now."""
        before = self._rows.pop(ref, None)
        belongs = self._belongs(before[1]) if before is not None else set()
        if before is not None:
            self._owners.pop(before[0].uid, None)
            for tie in before[1]:
                if (tied := self._tied.get(tie)) is not None:
                    tied.discard(ref)
                    if not tied:
                        del self._tied[tie]
        if found is not None:
            self._rows[ref], self._owners[found.uid] = (found, ties), ref
            for tie in ties:
                if tie != ref:
                    self._tied.setdefault(tie, set()).add(ref)
            belongs |= self._belongs(ties)
        return belongs

    def refs(self, kind: tuple[str, str]) -> list[ObjectRef]:
        """Return what is kept of a kind."""
        return [ref for ref in self._rows if ref.kind == kind]

    def _belongs(self, ties: tuple[Tie, ...]) -> set[ObjectRef]:
        found: set[ObjectRef] = set()
        level = set(ties)
        for _ in range(_DEPTH):
            above: set[Tie] = set()
            for tie in level:
                found |= self._placed.get(tie, set())
                if isinstance(tie, str) and (owner := self._owners.get(tie)) is not None:
                    above.update(each for each in self._rows[owner][1] if isinstance(each, str))
            if not above:
                break
            level = above
        return found

    def place(self, placed: ObjectRef, live: Object | None, rules: Iterable[Rule]) -> None:
        """Take what a placed object looks for; without rules nothing."""
        for tie in self._looks_for.pop(placed, ()):
            self._placed[tie].discard(placed)
            if not self._placed[tie]:
                del self._placed[tie]
        ties = {tie for rule in rules for tie in _looked_for(placed, live, rule)} if live is not None else set()
        if ties:
            self._looks_for[placed] = ties
        for tie in ties:
            self._placed.setdefault(tie, set()).add(placed)

    def members(self, placed: ObjectRef, live: Object, rule: Rule) -> Iterator[Observed]:
        """Yield what belongs to a placed object by a rule."""
        level = set(_looked_for(placed, live, rule))
        for kind in rule.owners:
            level = {each.uid for each in self._tied_by(level, kind)}
        yield from self._tied_by(level, rule.kind)

    def _tied_by(self, ties: Iterable[Tie], kind: tuple[str, str]) -> Iterator[Observed]:
        found = {ref for tie in ties for ref in (self._tied.get(tie, ()) if not isinstance(tie, ObjectRef) else (tie,))}
        for ref in found:
            if ref.kind == kind and (row := self._rows.get(ref)) is not None:
                yield row[0]


def _looked_for(placed: ObjectRef, live: Object, rule: Rule) -> list[Tie]:
    if rule.label:
        return [(rule.label, placed.name, placed.namespace)]
    if rule.field is not None:
        names = names_at(live, rule.field)
        # What it names has its namespace, or none.
        spaces = {placed.namespace, ""}
        return [ObjectRef(*rule.kind, space, name) for name in names for space in spaces]
    return [str(live["metadata"]["uid"])]
