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


def test_operations_take_as_many_calls_as_the_table_says() -> None:
    command = [sys.executable, "-m", "loadtest.calls"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found, written = parse(ran.stdout), recorded()
    assert found.pop("publish") == pytest.approx(written.pop("publish"), rel=_TOLERANCE_OF_PUBLISHING)
    assert found == pytest.approx(written, rel=_TOLERANCE), "python -m loadtest.calls --write"
