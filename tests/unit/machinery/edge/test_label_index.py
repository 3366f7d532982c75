"""Indexes by label: every match is a candidate, and a change of one among many looks at no other."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.edge.label_index import LabelIndex, SelectorIndex
from atoll.machinery.edge.where import Location, SyncTarget, WhereIndex
from atoll.machinery.meta.selectors import LabelSelector, compile_label_selector

MANY = 500


class Labels(dict[str, str]):
    """Labels of the crowd, which count how often any of them is looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        Labels.looks += 1
        return super().get(key, default)


def wants(**labels: str) -> LabelSelector:
    return compile_label_selector({"matchLabels": labels})


EXISTS = compile_label_selector({"matchExpressions": [{"key": "env", "operator": "Exists"}]})
NOTHING = compile_label_selector(None)


def test_what_has_labels_is_found_by_the_rarest_that_is_required() -> None:
    index: LabelIndex[str] = LabelIndex()
    for name, labels in {"a": {"env": "x", "id": "1"}, "b": {"env": "x"}, "c": {}}.items():
        index.move(name, {}, labels)
    assert set(index.matching(wants(env="x"), "abc")) == {"a", "b"}
    assert set(index.matching(wants(env="x", id="1"), "abc")) == {"a"}
    assert set(index.matching(wants(env="y"), "abc")) == set()
    assert set(index.matching(EXISTS, "abc")) == {"a", "b", "c"}
    assert set(index.matching(NOTHING, "abc")) == set()
    index.move("a", {"env": "x", "id": "1"}, {"env": "y"})
    assert set(index.matching(wants(env="x"), "abc")) == {"b"}
    assert set(index.matching(wants(env="y"), "abc")) == {"a"}
    for name, labels in {"a": {"env": "y"}, "b": {"env": "x"}}.items():
        index.move(name, labels, {})
    assert index._keys == {}


def test_what_has_selectors_is_found_by_a_label_that_one_requires() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.move("a", (), (wants(env="x"), wants(id="1")))
    index.move("any", (), (EXISTS,))
    index.move("none", (), (NOTHING,))
    assert index.matching({"env": "x"}) == {"a", "any"}
    assert index.matching({"id": "1"}) == {"a", "any"}
    assert index.matching({"id": "2"}) == {"any"}
    index.move("a", (wants(env="x"), wants(id="1")), (wants(env="x"),))
    assert index.matching({"id": "1"}) == {"any"}
    assert index.matching({"env": "x"}) == {"a", "any"}
    index.move("a", (wants(env="x"),), ())
    index.move("any", (EXISTS,), ())
    assert index._keys == {}


def crowd() -> WhereIndex:
    """An index of many Locations and SyncTargets, each selecting or selected by its own label."""
    index = WhereIndex()
    for number in range(MANY):
        name = f"n{number}"
        index.set_location(("imw", name), Location("imw", name, Labels(id=name), wants(id=name)))
        index.set_sync_target(("imw", name), SyncTarget("imw", name, f"u{number}", Labels(id=name)))
        index.set_placement(("wmw", name), (wants(id=name),))
    index.set_placement(("wmw", "p"), (wants(moved="yes"),))
    Labels.looks = 0
    return index


def test_a_relabel_of_one_location_among_many_looks_at_no_other() -> None:
    index = crowd()
    moved = Location("imw", "n7", Labels(id="n7", moved="yes"), wants(id="n7"))
    assert index.set_location(("imw", "n7"), moved) == {("wmw", "p"), ("wmw", "n7")}
    (found,) = index.resolve(("wmw", "p"), 0.0, [], lambda location: True).destinations
    assert (found.location_name, found.sync_target_uid) == ("n7", "u7")
    assert Labels.looks < 20


def test_a_sync_target_among_many_looks_at_its_own_locations_alone() -> None:
    index = crowd()
    assert [each.name for each in index.locations_at(("imw", "n7"))] == ["n7"]
    assert index.set_sync_target(("imw", "n7"), None) == {("wmw", "n7")}
    assert index.placements_at(("imw", "n8")) == {("wmw", "n8")}
    assert Labels.looks < 20


def test_a_location_that_says_the_same_is_kept_once() -> None:
    index, key = crowd(), ("imw", "n7")
    before, again = index.locations_at(key), Location("imw", "n7", Labels(id="n7"), wants(id="n7"))
    assert index.set_location(key, again) == set()
    (stored,) = index.locations_of(("wmw", "n7"))
    assert [stored] == before
    assert stored is before[0]


def test_placements_are_found_by_the_inventory_that_they_select_in() -> None:
    index = crowd()
    assert index.placements_in("imw") == {("wmw", f"n{number}") for number in range(MANY)}
    Labels.looks = 0
    assert index.placements_in("mailbox") == set()
    assert Labels.looks == 0
    assert index.placements() == {*index.placements_in("imw"), ("wmw", "p")}


def test_a_candidate_that_lacks_another_required_label_is_not_concerned() -> None:
    index = crowd()
    index.set_placement(("wmw", "both"), (wants(id="n7", moved="yes"),))
    assert index.placements_at(("imw", "n7")) == {("wmw", "n7")}
    assert index.set_location(("imw", "n7"), None) == {("wmw", "n7")}


@pytest.mark.parametrize("is_location_first", [True, False])
def test_an_inventory_that_is_empty_is_forgotten(is_location_first: bool) -> None:
    index = WhereIndex()
    index.set_location(("imw", "l"), Location("imw", "l", {}, EXISTS))
    index.set_sync_target(("imw", "t"), SyncTarget("imw", "t", "u", {"env": "x"}))
    for is_location in (is_location_first, not is_location_first):
        assert index._inventories
        if is_location:
            index.set_location(("imw", "l"), None)
        else:
            index.set_sync_target(("imw", "t"), None)
    assert not index._inventories
