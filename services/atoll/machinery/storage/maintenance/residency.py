"""Resident pages of the store's file: released once they are many.

`LmdbStore.maintain` calls it once a round. Mapped pages count as the process's memory until the kernel runs short, so a
shard that once read every workspace would look as big as its file. Released pages stay in the page cache; the next read
costs a minor fault. Invariant: only the read-only map is released (commits go through the file descriptor).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

LIMIT_BYTES = 64 << 20
_DONTNEED = 4
_MAPS, _STATUS = Path("/proc/self/maps"), Path("/proc/self/status")


class Residency:
    """Bounds the resident pages of one mapped file. Does nothing without /proc."""

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._file, self._limit_bytes = str(file.resolve()), limit_bytes

    def trim(self) -> int:
        """Release mapped pages if files hold more than the limit. Return the bytes before, 0 if none were released."""
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
