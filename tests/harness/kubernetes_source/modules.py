"""Sources of Go modules, downloaded and verified by Go."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

from harness.clients.go_programs import MODULE, find_go

DOWNLOAD_TIMEOUT_S = 600.0


class NoSource(Exception):
    """Go is not installed, or its module proxy has no answer."""


@cache
def source_of(module: str, pins: str = "conformance") -> Path:
    """The folder with a module's source, in the version that a go.mod of tests/go pins. Raises NoSource."""
    command = find_go()
    if command is None:
        raise NoSource("Go is not installed, so the source of Kubernetes cannot be read")
    done = subprocess.run(
        [command, "mod", "download", "-json", module],
        cwd=MODULE / pins,
        env={"HOME": str(Path.home()), **os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if "Dir" not in found:
        raise NoSource(f"{module} cannot be downloaded: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])


def version_of(source: Path) -> str:
    """The version in the name of a module's folder, such as 1.36.3."""
    return source.name.rpartition("@v")[2]
