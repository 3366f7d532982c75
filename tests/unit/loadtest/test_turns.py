"""The ratio of two checkouts over many short turns, with its error; CPU time of another process."""

from __future__ import annotations

import os
import time

import pytest
from loadtest.turns import Ratio, cpu_ns, line


def test_the_ratio_is_that_of_all_turns_together() -> None:
    assert Ratio([100.0, 500.0], [100.0, 200.0]).times == 2.0


def test_turns_that_agree_have_no_error_and_one_turn_has_none() -> None:
    assert Ratio([300.0, 600.0, 900.0], [100.0, 200.0, 300.0]).error == pytest.approx(0.0)
    assert Ratio([300.0], [100.0]).error == 0.0


def test_the_error_falls_with_the_root_of_the_number_of_turns() -> None:
    few, many = Ratio([1.0, 3.0] * 4, [1.0] * 8), Ratio([1.0, 3.0] * 64, [1.0] * 128)
    assert few.error == pytest.approx(0.378, abs=0.001)
    assert few.error / many.error == pytest.approx(4.0, rel=0.1)


def test_a_line_has_both_means_and_the_ratio_with_its_error() -> None:
    assert line("create", Ratio([600.0, 600.0], [400.0, 400.0])) == "| create, CPU | 600 us | 400 us | 1.50 ± 0.00 |"


def test_cpu_of_a_process_is_its_own() -> None:
    before_ns = time.process_time_ns()
    while time.process_time_ns() - before_ns < 1_000_000:
        pass
    assert cpu_ns(os.getpid()) == pytest.approx(time.process_time_ns(), abs=50_000_000)
    assert cpu_ns(os.getpid()) >= before_ns + 1_000_000
