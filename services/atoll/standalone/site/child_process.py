"""The processes that `atoll start` starts: at once, or loaded beforehand and given their arguments later.

`supervisor` and the edge service start them. Invariants: on Linux none outlives its parent, even if that is killed;
none sees the parent's own settings.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec
import structlog

from atoll.machinery.stream.server.process import die_with_parent
from atoll.standalone.site.processes import ProcessSpec

log = structlog.get_logger()


class HeldProcess:
    """A process that loads its command beside other work, and waits for its arguments."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._child: asyncio.subprocess.Process | None = None

    async def load(self) -> None:
        """Start it."""
        arguments = "-m", "atoll.cli.held", self._command
        self._child = await _spawn(self._command, arguments, asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE)

    async def begin(self, process: ProcessSpec) -> asyncio.subprocess.Process:
        """Let it work; another one, if it did not live until now. The caller ends it from now on."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None or child.stdin is None or child.stdin.is_closing():
            return await started(process, asyncio.subprocess.DEVNULL)
        child.stdin.write(msgspec.json.encode(process.arguments[1:]))
        child.stdin.close()
        return child

    async def end(self) -> None:
        """End it if it still waits."""
        if self._child is not None:
            await _killed(self._child)
            self._child = None


async def run_to_end(process: ProcessSpec, held: HeldProcess) -> int:
    """Run a process that ends by itself; return its exit code. It is ended when this is cancelled."""
    child = await held.begin(process)
    try:
        return await child.wait()
    finally:
        await _killed(child)


async def _killed(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()


async def started(process: ProcessSpec, stdout: int | None) -> asyncio.subprocess.Process:
    """Start a process."""
    return await _spawn(process.name, ("-m", "atoll.cli", *process.arguments), stdout, asyncio.subprocess.DEVNULL)


async def _spawn(name: str, arguments: Sequence[str], stdout: int | None, stdin: int) -> asyncio.subprocess.Process:
    # A session of its own: an interrupt at the terminal reaches only the supervisor, which stops all in order.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=environment(),
        stdin=stdin,
        stdout=stdout,
        start_new_session=True,
        preexec_fn=die_with_parent(),
    )
    log.info("process started", process=name, pid=child.pid)
    return child


def environment() -> dict[str, str]:
    """This process's environment without `ATOLL_` settings, which the arguments of the processes hold."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
