"""Two checkouts in short turns, tiny: both are asked in each turn, and what each takes is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from loadtest.turns import OPERATIONS, compare

from harness.environment import ROOT


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
async def test_two_servers_are_measured_in_turns(tmp_path: Path, name: str) -> None:
    found = await compare(ROOT, OPERATIONS[name], tmp_path, 2, requests=32)
    assert len(found.before) == len(found.after) == 2
    # A request takes some tenths of a millisecond: nanoseconds of another process's clock are read as such.
    assert all(20 < spent_us < 100_000 for spent_us in (*found.before, *found.after))
