"""What starting a server imports: its idle memory is mostly that."""

from __future__ import annotations

import subprocess
import sys

from harness.environment import python_environment

#: Of archives of backups, of other commands, and of answers to subscribers.
NOT_NEEDED = {"tarfile", "statistics", "nacl", "cffi"}
_PROGRAM = """
import base64, sys
from atoll.cli.atoll.main import loaded
from atoll.machinery.stream.tenants.claims import Box
loaded("start")
Box(base64.b64encode(bytes(32)).decode())
print(*sys.modules)
"""


def test_a_server_imports_no_module_that_only_rarer_work_needs() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=True, timeout=60)
    imported = set(done.stdout.split())

    assert {"structlog", "lmdb", "cryptography"} <= imported
    assert not NOT_NEEDED & imported
