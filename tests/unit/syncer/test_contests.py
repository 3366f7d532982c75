"""What somebody changes back all the time is applied once a minute, and what is wanted anew at once."""

from __future__ import annotations

import pytest

from atoll.machinery.edge.names import ObjectRef
from atoll.syncer.contests import ROUNDS, Contests, opponent

REF = ObjectRef("", "configmaps", "default", "c")


class Watched(Contests):
    """By a clock that stands still."""

    now_s = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.clock = lambda: self.now_s

    def fight(self, rounds: int) -> None:
        for _ in range(rounds):
            self.applied(REF, "a")
            self.now_s += 1.0


@pytest.fixture
def contests() -> Watched:
    return Watched()


def test_after_five_rounds_the_same_is_applied_once_a_minute(contests: Watched) -> None:
    contests.fight(ROUNDS)
    assert (contests.rounds(REF), contests.wait_s(REF, "a")) == (0, 0.0), "the first apply is no round"
    contests.fight(1)
    for rounds in (5, 6, 7):
        assert (contests.rounds(REF), contests.wait_s(REF, "a")) == (rounds, 59.0)
        contests.now_s += 59.0
        assert contests.wait_s(REF, "a") == 0.0
        contests.fight(1)


def test_what_is_wanted_anew_is_applied_at_once_and_begins_anew(contests: Watched) -> None:
    contests.fight(ROUNDS + 1)
    assert contests.wait_s(REF, "b") == 0.0
    contests.applied(REF, "b")
    assert (contests.rounds(REF), contests.wait_s(REF, "b")) == (0, 0.0)


def test_an_object_that_is_left_alone_for_a_minute_is_not_contested_any_more(contests: Watched) -> None:
    contests.fight(ROUNDS + 1)
    contests.now_s += contests.wait_s(REF)
    assert (contests.rounds(REF), contests.wait_s(REF)) == (0, 0.0)


def test_edits_by_hand_are_no_contest(contests: Watched) -> None:
    for _ in range(3 * ROUNDS):
        contests.applied(REF, "a")
        contests.now_s += 11.0
    contests.applied(REF, "a")
    assert contests.wait_s(REF, "a") == 0.0


def test_the_opponent_is_who_wrote_last_and_neither_the_syncer_nor_a_status() -> None:
    rows = [("kubestellar-syncer", "4", ""), ("somebody", "2", ""), ("other", "1", ""), ("kubelet", "3", "status")]
    fields = [{"manager": manager, "time": time, "subresource": of} for manager, time, of in rows]
    assert opponent({"metadata": {"managedFields": fields}}) == "somebody"
    assert opponent({"metadata": {}}) == "?"
