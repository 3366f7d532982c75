"""Several definers of one kind in a mailbox: which of them is in effect, what is said, and what is looked at again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atoll.edge.placement_translator.conflicts import Conflicts
from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.defined import defined_by
from atoll.edge.placement_translator.definitions import Definitions
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.merging import Conflict
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object

KIND = "x.dev", "cogs"
CRD = ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", "cogs.x.dev")
BINDING, OTHER = (ObjectRef("apis.kcp.io", "apibindings", "", name) for name in ("a", "b"))
FIELD = "definition of cogs.x.dev"


def definition(established: str = "True") -> Object:
    spec = {"group": "x.dev", "names": {"plural": "cogs"}}
    return {"spec": spec, "status": {"conditions": [{"type": "Established", "status": established}]}}


def binding(*identities: str) -> Object:
    rows = [{"group": "x.dev", "resource": "cogs", "schema": {"identityHash": each}} for each in identities]
    return {"spec": {}, "status": {"phase": "Bound", "boundResources": rows}}


class World:
    """What workspaces send to the mailbox `m`: a definer each, as it is there."""

    def __init__(self, **sent: tuple[ObjectRef, Object]) -> None:
        self.contents = {name: Content() for name in sent}
        for name, (ref, obj) in sent.items():
            content = self.contents[name]
            content.put(ref, Item(Selection(("p",)), ("v1",), "", f"uid-{name}"))
            content.defined = {ref: defined_by(obj)}
        topology = Topology()
        topology.senders = lambda mailbox: {name: {"p"} for name in self.contents}  # type: ignore[method-assign]
        self.events: set[tuple[str, str]] = set()
        self.conflicts = Conflicts(lambda cluster, ref, reason, text: self.events.add((cluster, text)))
        self.found = Definitions(topology, cast(Contents, cast(Any, self.contents)), self.conflicts)

    def in_conflict(self, ref: ObjectRef) -> list[Conflict]:
        return list(self.conflicts.found("m", ref))


def test_what_is_in_effect_wins_each_workspace_is_told_and_the_other_definer_is_not_listed() -> None:
    world = World(w1=(CRD, definition()), w2=(BINDING, binding("i")))
    world.found.saw("m", CRD, definition())
    world.found.saw("m", BINDING, binding())
    assert world.found.settle("m") == ({KIND}, True)
    for ref in (CRD, BINDING):
        assert world.in_conflict(ref) == [Conflict(FIELD, "w1")]
    text = f"{FIELD} is not the same in all workspaces that send it: that of w1 counts"
    assert world.events == {("w1", text), ("w2", text)}
    assert world.found.waiting("m") == {BINDING}
    assert world.found.winners("m", KIND) == {"w1"}
    assert world.found.settle("m") == (set(), False), "nothing is new"
    del world.contents["w1"]
    world.found.saw("m", CRD, None)
    world.conflicts.put("m", CRD, (), ())
    world.found.saw("m", BINDING, binding("i"))
    assert world.found.settle("m") == ({KIND}, True), "its copies are looked at"
    assert world.in_conflict(BINDING) == []
    assert (world.found.waiting("m"), world.found.winners("m", KIND)) == (frozenset(), set())


def test_until_one_is_in_effect_none_is_listed_and_nothing_is_said() -> None:
    world = World(w1=(CRD, definition()), w2=(BINDING, binding("i")))
    world.found.saw("m", CRD, definition(established="False"))
    assert world.found.settle("m") == (set(), True)
    assert world.found.waiting("m") == {CRD, BINDING}
    assert world.events == set()


@pytest.mark.parametrize(("identity", "conflicts"), [("i", []), ("j", [Conflict(FIELD, "w1")])])
def test_bindings_to_one_export_are_in_no_conflict_and_those_to_two_are(
    identity: str, conflicts: list[Conflict]
) -> None:
    world = World(w1=(BINDING, binding("i")), w2=(OTHER, binding(identity)))
    world.found.saw("m", BINDING, binding("i"))
    world.found.saw("m", OTHER, binding())
    world.found.settle("m")
    assert world.in_conflict(OTHER) == conflicts


def test_a_binding_that_moves_to_another_export_has_its_copies_looked_at() -> None:
    world = World(w1=(BINDING, binding("i")))
    world.found.saw("m", BINDING, binding("i"))
    world.found.settle("m")
    world.found.saw("m", BINDING, binding("i"))
    assert world.found.settle("m") == (set(), False)
    world.found.saw("m", BINDING, binding("j"))
    assert world.found.settle("m") == ({KIND}, False)
    world.found.forget("m")
    assert world.found.settle("m") == (set(), False)


def test_equal_definers_share_what_they_define() -> None:
    assert defined_by(binding("i")) is defined_by(binding("i"))
    assert defined_by({"spec": {}, "status": {"phase": "Binding"}}) == {}
