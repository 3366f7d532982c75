"""For how long a process has been cut off from what it watches."""

from __future__ import annotations

from atoll.edge.reach import Reach
from harness.data.stores import HandClock


def test_the_time_begins_with_the_first_interruption_and_ends_when_all_is_reached() -> None:
    reasons, clock = {"shard": "not begun", "nats": ""}, HandClock()
    reach = Reach([lambda: reasons["shard"], lambda: reasons["nats"]], clock.steady)
    assert 0 < reach.cut_s() < 1
    clock.pass_time(4)
    reasons.update(shard="", nats="no server")
    assert reach.cut_s() == 4
    assert reach.reason == "no server"
    reasons["nats"] = ""
    assert reach.cut_s() == 0
    assert not reach.reason
    clock.pass_time(9)
    reasons["shard"] = "connection refused"
    assert 0 < reach.cut_s() < 1
