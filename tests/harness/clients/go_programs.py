"""Programs in Go: the modules of tests/go, built on first use, once for all workers of a run.

    program("oracle")                  path of the built command
    verified("clients", kubeconfig)    run it against a workspace; return its verified checks
    following(kubeconfig)              an informer that prints its events
    running("providers", ...)          a controller that runs until the test ends it

A machine without Go skips what needs it. Packages come through Go's module proxy, pinned by go.sum; compiled ones stay
in Go's own build cache, so that only the first run on a machine takes minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.environment import TESTS

MODULE = TESTS / "go"
BUILD_TIMEOUT_S, RUN_TIMEOUT_S, FOLLOW_TIMEOUT_S = 1500.0, 240.0, 60.0
_DIGEST = 16
_STRIPPED = "-trimpath", "-ldflags=-s -w"
#: A program that no run took for so long is deleted when its successor is built.
_UNUSED_S = 86400.0
NO_GO = "Go is not installed: nothing was compared with Kubernetes' own code, and no Go client was run"


def find_go() -> str | None:
    """The go command; none on a machine without Go."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def go() -> str:
    """The go command; skips the test on a machine without Go."""
    found = find_go()
    if found is None:
        pytest.skip(NO_GO)
    return found


def _environment() -> dict[str, str]:
    """Go's own variables, and a cache directory if it would have none."""
    chosen = {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0"}
    return {"HOME": str(Path.home()), **os.environ, **chosen}


@cache
def cache_folder() -> Path:
    """The cache of all checkouts, beside Go's own: built programs and mypy's, each valid for what it was made of."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "atoll-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def checkout_cache() -> Path:
    """The cache of this checkout, for what names its paths; workers of a run share it."""
    folder = cache_folder() / hashlib.sha256(str(MODULE).encode()).hexdigest()[:8]
    folder.mkdir(exist_ok=True)
    return folder


@cache
def program(name: str, module: str = "", requirements: str = "go.mod") -> Path:
    """The command `cmd/<name>` of tests/go, or of the module in a folder of it, built. Skips without Go.

    `requirements` is the file of the module that says with which versions of others. One that was built of the same
    sources by the same Go is taken as it is: to find that out, Go reads all packages.
    """
    command, folder = go(), MODULE / module
    programs = cache_folder() / "programs"
    programs.mkdir(exist_ok=True)
    # Clients name themselves by their file.
    built = programs / f"{name}-{sources(folder, name, _version(command), requirements)}" / name
    if built.exists():
        # Another worker may be building another version.
        built.parent.touch()
        return built
    with (programs / f"{name}.lock").open("w") as lock:
        # The first worker builds; the others wait and find it built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built.exists():
            return built
        for old in programs.glob(f"{name}-{'?' * _DIGEST}"):
            if time.time() - old.stat().st_mtime > _UNUSED_S:
                shutil.rmtree(old)
        built.parent.mkdir(exist_ok=True)
        partial = built.with_suffix(".partial")
        done = subprocess.run(
            [command, "build", f"-modfile={requirements}", *_STRIPPED, "-o", str(partial), f"./cmd/{name}"],
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return partial.rename(built)


@cache
def _version(command: str) -> str:
    return subprocess.run([command, "version"], capture_output=True, text=True, check=True).stdout


@cache
def sources(folder: Path, name: str, version: str, requirements: str = "go.mod") -> str:
    """A digest of what a command of a module is built of: its own files, those that all share, and the Go."""
    found = hashlib.sha256(version.encode())
    own = [*(folder / "cmd" / name).rglob("*"), *(folder / "internal").rglob("*")]
    needed = folder / requirements
    for path in sorted(path for path in [*own, needed, needed.with_suffix(".sum")] if path.is_file()):
        found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:_DIGEST]


def verified(
    name: str, kubeconfig: Path, *arguments: object, module: str = "", environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run a command against a workspace to its end; return the checks that it verified, by name.

    The command and the test end at the first failed check.
    """
    command = [program(name, module), "-kubeconfig", kubeconfig, *arguments]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        # Its own home: kubectl's libraries cache discovery in it.
        env=_environment() | {"HOME": str(kubeconfig.parent)} | (environment or {}),
    )
    assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    checks = [json.loads(line) for line in done.stdout.splitlines()]
    return {check["check"]: check.get("found") for check in checks}


class Following:
    """A command in its own process. `seen` are the lines that it printed, such as `added name`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.seen: list[str] = []
        self._process = process
        #: None after the last one.
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, line: str) -> None:
        """Wait for a line. Fails when none comes for a while."""
        deadline = time.monotonic() + FOLLOW_TIMEOUT_S
        while line not in self.seen:
            found = None
            with contextlib.suppress(queue.Empty):
                found = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            assert found is not None, f"never came: {line}, after {self.seen[-40:]}"
            self.seen.append(found)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put(None)


@contextlib.contextmanager
def running(name: str, *arguments: object, module: str = "") -> Iterator[Following]:
    """Run a command until the context ends; errors that it prints are among its lines."""
    command = [program(name, module), *arguments]
    with subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
    ) as process:
        try:
            yield Following(process)
        finally:
            process.kill()


def following(kubeconfig: Path) -> contextlib.AbstractContextManager[Following]:
    """An informer on the ConfigMaps of namespace default; it ends with the context."""
    return running("clients", "follow", kubeconfig)
