"""Placements, destinations and mailboxes of the placement translator, in any order of arrival."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.objects import Object
from harness.seeds import seed_of_run

W, A, B = "w", "c-mb-u1", "c-mb-u2"


def placement(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": {"downsync": [{"apiGroup": ""}], **spec}}


def slice_of(name: str, *uids: str, placement: str = "") -> Object:
    rows = [{"cluster": "c", "locationName": "l", "syncTargetName": uid, "syncTargetUID": uid} for uid in uids]
    owner = {"kind": "EdgePlacement", "name": placement or name}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "destinations": rows}


def with_mailboxes(*, ready: bool = True) -> Topology:
    found = Topology()
    found.set_placement(W, "p", placement("p"))
    found.set_slice(W, None, slice_of("p", "u1"))
    found.set_slice(W, None, slice_of("p-2", "u2", placement="p"))
    for name, cluster in ((A, "m1"), (B, "m2")):
        found.set_mailbox(name, cluster if ready else "")
    return found


def test_a_destination_counts_once_its_mailbox_is_ready_and_its_placement_is_valid() -> None:
    found = with_mailboxes(ready=False)
    assert found.mailboxes(W, ["p"]) == set()
    assert set(found.destinations(W, "p")) == {A, B}
    found.set_mailbox(A, "m1")
    assert found.mailboxes(W, ["p"]) == {"m1"}
    assert found.senders("m1") == {W: {"p"}}
    assert found.is_sent_to("m1")
    assert found.set_placement(W, "p", placement("p", upsync=[{"apiGroup": "x", "resources": ["*", "a"]}]))
    assert found.senders("m1") == {}
    assert not found.is_sent_to("m1"), "the placement is not valid any more"
    assert found.destinations(W, "p") == {}
    assert (found.names(W), found.placements(W), found.placement(W, "p")) == (["p"], [], None)


def test_a_slice_that_changes_names_the_mailboxes_that_come_and_go() -> None:
    found = with_mailboxes()
    assert found.set_slice(W, slice_of("p", "u1"), slice_of("p", "u3")) == {(W, "p"): {A, "c-mb-u3"}}
    assert found.senders("m1") == {}
    assert found.mailboxes(W, ["p"]) == {"m2"}
    moved = found.set_slice(W, slice_of("p-2", "u2", placement="p"), slice_of("p-2", "u2", placement="q"))
    assert moved == {(W, "p"): {B}, (W, "q"): {B}}
    assert found.set_slice(W, slice_of("p-2", "u2", placement="q"), None) == {(W, "q"): {B}}


def test_only_what_a_placement_asks_for_is_a_change_of_it() -> None:
    found = with_mailboxes()
    assert not found.set_placement(W, "p", {**placement("p"), "status": {"objectCount": 1}})
    assert found.set_placement(W, "p", placement("p", wantSingletonReportedState=True))
    going = placement("p")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert found.set_placement(W, "p", going)
    assert found.workspaces() == set()
    assert found.object_of(W, "p") is None


def test_a_placement_that_is_made_again_is_found_by_its_new_uid_alone() -> None:
    found = Topology()
    for uid in ("old", "new"):
        obj = placement("p")
        obj["metadata"]["uid"] = uid
        found.set_placement(W, "p", obj)
    assert found.placement_with(W, "new") == found.placement(W, "p") is not None
    assert found.placement_with(W, "old") is None
    found.set_placement(W, "p", None)
    assert found.placement_with(W, "new") is None


def test_a_mailbox_that_is_made_again_is_another_one() -> None:
    found = with_mailboxes()
    assert found.set_mailbox(A, "m3") == "m1"
    assert not found.is_mailbox("m1")
    assert found.mailboxes(W, ["p"]) == {"m2", "m3"}
    assert found.set_mailbox(A, "") == "m3"
    assert sorted(found.all_mailboxes()) == ["m2"]


def test_a_mailbox_ends_with_its_target_once_the_inventory_was_read() -> None:
    found = with_mailboxes()
    assert found.set_target(A, present=True)
    assert not found.set_target(A, present=True)
    assert not found.is_ending("m2"), "its shard did not show all of it"
    found.has_read = lambda cluster: cluster == "c"
    assert [found.is_ending(each) for each in ("m1", "m2", "m3")] == [False, True, False]
    assert found.set_target(A, present=False)
    assert found.is_ending("m1")


def test_whether_a_syncer_is_heard_of_is_kept_by_mailbox() -> None:
    found = with_mailboxes()
    assert found.set_silent(A, True)
    assert not found.set_silent(A, True)
    assert (found.is_silent(A), found.is_silent(B)) == (True, False)
    assert found.set_silent(A, False)


def test_the_order_of_arrival_does_not_matter() -> None:
    rng = random.Random(seed_of_run(1))

    def filled() -> Topology:
        found = Topology()
        steps: list[Callable[[], object]] = [
            *(partial(found.set_placement, W, name, placement(name)) for name in ("p", "q")),
            *(partial(found.set_slice, W, None, slice_of(name, "u1", "u2")) for name in ("p", "q")),
            lambda: found.set_mailbox(A, "m1"),
            lambda: found.set_mailbox(B, "m2"),
        ]
        rng.shuffle(steps)
        for step in steps:
            step()
        return found

    for _ in range(20):
        found = filled()
        assert found.senders("m1") == found.senders("m2") == {W: {"p", "q"}}
        assert found.destinations(W, "p")[A] == Destination("c", "l", "u1", "u1")
