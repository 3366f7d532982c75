"""Where resolution, case by case: shared SyncTargets, rights, evictions, and the form of slices."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.edge.names import SOURCE_PLACEMENT
from atoll.machinery.edge.placements import InvalidPlacement, placement_of
from atoll.machinery.edge.slices import MAX_DESTINATIONS, destinations_of, plan_slices
from atoll.machinery.edge.where import Destination, Location, WhereIndex, location_of, sync_target_of

KEY = ("wmw", "p")


def index_of(*locations: tuple[str, dict[str, Any]], **spec: object) -> WhereIndex:
    """An index with these Locations in `imw`, one SyncTarget s there, and a placement that selects all."""
    index = WhereIndex()
    for name, selector in locations:
        obj = {"metadata": {"name": name}, "spec": {"instanceSelector": selector}}
        index.set_location(("imw", name), location_of("imw", obj))
    target = {"metadata": {"name": "s", "uid": "u1", "labels": {"id": "s"}}, "spec": spec}
    index.set_sync_target(("imw", "s"), sync_target_of("imw", target))
    index.set_placement(KEY, placement_of({"metadata": {"name": "p"}, "spec": {"locationSelectors": [{}]}}).selectors)
    return index


def every(location: Location) -> bool:
    return True


def test_a_sync_target_at_two_locations_is_one_destination_at_the_first_by_name() -> None:
    found = index_of(("b", {}), ("a", {}), ("c", {"matchLabels": {"id": "other"}})).resolve(KEY, 0, [], every)
    assert found.destinations == (Destination("imw", "a", "s", "u1"),)
    assert found.shared == {("imw", "u1"): ("a", "b")}
    assert found.location_count == 3


def test_a_location_that_may_not_be_used_counts_for_nothing() -> None:
    found = index_of(("a", {}), ("b", {})).resolve(KEY, 0, [], lambda location: location.name != "a")
    assert found.destinations == (Destination("imw", "b", "s", "u1"),)
    assert found.location_count == 1
    assert index_of(("a", {})).resolve(KEY, 0, [], lambda location: False) == index_of().resolve(KEY, 0, [], every)


def test_an_unschedulable_sync_target_keeps_the_destinations_that_it_has_and_gets_no_new_ones() -> None:
    index = index_of(("a", {}), unschedulable=True)
    assert index.resolve(KEY, 0, [], every).destinations == ()
    held = [Destination("imw", "a", "s", "u1")]
    assert list(index.resolve(KEY, 0, held, every).destinations) == held


def test_an_eviction_takes_every_destination_at_its_time_and_is_announced_before() -> None:
    index = index_of(("a", {}), evictAfter="1970-01-01T00:01:40Z")
    held = index.resolve(KEY, 99.0, [], every)
    assert held.next_eviction_s == 100.0
    assert held.destinations
    assert index.resolve(KEY, 100.0, held.destinations, every).destinations == ()


def test_a_location_without_selector_or_with_an_invalid_one_has_no_sync_targets() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    for selector in (None, bad):
        index = WhereIndex()
        obj = {"metadata": {"name": "a"}, "spec": {"instanceSelector": selector}}
        index.set_location(("imw", "a"), location_of("imw", obj))
        index.set_sync_target(("imw", "s"), sync_target_of("imw", {"metadata": {"name": "s", "uid": "u"}}))
        assert index.targets_at(("imw", "a")) == []
        assert index.locations_at(("imw", "s")) == []


def test_instances_of_a_location_are_its_sync_targets_and_the_other_way_round() -> None:
    index = index_of(("a", {}), ("b", {"matchLabels": {"id": "s"}}), ("c", {"matchLabels": {"id": "t"}}))
    assert [each.name for each in index.targets_at(("imw", "a"))] == ["s"]
    assert index.targets_at(("imw", "c")) == []
    assert [each.name for each in index.locations_at(("imw", "s"))] == ["a", "b"]


def test_a_sync_target_that_is_relabelled_or_deleted_leaves_the_locations_that_select_its_label() -> None:
    index = index_of(("a", {"matchLabels": {"id": "s"}}))
    other = {"metadata": {"name": "s", "uid": "u1", "labels": {"id": "t"}}}
    assert index.set_sync_target(("imw", "s"), sync_target_of("imw", other)) == {KEY}
    assert index.targets_at(("imw", "a")) == []
    back = {"metadata": {"name": "s", "uid": "u1", "labels": {"id": "s"}}}
    assert index.set_sync_target(("imw", "s"), sync_target_of("imw", back)) == {KEY}
    assert index.set_sync_target(("imw", "s"), None) == {KEY}
    assert index.targets_at(("imw", "a")) == []


def test_what_did_not_change_concerns_no_placement() -> None:
    index = index_of(("a", {}))
    obj = {"metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {"instanceSelector": {}}}
    assert index.set_location(("imw", "a"), location_of("imw", obj)) == set()
    assert index.set_location(("imw", "a"), None) == {KEY}
    assert index.set_location(("imw", "a"), None) == set()


def test_a_slice_has_its_placements_label_and_controller_and_the_fields_of_the_wire() -> None:
    placement = {"metadata": {"name": "p", "uid": "u"}}
    (made,) = plan_slices(placement, [Destination("imw", "a", "s", "u1")], []).create
    assert made["metadata"]["name"] == "p"
    assert made["metadata"]["labels"] == {SOURCE_PLACEMENT: "p"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("EdgePlacement", "u", True)
    row = {"cluster": "imw", "locationName": "a", "syncTargetName": "s", "syncTargetUID": "u1"}
    assert made["destinations"] == [row]


def test_a_placement_without_destinations_has_one_empty_slice() -> None:
    placement = {"metadata": {"name": "p", "uid": "u"}}
    (made,) = plan_slices(placement, [], []).create
    assert made["destinations"] == []
    assert plan_slices(placement, [], [made]).update == ()


def test_a_slice_that_somebody_edits_is_written_again_with_the_revision_that_was_read() -> None:
    placement = {"metadata": {"name": "p", "uid": "u"}}
    (made,) = plan_slices(placement, [Destination("imw", "a", "s", "u1")], []).create
    edited = {
        **made,
        "destinations": [],
        "metadata": {**made["metadata"], "resourceVersion": "7", "labels": {"a": "b"}},
    }
    (written,) = plan_slices(placement, destinations_of([made]), [edited]).update
    assert written["metadata"]["resourceVersion"] == "7"
    assert written["metadata"]["labels"] == {"a": "b", SOURCE_PLACEMENT: "p"}


def test_a_new_destination_goes_where_there_is_room_and_moves_no_other() -> None:
    placement = {"metadata": {"name": "p", "uid": "u"}}
    many = [Destination("imw", "b", f"s{number}", f"{number:05}") for number in range(MAX_DESTINATIONS + 1)]
    slices = plan_slices(placement, many, []).create
    writes = plan_slices(placement, [Destination("imw", "a", "first", "u"), *many], slices)
    assert (writes.create, writes.delete) == ((), ())
    assert [each["metadata"]["name"] for each in writes.update] == [slices[1]["metadata"]["name"]]
    writes = plan_slices(placement, many[1:], slices)
    assert [each["metadata"]["name"] for each in writes.update] == ["p"]


def test_names_and_labels_of_slices_of_long_names_are_valid_and_distinct() -> None:
    placement = {"metadata": {"name": "p" * 253, "uid": "u"}}
    many = [Destination("imw", "a", f"s{number}", f"{number:05}") for number in range(MAX_DESTINATIONS + 1)]
    made = plan_slices(placement, many, []).create
    assert [len(each["destinations"]) for each in made] == [MAX_DESTINATIONS, 1]
    assert all(len(each["metadata"]["name"]) <= 253 for each in made)
    assert all(len(each["metadata"]["labels"][SOURCE_PLACEMENT]) <= 63 for each in made)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"downsync": [{"apiGroup": "", "resources": ["*", "pods"]}]}, "spec.downsync[0].resources"),
        ({"downsync": [{"apiGroup": ""}, {}]}, "spec.downsync[1]"),
        ({"downsync": [{"resources": ["*"], "labelSelectors": [{}]}]}, "spec.downsync[0]"),
        ({"downsync": [{"apiGroup": "", "labelSelectors": [{"matchLabels": {"-": "a"}}]}]}, "[0].labelSelectors[0]"),
        ({"locationSelectors": [{}, {"matchExpressions": [{"key": "a", "operator": "In"}]}]}, "locationSelectors[1]"),
        ({"upsync": [{"apiGroup": "", "resources": ["*"], "names": ["*", "a"]}]}, "spec.upsync[0].names"),
    ],
)
def test_a_placement_with_an_error_has_no_effect_and_names_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPlacement) as error:
        placement_of({"metadata": {"name": "p"}, "spec": spec})
    assert error.value.errors[0].field.endswith(field)
