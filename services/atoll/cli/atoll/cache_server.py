"""`atoll cache-server`: reads the settings and serves until stopped.

Called by `main`; `cacheserver.process` does the work. Invariant: an error that prevents serving ends the process with
one line on standard error and exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.cacheserver.config import CacheServerConfig
from atoll.cacheserver.process import serve
from atoll.cli.atoll import runner


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    return runner.serve(CacheServerConfig, arguments, "atoll cache-server", serve)
