"""Start and end of every serving command: prints the settings, or runs until stopped.

Every serving command calls this with loaded settings. Invariant: every error that prevents serving
ends the process with one line on standard error and exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import uvloop

from atoll.cli.atoll.output import fail
from atoll.machinery.kcp.sharding.forgotten_stores import StoreForgotten
from atoll.machinery.process import config as settings
from atoll.machinery.process import logging, open_files
from atoll.machinery.process.config import ProcessConfig
from atoll.machinery.process.lifetime import BackgroundWorkFailed
from atoll.machinery.process.private_files import InvalidCredentials, PkiError
from atoll.machinery.storage.environment.filesystem import StoreInUse, UnsupportedFileSystem
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.stream.event_keys import InvalidKeysFile

C = TypeVar("C", bound=ProcessConfig)
#: Expected errors of any process with a store, credential files and a listener.
REFUSALS: tuple[type[Exception], ...] = (
    StoreInUse,
    UnsupportedFileSystem,
    UnknownFormat,
    WrongShard,
    InvalidCredentials,
    InvalidCredentialFile,
    InvalidKeysFile,
    PkiError,
    BackgroundWorkFailed,
    StoreForgotten,
    OSError,
)


def serve(
    kind: type[C],
    arguments: Sequence[str],
    program: str,
    start: Callable[[C], Coroutine[Any, Any, None]],
    more: tuple[type[Exception], ...] = (),
) -> int:
    """Read the settings of a program, and print them or run it. Return the exit code; `more`: see `run`."""
    try:
        config, only_print = settings.load(kind, arguments, os.environ, program)
        if not only_print:
            config.check_complete()
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        return print_settings(config)
    return run(start(config), config, more)


def print_settings(config: msgspec.Struct) -> int:
    """Print settings as a file that `--config` reads. Return the exit code."""
    sys.stdout.write(settings.printed(config))
    return 0


def run(work: Coroutine[Any, Any, None], config: ProcessConfig, more: tuple[type[Exception], ...] = ()) -> int:
    """Run the process. Return the exit code. `more` are further expected errors of this command."""
    logging.configure(config.log_level, config.log_format)
    open_files.take_all()
    try:
        uvloop.run(work)
    except (*REFUSALS, *more) as error:
        return fail(str(error))
    return 0
