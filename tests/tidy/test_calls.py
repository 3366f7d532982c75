"""The table of Python calls an operation is that of this tree."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from loadtest.calls import parse, recorded

_TOLERANCE = 0.02
#: How much of the stream's end is read, and checked, when a publisher starts depends on its windows.
_TOLERANCE_OF_PUBLISHING = 0.05


#: Once in a while something else happens meanwhile, and is counted; what an operation takes is the same each time.
_ATTEMPTS = 3


def counted() -> dict[str, float]:
    """The calls of each operation, counted in a process of its own."""
    command = [sys.executable, "-m", "loadtest.calls"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return parse(ran.stdout)


def is_close(found: dict[str, float], written: dict[str, float]) -> bool:
    tolerances = {name: _TOLERANCE_OF_PUBLISHING if name == "publish" else _TOLERANCE for name in written}
    return found.keys() == written.keys() and all(
        found[name] == pytest.approx(written[name], rel=tolerance) for name, tolerance in tolerances.items()
    )


@pytest.mark.timeout(900)
def test_operations_take_as_many_calls_as_the_table_says() -> None:
    found, written = counted(), recorded()
    for _ in range(_ATTEMPTS - 1):
        if not is_close(found, written):
            found = counted()
    assert is_close(found, written), f"{found}: python -m loadtest.calls --write"
