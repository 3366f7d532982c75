"""Two checkouts on one machine, in turn: the ratios of what they reach, with their spread.

    python -m loadtest --against DIR [--rounds N] [scenario ...]

Each round measures both, each in processes of its own, the second round in the other order, and so on: what else runs
on the machine meets both alike. Load and scenarios are this checkout's; the servers run the code of each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadtest.report import Row, Section, number

#: Scenarios that are compared unless others are named.
CHOSEN = ("get", "create", "patch", "apply", "list", "watch", "workspace", "frontproxy")
ROUNDS = 3
_HERE = Path(__file__).parents[1]


class _Results(msgspec.Struct):
    scenarios: list[Section]


class Compared(msgspec.Struct, frozen=True):
    """One row of both checkouts: medians, and how many times better this one is in each round."""

    row: Row
    before: float
    after: float
    ratios: list[float]

    @property
    def ratio(self) -> float:
        """The median of the rounds; above 1 this checkout is better."""
        return statistics.median(self.ratios)


def run(other: Path, chosen: Sequence[str], *, rounds: int, size: str) -> list[Compared]:
    """Measure both checkouts. Raises RuntimeError if a scenario fails in one of them."""
    found: list[tuple[dict[str, Row], dict[str, Row]]] = []
    for turn in range(rounds):
        order = [other, _HERE] if turn % 2 == 0 else [_HERE, other]
        rows = {checkout: _rows(checkout, chosen, size) for checkout in order}
        found.append((rows[other], rows[_HERE]))
        sys.stderr.write(f"round {turn + 1} of {rounds}\n{table(compared(found))}\n")
    return compared(found)


def _rows(checkout: Path, chosen: Sequence[str], size: str) -> dict[str, Row]:
    with tempfile.TemporaryDirectory(prefix="against-") as place:
        out = Path(place) / "rows.json"
        command = [sys.executable, "-m", "loadtest", "--size", size, "--out", str(out)]
        command += ["--services", str(checkout / "services"), *chosen]
        ended = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"{checkout}: {ended.stderr[-2000:]}")
        sections = msgspec.json.decode(out.read_bytes(), type=_Results).scenarios
    rows: dict[str, Row] = {}
    parent = ""
    for row in (row for section in sections for row in section.rows):
        # An indented row belongs to the one above it, and its name alone says too little.
        parent = parent if row.what.startswith(" ") else row.what
        rows[row.what if row.what == parent else f"{parent}: {row.what.strip()}"] = row
    return rows


def compared(rounds: Sequence[tuple[dict[str, Row], dict[str, Row]]]) -> list[Compared]:
    """Put the rounds of both checkouts together, in the order of the rows."""
    found = []
    for what, row in rounds[0][1].items():
        pairs = [(old[what].reached, new[what].reached) for old, new in rounds if what in old and what in new]
        if not pairs or not all(before and after for before, after in pairs):
            continue
        ratios = [after / before if row.more else before / after for before, after in pairs]
        before, after = (statistics.median(values) for values in zip(*pairs, strict=True))
        found.append(Compared(msgspec.structs.replace(row, what=what), before, after, ratios))
    return found


def table(rows: Sequence[Compared]) -> str:
    """The comparison as a Markdown table."""
    lines = ["| what | before | after | times better | of each round |", "|---|---|---|---|---|"]
    for each in rows:
        spread = f"{min(each.ratios):.2f}-{max(each.ratios):.2f}"
        unit = each.row.unit
        values = f"{number(each.before)} {unit} | {number(each.after)} {unit}"
        lines.append(f"| {each.row.what} | {values} | {each.ratio:.2f} | {spread} |")
    return "\n".join(lines)
