"""How every command that serves begins and ends: settings printed, or work run until it is told to leave.

`serving`, `front_proxy` and `cacheserver` call this with settings that were read. Invariant: whatever keeps a process
from serving ends it with one line on standard error and exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

import msgspec
import uvloop

from atoll.cli.atoll.output import fail
from atoll.machinery.apiserver.authentication.dynamic_client_ca import InvalidCredentials
from atoll.machinery.process import config as settings
from atoll.machinery.process import logging
from atoll.machinery.process.config import ProcessConfig
from atoll.machinery.process.lifetime import BackgroundWorkFailed
from atoll.machinery.process.pki import PkiError
from atoll.machinery.storage.environment.filesystem import StoreInUse, UnsupportedFileSystem
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.stream.credential_file import InvalidCredentialFile

#: What any process with a store, files of credentials and a listener may be refused for, or end by.
REFUSALS: tuple[type[Exception], ...] = (
    StoreInUse,
    UnsupportedFileSystem,
    UnknownFormat,
    WrongShard,
    InvalidCredentials,
    InvalidCredentialFile,
    PkiError,
    BackgroundWorkFailed,
    OSError,
)


def print_settings(config: msgspec.Struct) -> int:
    """Print settings as a file that `--config` reads; gives the exit code."""
    sys.stdout.write(settings.printed(config))
    return 0


def run(work: Coroutine[Any, Any, None], config: ProcessConfig, more: tuple[type[Exception], ...] = ()) -> int:
    """Run it; gives the exit code. `more` are refusals of this command's own."""
    logging.configure(config.log_level, config.log_format)
    try:
        uvloop.run(work)
    except (*REFUSALS, *more) as error:
        return fail(str(error))
    return 0
