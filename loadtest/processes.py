"""CPU time, memory and core of a process tree, from the kernel.

Scenarios read it around what they do. CPU time is the measure that other work on the machine disturbs least.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

#: Cores this process was given, before it bound itself to one.
USABLE = sorted(os.sched_getaffinity(0))
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
NATS = "nats-server"
_COMMANDS = (
    b"start",
    b"shard",
    b"front-proxy",
    b"cache-server",
    b"event-gateway",
    b"edge-init",
    b"edge-controllers",
    b"syncer",
)


class Memory(msgspec.Struct, frozen=True):
    """Bytes. `private` is what no file backs; the rest of `resident` is mostly the store's mapped pages."""

    resident: int
    private: int


def tree(pid: int) -> list[int]:
    """The process and all it started that still run."""
    found = [pid]
    for parent in found:
        found.extend(_children(parent))
    return found


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue


def cpu_s(pid: int) -> float:
    """User and system time of one process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def cpu_of_tree(pid: int) -> dict[int, float]:
    """The same for a process and each that it started, which may end meanwhile."""
    found = {}
    for each in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            found[each] = cpu_s(each)
    return found


def name(pid: int) -> str:
    """What a process is: `nats-server`, `worker`, or the subcommand of `atoll` that it runs."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if Path(words[0].decode()).name == NATS:
        return NATS
    known = [word.decode() for word in words if word in _COMMANDS]
    return known[0] if known else "worker"


def memory(pids: list[int]) -> Memory:
    """Resident memory of processes together."""
    resident = private = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmRSS":
                resident += int(value.split()[0]) * 1024
            elif name == "RssAnon":
                private += int(value.split()[0]) * 1024
    return Memory(resident, private)


def cores() -> tuple[set[int], set[int]]:
    """Where the server runs and where the load; the same core where there is only one."""
    return {USABLE[0]}, {USABLE[-1]}
