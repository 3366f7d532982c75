"""`atoll front-proxy`: reads the settings and serves until stopped.

Called by `main`; `frontproxy` does the work. Invariant: an error that prevents serving ends the process with one line
on standard error and exit code 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.frontproxy import process
from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.mapping import MappingError
from atoll.machinery.process import config as settings


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    try:
        config, only_print = settings.load(FrontProxyConfig, arguments, os.environ, "atoll front-proxy")
    except settings.ConfigError as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return runner.run(process.start(config), config, (MappingError,))
