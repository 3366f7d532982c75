"""The environment of child processes: where Python finds the tree, and where it caches bytecode.

A child with an environment of its own still reuses the compiled modules of this run, and writes nothing into the
checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SERVICES = ROOT / "services"
#: What is installed for the tests alone, and how the servers of the tests find it: not.
ABSENT = TESTS / "harness/servers/absent"
SERVER_PATH = f"{ABSENT}:{SERVICES}"
_BYTECODE = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")


def bytecode_cache() -> dict[str, str]:
    """The variables that say where bytecode is cached, as this process has them."""
    return {name: os.environ[name] for name in _BYTECODE if name in os.environ}


def python_environment() -> dict[str, str]:
    """A minimal environment in which `atoll` and `harness` are importable."""
    return {"PYTHONPATH": f"{SERVER_PATH}:{TESTS}", **bytecode_cache()}
