"""`atoll cache-server`: reads the settings and serves until stopped.

Called by `main`; `cacheserver.process` does the work. Invariant: an error that prevents serving ends the process with
one line on standard error and exit code 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atoll.cacheserver.config import CacheServerConfig
from atoll.cacheserver.process import serve
from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.machinery.process import config as settings


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    try:
        config, only_print = settings.load(CacheServerConfig, arguments, os.environ, "atoll cache-server")
        if not only_print:
            config.check_complete()
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return runner.run(serve(config), config)
