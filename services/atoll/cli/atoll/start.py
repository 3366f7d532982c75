"""`atoll start` and `atoll shard`: read the settings and serve until stopped.

Called by `main`; `standalone` and `shard` do the work. Invariant: an error before serving ends the process with
one line on standard error and exit code 1, and changes no existing data.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from typing import Any

from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.machinery.client.target import KubeconfigError
from atoll.machinery.process import config as settings
from atoll.machinery.storage.contract import StoreFull
from atoll.machinery.storage.sealing import KeyFileInvalid
from atoll.machinery.stream.connection import TooOld
from atoll.machinery.stream.server.embedded import ServerFailed
from atoll.shard.config import ShardConfig
from atoll.shard.membership.root_shard import RootShardChanged
from atoll.shard.service_account_keys import KeyRefused
from atoll.standalone import runner as alone
from atoll.standalone.site import runner as site
from atoll.standalone.site.layout import SiteError
from atoll.standalone.site.processes import StartConfig
from atoll.standalone.site.supervisor import ProcessStartFailure
from atoll.standalone.worker_pool import WorkerStartFailure

_REFUSALS = (
    KeyFileInvalid,
    KeyRefused,
    StoreFull,
    WorkerStartFailure,
    KubeconfigError,
    RootShardChanged,
    SiteError,
    ProcessStartFailure,
    ServerFailed,
    TooOld,
)


def start(arguments: Sequence[str]) -> int:
    """Run one shard with its own NATS server; with `--shards` a site."""
    try:
        config, only_print = settings.load(StartConfig, arguments, os.environ, "atoll start")
        site.check(config)
    except (settings.ConfigError, SiteError) as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return _serve(
        config, site.start(config) if config.shards else alone.start(config.shard, edge=config.edge_processes)
    )


def shard(arguments: Sequence[str]) -> int:
    """Run one shard of a site."""
    try:
        config, only_print = settings.load(ShardConfig, arguments, os.environ, "atoll shard")
        config.check_in_site()
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    return runner.print_settings(config) if only_print else _serve(config, alone.start(config))


def _serve(config: ShardConfig, work: Coroutine[Any, Any, None]) -> int:
    return runner.run(work, config, _REFUSALS)
