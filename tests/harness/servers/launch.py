"""A server in a process of its own. `python -m atoll.cli` is forked from a process that has imported what it imports.

The servers of the harness start here: importing is most of what a start costs, and a run starts hundreds. A process
with an environment of its own is executed, as Python may read it before anything else. So are all other programs, and
the commands that `harness.servers.processes` runs to their end.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Protocol
from unittest import mock

from harness.environment import ABSENT, SERVICES

_IMPORTED = [*(f"atoll.cli.atoll.{name}" for name in ("start", "front_proxy", "cache_server")), "atoll.shard.app"]
#: Starts a shard, on top of that (`preload_started_server`).
PRELOADED = "harness.servers.preloaded"
#: Forks processes that have imported what a server imports.
FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(_IMPORTED)


#: Where the code of servers is. The benchmarks set another checkout's, to compare.
services = SERVICES


def preload_started_server() -> None:
    """Let servers be forked from a process in which a shard was started. Benchmarks do not: they measure starts."""
    FORK_SERVER.set_forkserver_preload([*_IMPORTED, PRELOADED])


def fork(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Start a function in a forked process.

    What is preloaded is imported by the path of the environment, and ignored where it is not found.
    """
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join([str(ABSENT), *filter(None, sys.path)])):
        ensure_running()
    process = FORK_SERVER.Process(target=target, args=arguments)
    process.start()
    return process


class Process(Protocol):
    """What a forked process and one of `subprocess` have in common."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


def launch(
    command: Sequence[str],
    out: Path,
    err: Path,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path,
    forked: bool = False,
) -> Process:
    """Start a program in a session of its own, whose output is appended to two files.

    `environment` is set besides this process's own, of which no setting of `atoll` is inherited. `forked`: nothing
    reads it before the module of `command` runs.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    whole = {**inherited, "PYTHONPATH": f"{ABSENT}:{services}", **(environment or {})}
    plain = list(command[:3]) == [sys.executable, "-m", "atoll.cli"] and not environment
    if (plain or forked) and services == SERVICES:
        return _Forked(command[2:], whole, directory, (out, err))
    with out.open("ab") as stdout, err.open("ab") as stderr:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=whole,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


class _Forked:
    def __init__(
        self, command: Sequence[str], environment: dict[str, str], directory: Path, outputs: tuple[Path, Path]
    ) -> None:
        """`command` is a module and its arguments."""
        self._command = list(command)
        self._process = fork(_run, self._command, environment, directory, outputs)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        if self.poll() is None:
            self._process.kill()


def _run(command: list[str], environment: dict[str, str], directory: Path, outputs: tuple[Path, Path]) -> None:
    """Run like `python -m`."""
    module, *arguments = command
    os.setsid()
    for number, path in enumerate(outputs, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [str(SERVICES), *(path for path in sys.path if path != str(SERVICES))]
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
