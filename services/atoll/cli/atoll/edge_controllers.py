"""`atoll edge-controllers`: reads the settings and runs the controllers until stopped.

Called by `main`; `edge.process` does the work. Invariant: an error that prevents the start ends the process with one
line on standard error and exit code 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.edge import process
from atoll.edge.config import EdgeControllersConfig
from atoll.machinery.client.kubeconfig import KubeconfigError
from atoll.machinery.process import config as settings


def run(arguments: Sequence[str]) -> int:
    """Run the controllers. Return the exit code."""
    try:
        config, only_print = settings.load(EdgeControllersConfig, arguments, os.environ, "atoll edge-controllers")
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return runner.run(process.start(config), config, (KubeconfigError,))
