"""Comparisons of two checkouts: which way is better, the spread of the rounds, and the measured part of the results."""

from __future__ import annotations

from pathlib import Path

import pytest
from loadtest import results
from loadtest.against import compared, table
from loadtest.calibration import Calibration, calibrate
from loadtest.report import Row

CALIBRATION = Calibration(python_call=0.1, json=1.0, tls_record=2.0, fsync=300.0, sha256=1.0)


def rows(rate: float, cpu_us: float) -> dict[str, Row]:
    return {"rate": Row("rate", rate, "/s", more=True), "rate: CPU": Row("  CPU", cpu_us, "us")}


def test_twice_the_rate_and_half_the_time_are_both_twice_as_good() -> None:
    found = compared([(rows(100, 50), rows(200, 25)), (rows(100, 50), rows(300, 25)), (rows(100, 50), rows(100, 25))])
    assert [(each.row.what, each.ratio, each.ratios) for each in found] == [
        ("rate", 2.0, [2.0, 3.0, 1.0]),
        ("rate: CPU", 2.0, [2.0, 2.0, 2.0]),
    ]
    assert table(found).splitlines()[2:] == [
        "| rate | 100 /s | 200 /s | 2.00 | 1.00-3.00 |",
        "| rate: CPU | 50 us | 25 us | 2.00 | 2.00-2.00 |",
    ]


def test_a_row_that_one_checkout_lacks_is_left_out() -> None:
    old = rows(100, 50)
    del old["rate: CPU"]
    assert [each.row.what for each in compared([(old, rows(100, 50))])] == ["rate"]


def test_results_replace_what_is_measured_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text("before\n<!-- measured -->\nold\n<!-- end of what is measured -->\nafter\n")
    results.write("| new |", CALIBRATION, "loadtest/run", file)
    text = file.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| new |" in text and "a Python call 0.100 us" in text and "`loadtest/run`" in text


def test_results_without_marks_are_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text("mine\n")
    with pytest.raises(ValueError, match="has no"):
        results.write("| new |", CALIBRATION, "loadtest/run", file)
    assert file.read_text() == "mine\n"


def test_this_machine_can_be_measured() -> None:
    found = calibrate()
    assert min(found.python_call, found.json, found.tls_record, found.fsync, found.sha256) > 0
