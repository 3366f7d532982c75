"""The Go programs of the tests are formatted as Go formats them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.clients.go_programs import MODULE, go


def test_gofmt_finds_nothing() -> None:
    gofmt = Path(go()).resolve().with_name("gofmt")
    found = subprocess.run([str(gofmt), "-l", str(MODULE)], capture_output=True, text=True, check=True)
    assert found.stdout == ""
