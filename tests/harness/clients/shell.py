"""A shell with one kubectl and its own kubeconfig.

shell = Shell(directory, kubectl)
shell.ok("kubectl get cm c -o yaml")      return its output; fails the test if the exit code is not 0
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.clients.kubectl import SCRIPTS, Kubectl, Result
from harness.environment import ROOT

TIMEOUT_S = 60.0


class Shell:
    """Runs command lines with bash in a folder, by default the repository. `kubectl` gives binary, kubeconfig, home."""

    def __init__(self, directory: Path, kubectl: Kubectl, folder: Path = ROOT) -> None:
        self.folder = folder
        programs = directory / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(kubectl.binary)
        path = f"{programs}:{SCRIPTS}:/usr/local/bin:/usr/bin:/bin"
        self.environment = {**kubectl.environment, "PATH": path}

    def run(self, line: str, timeout_s: float = TIMEOUT_S) -> Result:
        """Run one command line to its end."""
        done = subprocess.run(
            ["/bin/bash", "-c", line],
            env=self.environment,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, line: str, timeout_s: float = TIMEOUT_S) -> str:
        """Standard output of a line that must succeed."""
        result = self.run(line, timeout_s)
        assert result.code == 0, f"{line}: {result.code}\n{result.stdout}{result.stderr}"
        return result.stdout

    def refused(self, line: str) -> str:
        """Standard error of a line that must fail."""
        result = self.run(line)
        assert result.code != 0, f"{line} succeeded:\n{result.stdout}"
        return result.stderr

    def start(self, line: str) -> subprocess.Popen[str]:
        """Run a line in the background; the caller ends it."""
        return subprocess.Popen(
            ["/bin/bash", "-c", f"exec {line}"],
            env=self.environment,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
