"""Programs in JavaScript, with the packages of tests/node, installed on first use, once for all workers of a run.

A machine without Node.js skips what needs it. Packages come from npm's registry, pinned by package-lock.json.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from harness.clients.go_programs import cache_folder
from harness.environment import TESTS

MODULE = TESTS / "node"
INSTALL_TIMEOUT_S = 240.0


@cache
def packages() -> Path:
    """A folder with the packages. Skips without Node.js."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not installed: no JavaScript client was run")
    lock = (MODULE / "package-lock.json").read_bytes()
    folder = cache_folder() / f"node-{hashlib.sha256(lock).hexdigest()[:16]}"
    with folder.with_suffix(".lock").open("w") as taken:
        # The first worker installs; the others wait and find it done.
        fcntl.flock(taken, fcntl.LOCK_EX)
        if (folder / "done").exists():
            return folder
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(MODULE / name, folder / name)
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        (folder / "done").touch()
    return folder
