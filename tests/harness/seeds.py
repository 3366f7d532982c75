"""Seeds of random trials: a new one for each day and trial, and that of a failure for its replay.

Each is printed, so that a failure shows it; `TEST_SEED` forces it. Generated examples are new in each run, so that runs
add up: the default run draws a fifth of them, the long tier all.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

SEED_VARIABLE = "TEST_SEED"
_PART, _LEAST = 5, 10
_drawn = {"part": _PART}


def seed_of_run(trial: int) -> int:
    """`TEST_SEED` if it is set, else the day in UTC followed by the number of the trial, as 20260131041."""
    seed = int(os.environ.get(SEED_VARIABLE) or f"{datetime.now(UTC):%Y%m%d}{trial:03}")
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
