"""The version before this one, for which a fixed earlier commit stands: its code, and processes that run it.

    services = unpacked(tmp_path)            # skips the test where the clone does not have the commit
    run_by(services, site.root); site.root.restart()
    run_by(None, site.root); site.root.restart()     # the version of this tree

Its dependencies are those of this tree: the commit names the same versions.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest

from harness.environment import ABSENT, ROOT

COMMIT = "0d9070ab82dba2ace1a561d894fd2623c398408f"
#: Settings that came after it. Who upgrades a site keeps those that it had.
_LATER = ("--client-crl-file",)


class Startable(Protocol):
    """A process that can be given an environment (`harness.servers.site`, `harness.servers.cache_server_process`)."""

    environment: dict[str, str]


def unpacked(directory: Path) -> Path:
    """The directory of its services, in a new directory."""
    archive = subprocess.run(
        ["git", "archive", COMMIT, "services", "schemas"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"this clone does not have commit {COMMIT[:8]}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory / "services"


def settings_of_earlier(command: Sequence[str]) -> list[str]:
    """A command line without the settings that the earlier version does not have."""
    return [each for each in command if each.partition("=")[0] not in _LATER]


def environment_of(services: Path) -> dict[str, str]:
    """The variables by which Python runs the code of a directory, compiled once."""
    cache = {"PYTHONPYCACHEPREFIX": str(services.parent / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    return {"PYTHONPATH": f"{ABSENT}:{services}", **cache}


def run_by(services: Path | None, *processes: Startable) -> None:
    """Let processes run this code from their next start on; None: that of this tree."""
    for process in processes:
        process.environment = environment_of(services) if services is not None else {}
