"""`atoll front-proxy`: reads the settings and serves until stopped.

Called by `main`; `frontproxy` does the work. Invariant: an error that prevents serving ends the process with one line
on standard error and exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.frontproxy import process
from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.mapping import MappingError


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    return runner.serve(FrontProxyConfig, arguments, "atoll front-proxy", process.start, (MappingError,))
