"""Exponential back-off: doubling, the cap, and the jitter."""

import random

import pytest

from atoll.machinery.process.backoff import Backoff

EXACT = Backoff(0.1, 5.0, least=1.0)


def test_a_delay_doubles_with_each_failure() -> None:
    assert [EXACT.delay_s(failures) for failures in range(4)] == pytest.approx([0.1, 0.2, 0.4, 0.8])


@pytest.mark.parametrize("failures", [6, 100, 10_000_000])
def test_a_delay_never_exceeds_the_longest(failures: int) -> None:
    assert EXACT.delay_s(failures) == 5.0


def test_a_first_delay_above_the_longest_is_cut() -> None:
    assert Backoff(3.0, 1.0, least=1.0).delay_s(0) == 1.0


def test_jitter_stays_within_its_factors_and_uses_them() -> None:
    random.seed(1)
    jittered = Backoff(1.0, 8.0, least=0.75, most=1.25)
    delays = [jittered.delay_s(1) for _ in range(500)]
    assert 1.5 <= min(delays) < 1.6
    assert 2.4 < max(delays) <= 2.5


def test_by_default_half_the_delay_is_random() -> None:
    random.seed(1)
    delays = [Backoff(1.0, 8.0).delay_s(0) for _ in range(500)]
    assert 0.5 <= min(delays) < 0.55
    assert 0.95 < max(delays) <= 1.0
