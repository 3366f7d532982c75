"""Error output of the program `atoll`: one line on standard error."""

from __future__ import annotations

import sys


def fail(text: str) -> int:
    """Print why a command failed. Return exit code 1."""
    sys.stderr.write(f"atoll: {text}\n")
    return 1
