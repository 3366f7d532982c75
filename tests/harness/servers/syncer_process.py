"""`atoll syncer` in a process of its own, between the view of a mailbox and a workspace as edge cluster.

    syncer = SyncerProcess(tmp_path / "syncer", center, edge)
    syncer.start(), syncer.kill()

It is forked as servers are, so that it may be killed hundreds of times. What it remembers stays in its directory.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import yaml

from harness.clients.api import eventually
from harness.servers.launch import Process, launch
from harness.servers.shard_process import ShardProcess

END_TIMEOUT_S = 30.0


class Side(NamedTuple):
    """A server, the path below which it is reached, and a token; empty: the administrator's of its kubeconfig."""

    server: ShardProcess
    path: str
    token: str = ""


class SyncerProcess:
    """One syncer; its files lie in a directory."""

    def __init__(self, directory: Path, center: Side, edge: Side, uid: str) -> None:
        directory.mkdir(parents=True)
        self._directory, self._uid = directory, uid
        for name, side in (("center", center), ("edge", edge)):
            (directory / name).write_text(_kubeconfig(side))
        self._process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        out, err = self._directory / "out", self._directory / "err"
        out.write_bytes(b"")
        files = {"from-kubeconfig": "center", "to-kubeconfig": "edge", "state-file": "state"}
        flags = [f"--{flag}={self._directory / name}" for flag, name in files.items()]
        flags += [f"--sync-target-uid={self._uid}", "--sync-target-name=edge", "--qps=500", "--burst=500"]
        command = [sys.executable, "-m", "atoll.cli", "syncer", *flags]
        process = launch(
            command, out, err, environment={"NAMESPACE": "default"}, directory=self._directory, forked=True
        )
        self._process = process

        def serves() -> bool:
            assert process.poll() is None, err.read_text()[-3000:]
            return bool(re.search(r"serves http://", out.read_text()))

        eventually(serves, "the syncer serves")

    def kill(self) -> None:
        """SIGKILL; harmless if it does not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(END_TIMEOUT_S)
            self._process = None


def _kubeconfig(side: Side) -> str:
    """The kubeconfig of the server's administrator with another path, and another token if there is one."""
    found = yaml.safe_load(side.server.kubeconfig.read_text())
    for each in found["clusters"]:
        each["cluster"]["server"] = f"{side.server.url}{side.path}"
    for each in found["users"]:
        if side.token:
            each["user"] = {"token": side.token}
    return yaml.safe_dump(found)
