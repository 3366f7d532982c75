"""Results of scenarios, as a table beside the budgets and as JSON.

Scenarios make `Row`s, the runner hands them here. Invariant: a row says its unit and whether less or more is
better, so that a ratio above 1 always means that the budget is kept.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from loadtest.calibration import Calibration

#: By unit: times, which are given in Python calls too.
_MICROSECONDS = {"us": 1.0, "ms": 1000.0}


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value. `budget` 0: none, it is for comparison. `more` is better where set."""

    what: str
    reached: float
    unit: str
    budget: float = 0
    more: bool = False
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times the budget is kept (above 1) or missed (below 1); 0 without a budget."""
        if not self.budget or not self.reached:
            return 0.0
        return self.reached / self.budget if self.more else self.budget / self.reached


class Section(msgspec.Struct, frozen=True):
    """The rows of one scenario; `failed` says why there are none."""

    scenario: str
    question: str
    seconds: float
    rows: list[Row]
    failed: str = ""


def table(sections: Sequence[Section], call_us: float = 0.0) -> str:
    """All sections as aligned text. A time is given as so many Python calls too, of `call_us` each."""
    lines = [("what", "reached", "in calls", "budget", "ratio", "")]
    for section in sections:
        lines.extend(_cells(row, call_us) for row in section.rows)
        if section.failed:
            lines.append((f"{section.scenario} failed", "", "", "", "", section.failed))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join(_aligned(line, widths) for line in lines)


def _cells(row: Row, call_us: float) -> tuple[str, str, str, str, str, str]:
    budget = f"{number(row.budget)} {row.unit}" if row.budget else "-"
    ratio = f"{row.ratio:.2f}" if row.ratio else "-"
    scale = _MICROSECONDS.get(row.unit, 0.0)
    calls = number(row.reached * scale / call_us) if scale and call_us else "-"
    return row.what, f"{number(row.reached)} {row.unit}", calls, budget, ratio, row.note


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    what, *numbers = line[:5]
    cells = [what.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]
    return f"{'  '.join(cells)}  {line[5]}".rstrip()


def number(value: float) -> str:
    """A value with three digits or so."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def machine() -> dict[str, Any]:
    """What and when it ran on."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def write(path: Path, sections: Sequence[Section], *, size: str, calibration: Calibration | None = None) -> None:
    """The same as JSON, with what it ran on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"size": size, "machine": machine(), "calibration": calibration, "scenarios": sections}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
