"""The edge service of `atoll start --edge`: `atoll edge-init` until it succeeds, then `atoll edge-controllers`.

A single shard and a site run one each, beside their other processes and after them. Invariants: a second start changes
nothing, as `edge-init` writes what differs alone; the controllers have no administrator's credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.tasks import stop
from atoll.shard.config import ShardConfig
from atoll.standalone.site.processes import ProcessSpec
from atoll.standalone.site.supervisor import ProcessSupervisor, run_to_end

log = structlog.get_logger()

#: The NATS user of the controllers.
EDGE_USER = "edge-0"
#: The administrator's context in admin.kubeconfig, whatever the current one is.
CONTEXT = "root"
BACKOFF = Backoff(0.2, 30.0, least=1.0)


class EdgeFiles(NamedTuple):
    """What the service needs: the administrator's kubeconfig, its own directory, and access to NATS once that runs."""

    kubeconfig: Path
    directory: Path
    nats_url: Callable[[], Awaitable[str]]
    nats_credentials: Path
    settings: tuple[str, ...]


def passed_on(config: ShardConfig, client_ca: str = "") -> tuple[str, ...]:
    """The flags of the controllers that are settings of the shards too. The CA of clients who may read metrics is the
    site's, else the first of the shard."""
    flags = {
        "bind-address": config.bind_address,
        "log-level": config.log_level,
        "log-format": config.log_format,
        "allow-any-filesystem": str(config.allow_any_filesystem).lower(),
        "client-ca-file": client_ca or next(iter(config.client_ca_file), ""),
    }
    return tuple(f"--{name}={value}" for name, value in flags.items())


def init_process(files: EdgeFiles) -> ProcessSpec:
    """The process that writes the service."""
    arguments = ("--kubeconfig", str(files.kubeconfig), "--context", CONTEXT, "--output", str(_own_kubeconfig(files)))
    return ProcessSpec("edge-init", ("edge-init", *arguments), "")


def controllers_process(files: EdgeFiles, nats_url: str) -> ProcessSpec:
    """The process of the controllers."""
    flags = {
        "kubeconfig": _own_kubeconfig(files),
        "directory": files.directory,
        "nats-url": nats_url,
        "nats-credentials-file": files.nats_credentials,
    }
    arguments = (f"--{name}={value}" for name, value in flags.items())
    return ProcessSpec("edge-controllers", ("edge-controllers", *arguments, *files.settings), "")


def _own_kubeconfig(files: EdgeFiles) -> Path:
    return files.directory / "kubeconfig"


class EdgeService:
    """The running service. `start`, and `stop` before the servers that it uses."""

    def __init__(self, files: EdgeFiles) -> None:
        self._files = files
        self._controllers: ProcessSupervisor | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background. Nothing waits for it."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        self._files.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failures = 0
        while code := await run_to_end(init_process(self._files)):
            delay_s = BACKOFF.delay_s(failures)
            log.error("edge service not written", code=code, again_s=delay_s)
            await asyncio.sleep(delay_s)
            failures += 1
        # It was written, so the controllers can start: they are started again however often they end.
        self._controllers = ProcessSupervisor(controllers_process(self._files, await self._files.nats_url()))
        self._controllers.mark_ready()
        self._controllers.start()

    async def stop(self) -> None:
        """Stop both processes; return when they are gone."""
        if self._task is not None:
            await stop(self._task)
        if self._controllers is not None:
            await self._controllers.stop()
