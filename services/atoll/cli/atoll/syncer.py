"""`atoll syncer`: reads the settings and runs a syncer until stopped.

Called by `main`; `syncer.process` does the work. Nothing of a server is imported, so that it is small at the edge.
Invariant: an error that prevents the start ends the process with one line on standard error and exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import uvloop

from atoll.cli.atoll.output import fail
from atoll.machinery.client.target import KubeconfigError
from atoll.machinery.process import config as settings
from atoll.machinery.process import logging
from atoll.machinery.process.lifetime import BackgroundWorkFailed
from atoll.syncer import process
from atoll.syncer.config import SyncerConfig

_DEBUG = 4


def run(arguments: Sequence[str]) -> int:
    """Run the syncer. Return the exit code."""
    # Its manifests come from elsewhere too, where the verbosity is -v.
    given = [f"-{each}" if each == "-v" or each.startswith("-v=") else each for each in arguments]
    try:
        config, only_print = settings.load(SyncerConfig, given, os.environ, "atoll syncer")
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        sys.stdout.write(settings.printed(config))
        return 0
    logging.configure("debug" if config.v >= _DEBUG else config.log_level, config.log_format)
    try:
        uvloop.run(process.start(config))
    except (KubeconfigError, BackgroundWorkFailed, OSError) as error:
        return fail(str(error))
    return 0
