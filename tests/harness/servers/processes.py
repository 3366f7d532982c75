"""`atoll` run to its end, processes by their id, the address of this machine, and the content of a
directory before and after."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import sys
import tempfile
from pathlib import Path

from harness.clients.kubectl import Result
from harness.servers.launch import launch

TIMEOUT_S = 60.0


def atoll(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run a command of `atoll` that ends by itself; fails the test if it does not."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        command = [sys.executable, "-m", "atoll.cli", *arguments]
        process = launch(command, out, err, environment=environment, directory=Path.cwd())
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            process.kill()
        return Result(code, out.read_text(), err.read_text())


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs: what a process holds, such as sockets, goes with its last one."""
    threads = Path(f"/proc/{pid}/task")
    try:
        return any(_runs(thread / "stat") for thread in threads.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _runs(thread: Path) -> bool:
    try:
        state = thread.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def children(pid: int) -> dict[int, str]:
    """The children of a process that run, with their command lines."""
    found: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid and is_alive(int(path.name)):
            found[int(path.name)] = command
    return found


def tree(directory: Path) -> dict[str, tuple[str, str]]:
    """Every file and directory below (and at) `directory`: its mode, and a hash of what it holds."""
    found: dict[str, tuple[str, str]] = {}
    for path in (directory, *sorted(directory.rglob("*"))):
        held = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (oct(stat.S_IMODE(path.stat().st_mode)), held)
    return found


def found_below(directory: Path) -> dict[Path, os.stat_result]:
    """What stands at and below a directory of running processes, without what they remove meanwhile; links as such."""
    below = [Path(folder, name) for folder, folders, files in os.walk(directory) for name in (*folders, *files)]
    found: dict[Path, os.stat_result] = {}
    for path in (directory, *below):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.lstat()
    return found


def contents_below(directory: Path) -> dict[Path, bytes]:
    """What the files below the directory of running processes hold; files that they remove meanwhile are left out."""
    held: dict[Path, bytes] = {}
    for path, state in found_below(directory).items():
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(state.st_mode):
                held[path] = path.read_bytes()
    return held


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def listening(pid: int) -> list[str]:
    """Addresses that a process listens on, as the kernel writes them."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(str(link.readlink()))
    tables = [Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def own_address() -> str:
    """An address of this machine outside of loopback; all of its addresses without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system picks the address that it would send from.
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "0.0.0.0"
        return str(probe.getsockname()[0])
