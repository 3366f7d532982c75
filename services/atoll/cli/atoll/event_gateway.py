"""`atoll event-gateway`: reads the settings and serves until stopped.

Called by `main`; `eventgateway.process` does the work. Invariant: an error that prevents serving ends the process with
one line on standard error and exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.eventgateway.config import EventGatewayConfig
from atoll.eventgateway.process import start


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    return runner.serve(EventGatewayConfig, arguments, "atoll event-gateway", start)
