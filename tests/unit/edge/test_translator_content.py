"""What one workspace sends, counted and found without walking all of it."""

from __future__ import annotations

from atoll.edge.placement_translator.content import Content, Item
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.what import Selection

A, B = (ObjectRef("", "configmaps", "default", name) for name in ("a", "b"))


def item(uid: str, *placements: str) -> Item:
    return Item(Selection(placements), ("v1",), "digest", uid)


def test_each_placement_counts_what_it_sends_as_objects_come_move_and_go() -> None:
    content = Content()
    content.put(A, item("1", "p", "q"))
    content.put(B, item("2", "p"))
    assert (content.count("p"), content.count("q")) == (2, 1)
    content.put(B, item("2", "q"))
    assert (content.count("p"), content.count("q")) == (1, 2)
    assert content.sends(B, "q")
    assert not content.sends(B, "p")
    content.put(A, None)
    assert (content.count("p"), content.count("q")) == (0, 1)
    assert not content.sends(A, "p")
    anything = ObjectRef("", "configmaps", "", "")
    assert content.sends(anything, "q")
    assert not content.sends(anything, "p")
    assert content.placements_of_kinds() == {A.kind: ("q",)}
    content.put(B, None)
    assert content.placements_of_kinds() == {}
