"""Revisions rise whatever the wall clock does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.storage.clock import MAX_STEP_S, Clock, HybridClock
from harness.data.stores import START_S, HandClock

START_US = int(START_S * 1_000_000)


def test_a_revision_is_the_time_in_microseconds() -> None:
    time = HandClock()
    revisions = HybridClock(time.clock(), 0)
    revisions.sync()
    assert revisions.next() == START_US
    assert revisions.next() == START_US + 1
    time.pass_time(2)
    revisions.sync()
    assert revisions.next() == START_US + 2_000_000


def test_a_clock_behind_its_own_log_counts_by_one_and_says_by_how_much() -> None:
    revisions = HybridClock(HandClock().clock(), START_US + 5_000_000)
    revisions.sync()
    assert revisions.behind_us == 5_000_000
    assert [revisions.next(), revisions.next()] == [START_US + 5_000_001, START_US + 5_000_002]


def test_a_small_step_of_the_wall_clock_is_followed() -> None:
    time = HandClock()
    clock = time.clock()
    time.wall_s += MAX_STEP_S
    assert clock.now_us() == START_US + int(MAX_STEP_S * 1_000_000)
    assert clock.refused_step_s == 0


def test_a_large_step_is_refused_and_alarmed_once_until_a_restart() -> None:
    alarms: list[Any] = []
    time = HandClock()
    clock = Clock(time.wall, time.steady, alarms.append)
    for step_s in (3600.0, -3600.0, 10 * 365 * 86400.0):
        alarms.clear()
        time.wall_s += step_s
        time.pass_time(10)
        before = clock.now_us()
        time.pass_time(10)
        assert clock.now_us() == before + 10_000_000
        assert alarms == [step_s]
        assert clock.refused_step_s == step_s
        clock = Clock(time.wall, time.steady, alarms.append)
        assert clock.now_us() == int(time.wall_s * 1_000_000)
        assert clock.refused_step_s == 0


def test_a_wall_clock_that_comes_back_is_believed_again() -> None:
    time = HandClock()
    clock = time.clock()
    time.wall_s += 3600
    clock.now_us()
    time.wall_s -= 3600
    assert clock.now_us() == START_US
    assert clock.refused_step_s == 0


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1000), st.integers(1, 5)), max_size=20))
def test_revisions_rise_under_any_wall_clock(moves: list[tuple[float, float, int]]) -> None:
    time = HandClock()
    revisions = HybridClock(time.clock(), 0)
    given_out = []
    for wall_s, steady_s, count in moves:
        time.wall_s += wall_s
        time.steady_s += steady_s
        revisions.sync()
        given_out += [revisions.next() for _ in range(count)]
    assert given_out == sorted(set(given_out))
