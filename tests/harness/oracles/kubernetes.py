"""Kubernetes' own code as an oracle: JSON cases in, JSON answers out (tests/go/cmd/oracle).

Oracle().ask([{"op": "strategic", ...}, ...])     one answer a case, in order
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec

from harness.clients.go_programs import program

TIMEOUT_S = 300.0


class Oracle:
    """The built oracle; each `ask` is its own process without state."""

    def __init__(self) -> None:
        self._program = program("oracle")

    def ask(self, cases: Sequence[dict[str, Any]]) -> list[Any]:
        """The answers to the cases. Fails if the oracle cannot answer a case."""
        lines = b"".join(msgspec.json.encode(case) + b"\n" for case in cases)
        done = subprocess.run([str(self._program)], input=lines, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr[-4000:].decode(errors="replace")
        answers = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(cases), done.stderr[-4000:].decode(errors="replace")
        return answers
