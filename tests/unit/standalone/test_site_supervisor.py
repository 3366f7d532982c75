"""Supervised processes: restarted when they exit, given up if they never become ready, stopped on request."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.client import Origin
from atoll.standalone.site import child_process, supervisor
from atoll.standalone.site.child_process import HeldProcess, run_to_end
from atoll.standalone.site.processes import ProcessSpec
from atoll.standalone.site.supervisor import ProcessStartFailure, ProcessSupervisor, until_ready
from harness.servers.processes import children, is_alive

TIMEOUT_S = 60.0


async def until(kept: ProcessSupervisor, lives: int) -> int:
    """Wait until the process runs after this many restarts; return its process id."""
    async with asyncio.timeout(TIMEOUT_S):
        while kept.restarts < lives or not kept.pid:  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0.01)
    return kept.pid


def sleeping(tmp_path: Path) -> ProcessSupervisor:
    """Return a process that keeps running: a shard that waits for an unreachable root shard."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}],"
        " contexts: [{name: a, context: {cluster: a}}], current-context: a}"
    )
    arguments = (
        "shard",
        f"--root-directory={tmp_path / 'eu'}",
        "--secure-port=0",
        "--shard-name=eu",
        "--nats-url=nats://x",
        f"--root-shard-kubeconfig-file={kubeconfig}",
        "--allow-any-filesystem",
    )
    return ProcessSupervisor(ProcessSpec("eu", arguments, "https://127.0.0.1:1"))


async def test_a_process_that_dies_is_started_again_and_ends_when_told(tmp_path: Path) -> None:
    kept = sleeping(tmp_path)
    kept.mark_ready()
    kept.start()
    first = await until(kept, 0)
    os.kill(first, signal.SIGKILL)
    second = await until(kept, 1)
    assert second != first
    await kept.stop()
    assert not is_alive(second)
    assert kept.pid == 0


async def test_a_process_that_never_comes_up_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", Backoff(0.0, 0.0))
    kept = ProcessSupervisor(ProcessSpec("odd", ("no-such-command",), "https://127.0.0.1:1"))
    kept.start()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(ProcessStartFailure, match="odd did not start"):
            await until_ready([kept], [Origin("127.0.0.1", 1)])
    assert kept.restarts == supervisor.START_ATTEMPTS - 1
    await kept.stop()


async def test_a_held_process_waits_for_its_arguments(tmp_path: Path) -> None:
    held, out = HeldProcess("edge-init"), tmp_path / "kubeconfig"
    await held.load()
    spec = ProcessSpec("edge-init", ("edge-init", f"--kubeconfig={tmp_path / 'none'}", f"--output={out}"), "")
    async with asyncio.timeout(TIMEOUT_S):
        assert await run_to_end(spec, held) == 1, "it was given the flags, and there is no such kubeconfig"


async def test_a_held_process_without_arguments_does_nothing() -> None:
    """Whoever started it ended: its standard input is at its end."""
    command = sys.executable, "-m", "atoll.cli.held", "version"
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    async with asyncio.timeout(TIMEOUT_S):
        out, _ = await child.communicate()
    assert (child.returncode, out) == (0, b"")


async def test_a_held_process_that_is_not_needed_ends() -> None:
    held, before = HeldProcess("version"), set(children(os.getpid()))
    await held.load()
    (child,) = set(children(os.getpid())) - before
    await held.end()
    assert not is_alive(child)


async def test_another_process_takes_the_place_of_a_held_one_that_was_killed() -> None:
    held = HeldProcess("version")
    await held.load()
    child = held._child
    assert child is not None
    child.kill()
    async with asyncio.timeout(TIMEOUT_S):
        await child.wait()
        assert await run_to_end(ProcessSpec("version", ("version",), ""), held) == 0


def test_settings_meant_for_us_are_not_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_SHARDS", "3")
    assert "ATOLL_SHARDS" not in child_process.environment()
    assert "PATH" in child_process.environment()
