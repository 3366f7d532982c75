"""`kubectl kubestellar list-syncing-objects --watch --json` in a process of its own, and what it printed so far.

with watching(kubeconfig, tmp_path, "--api-kind", "ConfigMap") as lines:
    lines.actions("a")        ["add", "update"]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.clients.api import Object

END_S = 60.0


class Lines:
    """What a command that watches has printed so far."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, name: str) -> list[Object]:
        """The whole lines about objects of a name."""
        whole = self._file.read_text().rpartition("\n")[0]
        return [each for each in map(json.loads, whole.splitlines()) if each["metadata"]["name"] == name]

    def actions(self, name: str) -> list[str]:
        return [each["Action"] for each in self.of(name)]


@contextmanager
def watching(kubeconfig: Path, directory: Path, *words: str) -> Iterator[Lines]:
    """The command, until a signal ends it."""
    command = [sys.executable, "-m", "atoll.cli.kubectl.kubestellar.main", "list-syncing-objects", *words, "--watch"]
    output = directory / "lines"
    with output.open("w") as file:
        process = subprocess.Popen(
            [*command, "--json", "--kubeconfig", str(kubeconfig)],
            stdout=file,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            yield Lines(output)
            process.terminate()
            assert process.wait(END_S) == -signal.SIGTERM
        finally:
            process.kill()
            process.wait(END_S)
