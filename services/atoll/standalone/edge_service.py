"""The edge service of `atoll start --edge`: `atoll edge-init` until it succeeds, then `atoll edge-controllers`.

A single shard and a site run them beside their other processes and after them; several processes of the controllers
share the work. All are loaded while the servers start. Invariants: a second start changes nothing, as `edge-init`
writes what differs alone; the controllers have no administrator's credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.tasks import stop
from atoll.shard.config import ShardConfig
from atoll.standalone.site.child_process import HeldProcess, run_to_end
from atoll.standalone.site.processes import ProcessSpec
from atoll.standalone.site.supervisor import ProcessSupervisor

log = structlog.get_logger()

#: The administrator's context in admin.kubeconfig, whatever the current one is.
CONTEXT = "root"
INIT, CONTROLLERS = "edge-init", "edge-controllers"
BACKOFF = Backoff(0.2, 30.0, least=1.0)


class EdgeFiles(NamedTuple):
    """What the service needs: the administrator's kubeconfig, its own directory, and access to NATS once that runs; a
    credential for each process of the controllers."""

    kubeconfig: Path
    directory: Path
    nats_url: Callable[[], Awaitable[str]]
    nats_credentials: tuple[Path, ...]
    settings: tuple[str, ...]


def edge_users(processes: int) -> tuple[str, ...]:
    """The NATS users of the controllers, one for each process."""
    return tuple(f"edge-{number}" for number in range(processes))


def passed_on(config: ShardConfig, serving: tuple[Path, Path], client_ca: str = "") -> tuple[str, ...]:
    """The flags of the controllers that are settings of the shards too, and the files of their serving certificate. The
    CA of clients who may read metrics is the site's, else the first of the shard."""
    certificate, key = serving
    flags = {
        "tls-cert-file": str(certificate),
        "tls-private-key-file": str(key),
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
    return ProcessSpec(INIT, (INIT, *arguments), "")


def controllers_process(files: EdgeFiles, nats_url: str, number: int = 0) -> ProcessSpec:
    """One process of the controllers."""
    flags = {
        "kubeconfig": _own_kubeconfig(files),
        "directory": files.directory / str(number) if number else files.directory,
        "nats-url": nats_url,
        "nats-credentials-file": files.nats_credentials[number],
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    if len(files.nats_credentials) > 1:
        arguments.append("--shared=true")
    name = f"{CONTROLLERS}-{number}" if number else CONTROLLERS
    return ProcessSpec(name, (CONTROLLERS, *arguments, *files.settings), "")


def _own_kubeconfig(files: EdgeFiles) -> Path:
    return files.directory / "kubeconfig"


class EdgeService:
    """The running service, with a number of processes of the controllers. `stop` it before the servers that it uses."""

    def __init__(self, processes: int = 1) -> None:
        self._init, self._held = HeldProcess(INIT), [HeldProcess(CONTROLLERS) for _ in range(processes)]
        self.processes = processes
        self._controllers: list[ProcessSupervisor] = []
        self._tasks: list[asyncio.Task[None]] = []

    def load(self) -> None:
        """Start the processes in the background; they wait for `start`."""
        self._tasks += [asyncio.create_task(each.load()) for each in (self._init, *self._held)]

    def start(self, files: EdgeFiles) -> None:
        """Start in the background, once the server is ready. Nothing waits for it."""
        self._tasks.append(asyncio.create_task(self._run(files, tuple(self._tasks))))

    async def _run(self, files: EdgeFiles, loading: Sequence[asyncio.Task[None]]) -> None:
        await asyncio.gather(*loading)
        files.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failures = 0
        while code := await run_to_end(init_process(files), self._init):
            delay_s = BACKOFF.delay_s(failures)
            log.error("edge service not written", code=code, again_s=delay_s)
            await asyncio.sleep(delay_s)
            failures += 1
        # It was written, so the controllers can start: they are started again however often they end.
        url = await files.nats_url()
        for number, held in enumerate(self._held):
            supervisor = ProcessSupervisor(controllers_process(files, url, number), held)
            self._controllers.append(supervisor)
            supervisor.mark_ready()
            supervisor.start()

    async def stop(self) -> None:
        """Stop all processes; return when they are gone. Harmless when repeated."""
        for each in self._tasks:
            await stop(each)
        await asyncio.gather(*(each.stop() for each in self._controllers))
        await asyncio.gather(*(each.end() for each in (self._init, *self._held)))
