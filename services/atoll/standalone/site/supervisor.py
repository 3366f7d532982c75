"""Supervision of the processes of a site: start, restart after an exit, stop.

`runner` has one supervisor for each process. A process that exits is started again after a delay that grows while it
exits soon after its start; `until_ready` raises if a process cannot start at all. Invariants: at most one instance of a
process runs; a process that is stopped is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import structlog

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.pending_response import ClientError
from atoll.standalone.site.child_process import HeldProcess, started
from atoll.standalone.site.processes import ProcessSpec

log = structlog.get_logger()

BACKOFF = Backoff(0.2, 10.0, least=1.0)
#: A process that ran for this long did start.
HEALTHY_S = 30.0
#: Exits of one process before it was ready that end the start of the site.
START_ATTEMPTS = 3
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05


class ProcessStartFailure(Exception):
    """A process does not start; its log has the reason."""


class ProcessSupervisor:
    """Supervises one process, from the first time on one that may be loaded already.

    `gave_up` is set if it exits `START_ATTEMPTS` times before it is ready.
    """

    def __init__(self, process: ProcessSpec, held: HeldProcess | None = None) -> None:
        self.process, self._held = process, held
        self.restarts = 0
        self.gave_up = asyncio.Event()
        self._was_ready = False
        self._child: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self._child.pid if self._child is not None and self._child.returncode is None else 0

    def start(self) -> None:
        """Start the process, and again after each exit, until `stop`."""
        self._task = asyncio.create_task(self._supervise())

    def mark_ready(self) -> None:
        """The process has been ready: from now on it is started again after every exit."""
        self._was_ready = True

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after `STOP_TIMEOUT_S`; return when the process is gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._child
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        if process.returncode is None:
            log.error("process killed after SIGTERM timeout", process=self.process.name, pid=process.pid)
            process.kill()
            await process.wait()

    async def _supervise(self) -> None:
        failures = 0
        while True:
            since = time.monotonic()
            code = await self._run_once()
            if not self._was_ready and self.restarts + 1 >= START_ATTEMPTS:
                self.gave_up.set()
                return
            failures = 0 if time.monotonic() - since > HEALTHY_S else failures
            delay_s = BACKOFF.delay_s(failures)
            log.error("process exited", process=self.process.name, code=code, again_s=delay_s)
            await asyncio.sleep(delay_s)
            failures += 1
            self.restarts += 1

    def _stdout(self) -> int | None:
        """Inherited by a process that writes its audit log there; else none, as the supervisor prints the greeting."""
        return None if "--audit-log-path=-" in self.process.arguments else asyncio.subprocess.DEVNULL

    async def _run_once(self) -> int:
        """Run the process until it exits; return the exit code."""
        held, self._held = self._held, None
        self._child = await (held.begin(self.process) if held is not None else started(self.process, self._stdout()))
        return await self._child.wait()


async def until_ready(supervisors: Sequence[ProcessSupervisor], origins: Sequence[Origin]) -> None:
    """Return when /readyz of each process succeeds. Raises ProcessStartFailure if one does not start."""
    ready = asyncio.create_task(_all_ready(origins))
    tasks: list[asyncio.Task[Any]] = [
        ready,
        *(asyncio.create_task(supervisor.gave_up.wait()) for supervisor in supervisors),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = [supervisor.process.name for supervisor in supervisors if supervisor.gave_up.is_set()]
        if failed:
            raise ProcessStartFailure(f"{', '.join(failed)} did not start; the log says why")
        await ready
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _all_ready(origins: Sequence[Origin]) -> None:
    async with asyncio.TaskGroup() as group:
        for origin in origins:
            group.create_task(_ready(origin))


async def _ready(origin: Origin) -> None:
    client = HttpClient(origin)
    try:
        while True:
            with contextlib.suppress(ClientError, TimeoutError):
                if (await client.request("GET", "/readyz", timeout_s=5.0)).status == 200:
                    return
            await asyncio.sleep(_POLL_S)
    finally:
        await client.close()
