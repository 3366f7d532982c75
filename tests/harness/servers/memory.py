"""What a process holds in memory, read from outside, and the peak since a moment chosen by the test."""

from __future__ import annotations

import re
from pathlib import Path

_RESET_PEAK = "5"
_RETURNS = """
import os
import atoll.machinery.process.freed_memory as freed_memory
freed_memory.INTERVAL_S, freed_memory._GROWN_BYTES, freed_memory._QUIET = 0.05, -(1 << 50), float("inf")
def trim(pad):
    open(os.path.join({!r}, str(os.getpid())), "w").close()
    return 0
freed_memory.malloc_trim = lambda: trim
"""


class Returns:
    """Processes that return freed memory all the time, and say so in a directory.

    `code` is run before anything else in them (`harness.servers.mutant_shard.patched`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "returns"
        self._directory.mkdir()
        self.code = _RETURNS.format(str(self._directory))

    def by(self, pid: int) -> bool:
        """Whether a process has returned memory."""
        return (self._directory / str(pid)).exists()


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return _field(pid, "VmRSS")


def anonymous_bytes(pid: int) -> int:
    """Resident memory now without pages of files, such as the store's."""
    return _field(pid, "RssAnon")


def peak_bytes(pid: int) -> int:
    """The most that was resident since the start or the last `forget_peak`."""
    return _field(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Let the peak begin at what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def _field(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None, f"{name} of process {pid}"
    return int(found[1]) * 1024
