"""Seeds of random trials: another one each day, and the one of a failure where it is run again.

`TEST_SEED` forces one. A test prints its seed, or names it where it fails.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

SEED_VARIABLE = "TEST_SEED"


def seed_of_today() -> int:
    """`TEST_SEED` where it is set, else the number of the day in UTC, as 20260131."""
    return int(os.environ.get(SEED_VARIABLE) or f"{datetime.now(UTC):%Y%m%d}")
