"""The store's file in this process's memory: mapped pages are given back once they are many.

Maintenance asks once a round. Pages of the map count as the process's own until the kernel runs short, so a shard
that once walked through every workspace would look as big as its file. They stay in the page cache: the next read
finds them there at the price of a minor fault. Invariant: only the read-only map is touched, never what is written
(commits go through the descriptor).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

LIMIT_BYTES = 64 << 20
_DONTNEED = 4
_MAPS, _STATUS = Path("/proc/self/maps"), Path("/proc/self/status")


class Residency:
    """Bounds the resident pages of one mapped file. Does nothing where there is no /proc."""

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._file, self._limit_bytes = str(file.resolve()), limit_bytes

    def trim(self) -> int:
        """Give mapped pages back if files hold more of this process than the limit; gives the bytes before, or 0."""
        resident = _file_bytes()
        if resident <= self._limit_bytes:
            return 0
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for begin, end in self._mapped():
            madvise(begin, end - begin, _DONTNEED)
        return resident

    def _mapped(self) -> list[tuple[int, int]]:
        found = []
        for line in _MAPS.read_text().splitlines():
            place, permissions, *_ = line.split(maxsplit=5)
            if line.endswith(self._file) and permissions.startswith("r--s"):
                begin, _, end = place.partition("-")
                found.append((int(begin, 16), int(end, 16)))
        return found


def _file_bytes() -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile:")), 0)
