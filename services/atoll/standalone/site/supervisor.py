"""The processes of a site: started together, started again when they die, ended in order.

A process that dies is started again after a pause that grows while it dies at once; who waits for the site to come up
is told if one cannot. Invariants: one process a member; none outlives us, even if we are killed (where the system can
see to that); none sees the settings that were meant for us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import structlog

from atoll.machinery.stream.server_process import die_with_parent
from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.pending_response import ClientError
from atoll.standalone.site.members import Member

log = structlog.get_logger()

BASE_DELAY_S, MAX_DELAY_S = 0.2, 10.0
#: A process that lived so long did not die of its start.
HEALTHY_S = 30.0
#: How often one may end before the site has come up.
START_ATTEMPTS = 3
STOP_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.05


class MemberFailed(Exception):
    """A process that does not come up; its own log says why."""


class Keeper:
    """One member. `restarts` counts deaths survived; `gave_up` is set if it died too often before it was ever ready."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.restarts = 0
        self.gave_up = asyncio.Event()
        self._patient = False
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 while none runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    def start(self) -> None:
        """Start it, and again whenever it ends, until `stop`."""
        self._task = asyncio.create_task(self._keep())

    def settle(self) -> None:
        """It has been ready: from now on it is started again however often it dies."""
        self._patient = True

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it in time; returns when it is gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        if process.returncode is None:
            log.error("process did not end when told to", process=self.member.name, pid=process.pid)
            process.kill()
            await process.wait()

    async def _keep(self) -> None:
        delay_s = BASE_DELAY_S
        while True:
            since = time.monotonic()
            code = await self._live()
            if not self._patient and self.restarts + 1 >= START_ATTEMPTS:
                self.gave_up.set()
                return
            delay_s = BASE_DELAY_S if time.monotonic() - since > HEALTHY_S else delay_s
            log.error("process died", process=self.member.name, code=code, again_s=delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_DELAY_S)
            self.restarts += 1

    def _stdout(self) -> int | None:
        """Ours for one that writes its audit log there; what processes say of themselves is said by us."""
        return None if "--audit-log-path=-" in self.member.arguments else asyncio.subprocess.DEVNULL

    async def _live(self) -> int:
        """One life; gives the exit code."""
        # A session of its own: an interrupt at the terminal is for us, and we end the others in order.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "atoll.cli",
            *self.member.arguments,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._stdout(),
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        log.info("process started", process=self.member.name, pid=self._process.pid)
        return await self._process.wait()


def environment() -> dict[str, str]:
    """Ours without our settings: what they mean for a process stands in its arguments."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}


async def until_ready(keepers: Sequence[Keeper], origins: Sequence[Origin]) -> None:
    """Return when each process says that it is ready. Raises MemberFailed if one does not come up."""
    ready = asyncio.create_task(_all_ready(origins))
    tasks: list[asyncio.Task[Any]] = [ready, *(asyncio.create_task(keeper.gave_up.wait()) for keeper in keepers)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = [keeper.member.name for keeper in keepers if keeper.gave_up.is_set()]
        if failed:
            raise MemberFailed(f"{', '.join(failed)} did not start; the log says why")
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
            await asyncio.sleep(_LOOK_AGAIN_S)
    finally:
        await client.close()
