"""Who has a key: rendezvous hashing over rosters."""

from __future__ import annotations

from atoll.edge.roster import WHOLE, Roster

KEYS = [f"heartbeats/{number}" for number in range(600)]
NOW_S = 1_800_000_000


def test_a_member_that_comes_or_goes_moves_its_share_alone() -> None:
    before = Roster(1, ("a", "b", "c"))
    after = before.changed(("a", "b", "c", "d"), NOW_S)
    moved = {key for key in KEYS if before.owner(key) != after.owner(key)}
    assert {after.owner(key) for key in moved} == {"d"}
    assert len(KEYS) / 8 < len(moved) < len(KEYS) / 2
    left = after.changed(("a", "c", "d"), NOW_S)
    assert all(left.owner(key) == after.owner(key) for key in KEYS if after.owner(key) != "b")
    assert {left.owner(key) for key in KEYS} == {"a", "c", "d"}


def test_an_epoch_outranks_the_one_before_and_what_was_lost() -> None:
    first = Roster().changed(("a",), NOW_S)
    assert first.epoch == NOW_S
    assert first.changed(("a", "b"), NOW_S - 100).epoch == NOW_S + 1
    assert Roster().changed(("a",), NOW_S + 60).epoch > first.epoch


def test_what_is_not_split_stays_until_its_owner_goes() -> None:
    for first in "abc":
        roster = Roster().changed((first,), NOW_S).changed(("a", "b", "c"), NOW_S)
        assert roster.owner(WHOLE) == first
        others = sorted({"a", "b", "c"} - {first})
        left = roster.changed(others, NOW_S)
        assert left.owner(WHOLE) in others
        assert left.changed(("a", "b", "c"), NOW_S).owner(WHOLE) == left.owner(WHOLE)


def test_nobody_has_anything_of_an_empty_roster() -> None:
    assert Roster().owner(WHOLE) == ""
