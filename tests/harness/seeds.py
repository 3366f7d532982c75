"""Seeds of random trials, and that of a failure for its replay.

The default run draws the same each time, and a tenth of all generated examples: what it finds is of the last change.
The long tier draws all of them anew, and a new seed for each day and trial, so that its runs add up. Each seed is
printed, so that a failure shows it; `TEST_SEED` forces it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

SEED_VARIABLE = "TEST_SEED"
_PART, _LEAST = 10, 10
_drawn = {"part": _PART}


def seed_of_run(trial: int) -> int:
    """`TEST_SEED` if it is set, else the number of the trial; in the long tier after the day in UTC, as 20260131041."""
    day = f"{datetime.now(UTC):%Y%m%d}" if _drawn["part"] == 1 else ""
    seed = int(os.environ.get(SEED_VARIABLE) or f"{day}{trial:03}")
    print(f"{SEED_VARIABLE}={seed}")
    return seed


def replay_command(seed: int, test: str) -> str:
    """The command that repeats a test with the seed of a failure."""
    return f"{SEED_VARIABLE}={seed} bash tests/run -m 'long or not long' {test}"


def draw_all() -> None:
    """Let `drawn` return all. Called before tests are collected."""
    _drawn["part"] = 1


def drawn(examples: int) -> int:
    """How many of so many examples this run draws."""
    return max(examples // _drawn["part"], min(examples, _LEAST))
