"""`atoll`: start a control plane, check a machine, look after a store.

Each command is a function of its arguments that gives an exit code; imports are local, so that `atoll --help` is
quick and a plug-in does not load the server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

USAGE = """usage: atoll COMMAND [options]

  start     run a shard with an embedded NATS server
  doctor    check disk, clock, versions and permissions
  fsck      check a store against itself
  rotate    add a sealing key and re-seal what is stored
  version   print the version

Each command explains itself: atoll COMMAND --help
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; gives its exit code."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "start": start, "doctor": doctor, "fsck": fsck, "rotate": rotate, "version": version,
    }  # fmt: skip
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    command = commands.get(arguments[0])
    if command is None:
        sys.stderr.write(f"atoll: unknown command {arguments[0]!r}\n\n{USAGE}")
        return 2
    return command(arguments[1:])


def start(arguments: Sequence[str]) -> int:
    """`atoll start`."""
    from atoll.machinery.process import config as settings
    from atoll.machinery.process import logging
    from atoll.shard.config import ShardConfig, UnknownGate, feature_gates

    try:
        config, only_print = settings.load(ShardConfig, arguments, os.environ, "atoll start")
        feature_gates(config.feature_gates)
    except (settings.ConfigError, UnknownGate) as error:
        return refused(str(error))
    if only_print:
        sys.stdout.write(settings.printed(config))
        return 0
    logging.configure(config.log_level)
    return _serve(config)


def _serve(config: object) -> int:
    import uvloop

    from atoll.machinery.storage.environment import UnknownFormat, WrongShard
    from atoll.machinery.storage.files import FileSystemRefused, StoreInUse
    from atoll.machinery.storage.sealing import KeyFileRefused
    from atoll.shard.config import ShardConfig
    from atoll.shard.identity import CredentialsRefused
    from atoll.standalone.start import start as serve
    from atoll.standalone.workers import WorkerFailed

    assert isinstance(config, ShardConfig)
    refusals = (
        StoreInUse, FileSystemRefused, UnknownFormat, WrongShard, KeyFileRefused, CredentialsRefused, WorkerFailed,
        OSError,
    )  # fmt: skip
    try:
        uvloop.run(serve(config))
    except refusals as error:
        return refused(str(error))
    return 0


def doctor(arguments: Sequence[str]) -> int:
    """`atoll doctor`."""
    from atoll.cli import doctor as command

    return command.run(arguments)


def fsck(arguments: Sequence[str]) -> int:
    """`atoll fsck`."""
    from atoll.cli import store

    return store.fsck(arguments)


def rotate(arguments: Sequence[str]) -> int:
    """`atoll rotate`."""
    from atoll.cli import store

    return store.rotate(arguments)


def version(arguments: Sequence[str]) -> int:
    """`atoll version`."""
    from importlib import metadata

    sys.stdout.write(f"atoll {metadata.version('atoll')}\n")
    return 0


def refused(text: str) -> int:
    """Tell what went wrong; gives the exit code."""
    sys.stderr.write(f"atoll: {text}\n")
    return 1
