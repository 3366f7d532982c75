"""Conflicts between workspaces: who is told, how often, and what is known of them until they end."""

from __future__ import annotations

from collections import Counter

from atoll.edge.placement_translator.conflicts import Conflicts
from atoll.machinery.edge.merging import Conflict
from atoll.machinery.edge.names import ObjectRef

REF = ObjectRef("", "configmaps", "default", "a")
ONE, TWO = Conflict("spec", "w1"), Conflict("data[k]", "w2")


class World:
    """Conflicts, and what was told of them."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, str]] = Counter()
        self.conflicts = Conflicts(self._tell)

    def _tell(self, cluster: str, ref: ObjectRef, reason: str, message: str) -> None:
        assert (ref.resource, reason) == ("configmaps", "WorkloadConflict")
        self.events[cluster, message.partition(" ")[0]] += 1


def test_each_workspace_is_told_when_a_conflict_begins_and_not_while_it_lasts() -> None:
    world = World()
    world.conflicts.put("m", REF, ["w2", "w1"], [ONE])
    world.conflicts.put("m", REF, ["w2", "w1"], [ONE])
    assert world.events == {("w1", "spec"): 1, ("w2", "spec"): 1}
    world.conflicts.put("m", REF, ["w2", "w1"], [ONE, TWO])
    assert world.events == {(w, field): 1 for w in ("w1", "w2") for field in ("spec", "data[k]")}
    world.conflicts.put("m", REF, ["w2", "w1"], [TWO])
    world.conflicts.put("m", REF, ["w2", "w1"], [ONE])
    assert world.events["w1", "spec"] == 2


def test_a_conflict_is_said_of_each_workspace_where_it_is_until_it_ends() -> None:
    world = World()
    found = world.conflicts
    found.put("m1", REF, ["w1", "w2"], [ONE])
    found.put("m2", REF, ["w1", "w3"], [TWO])
    assert found.of("w1", {"m1", "m2"}) == {REF: (ONE,)}
    assert found.of("w1", {"m2"}) == {REF: (TWO,)}
    assert found.of("w2", {"m2"}) == {}
    assert found.of("w3", {"m2"}) == {REF: (TWO,)}
    found.put("m1", REF, ["w1", "w2"], [])
    assert found.has_seen("m1", REF), "it is known that there is none"
    assert found.of("w2", {"m1"}) == {}
    found.put("m1", REF, ["w1"], [])
    assert not found.has_seen("m1", REF), "nothing is kept of what one sends"
    found.forget("m2")
    assert all(found.of(each, {"m1", "m2"}) == {} for each in ("w1", "w3"))


def test_copies_in_conflict_are_counted_until_it_ends() -> None:
    found = World().conflicts
    counts = []
    for mailbox, conflicts in (("m1", [ONE]), ("m2", []), ("m1", [ONE, TWO]), ("m2", [TWO]), ("m1", [])):
        found.put(mailbox, REF, ["w1", "w2"], conflicts)
        counts.append(found.copies)
    found.forget("m2")
    assert [*counts, found.copies] == [1, 1, 1, 2, 1, 0]


def test_a_workspace_alone_with_versions_that_do_not_count_is_told() -> None:
    world = World()
    world.conflicts.put("m", REF, ["w1"], [Conflict("apiVersion", "w2")])
    assert world.conflicts.of("w1", {"m"}) == {REF: (Conflict("apiVersion", "w2"),)}
    world.conflicts.put("m", REF, (), ())
    assert world.conflicts.of("w1", {"m"}) == {}
