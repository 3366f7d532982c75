"""`atoll event-gateway`: reads the settings and serves until stopped.

Called by `main`; `eventgateway.process` does the work. Invariant: an error that prevents serving ends the process with
one line on standard error and exit code 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.eventgateway.config import EventGatewayConfig
from atoll.eventgateway.process import start
from atoll.machinery.process import config as settings


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    try:
        config, only_print = settings.load(EventGatewayConfig, arguments, os.environ, "atoll event-gateway")
        if not only_print:
            config.check_complete()
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return runner.run(start(config), config)
