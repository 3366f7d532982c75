"""The cores and the memory that this process may use: affinity, limits of its control groups, the machine's own.

`standalone.worker_count` and `atoll doctor` read them. Limits of control groups apply at every level up to the root, in
version 1 and 2. Invariant: a file that is missing or has another format is no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


class Resources(msgspec.Struct, frozen=True):
    """Cores, possibly a fraction, and bytes of memory."""

    cores: float
    memory_bytes: int


def usable(cgroups: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> Resources:
    """Return what this process may use."""
    folders = list(_folders(cgroups, own))
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Resources(
        min([float(_affinity()), *filter(None, map(_cores, folders))]),
        min([memory_bytes, *filter(None, map(_memory_bytes, folders))]),
    )


def _affinity() -> int:
    """Return the number of cores that the scheduler may use for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _folders(cgroups: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of their parents.

    In a container the path of its group may be that outside of it, while its limits are those of the root.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        for name in controllers.split(","):
            root = cgroups / name
            folder = root / path.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(root))


def _cores(folder: Path) -> float | None:
    """Return the quota of a group in cores; None without one."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    quota, period = quota or _text(folder / "cpu.cfs_quota_us"), period or _text(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _memory_bytes(folder: Path) -> int | None:
    """Return the limit of a group; None without one."""
    limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
    return int(limit) if limit.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
