"""Cores and memory of a process: the least of affinity, control groups and machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.machinery.process.host_resources import Resources, usable

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 cores and no control groups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    return tmp_path


def found(root: Path, own: str, **files: str) -> Resources:
    """What may be used with these files of control groups; `__` in a name is a slash, `_-` a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "self").write_text(own)
    return usable(root, root / "self")


def test_without_control_groups_it_is_the_affinity_and_the_machine(root: Path) -> None:
    assert usable(root, root / "absent") == Resources(8.0, MACHINE)


def test_in_version_2_each_level_limits(root: Path) -> None:
    files = {
        "a__b__cpu_-max": "600000 100000\n",
        "a__cpu_-max": "250000 100000\n",
        "cpu_-max": "max 100000\n",
        "a__b__memory_-max": f"{64 * MIB}\n",
        "a__memory_-max": "max\n",
    }
    assert found(root, "0::/a/b\n", **files) == Resources(2.5, 64 * MIB)


def test_in_version_1_controllers_have_folders_of_their_own(root: Path) -> None:
    files = {
        "cpu,cpuacct__cpu_-cfs_quota_us": "-1\n",
        "cpu__a__cpu_-cfs_quota_us": "150000\n",
        "cpu__a__cpu_-cfs_period_us": "50000\n",
        "memory__memory_-limit_in_bytes": f"{32 * MIB}\n",
    }
    assert found(root, "4:memory:/outside\n3:cpu,cpuacct:/a\n0::/\n", **files) == Resources(3.0, 32 * MIB)


@pytest.mark.parametrize("text", ["", "max", "1000", "many 100000", "100000 0", "-1 100000"])
def test_what_has_another_format_is_no_limit(root: Path, text: str) -> None:
    assert found(root, "0::/\nnonsense\n", cpu_max="", **{"cpu_-max": text}).cores == 8.0


def test_this_process_has_something() -> None:
    resources = usable()
    assert 0 < resources.cores <= (os.cpu_count() or 1)
    assert 0 < resources.memory_bytes <= MACHINE
