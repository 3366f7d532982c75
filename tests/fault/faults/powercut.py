"""Power cuts: a recorder under a store process, and the images that a cut at any moment could have left on disk.

Synced data is present. Each sector written since is present or not, whatever the order of the writes: disks and page
caches promise no more. The length of the file follows from the sectors that made it.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

WITHOUT_COMPILER = "FAULT_WITHOUT_COMPILER"
SECTORS = (512, 4096)
_KEPT = (0.0, 0.1, 0.5, 0.9, 1.0)
_HEAD = struct.Struct("<cQI")
_TESTS = Path(__file__).parents[2]
_RECORD_TIMEOUT_S = 60


class Recorded(msgspec.Struct, frozen=True):
    """One event under the store process: kind as in `powercut.c`."""

    kind: str
    offset: int
    data: bytes


class Image(msgspec.Struct, frozen=True):
    """A file after a cut, and the number of events before the cut."""

    number: int
    at: int
    data: bytes


def recorder(directory: Path) -> Path:
    """The compiled recorder. Fails the test without a C compiler, unless the environment permits that."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        if WITHOUT_COMPILER in os.environ:
            pytest.skip(f"no C compiler, and {WITHOUT_COMPILER} is set")
        pytest.fail(f"power cuts are recorded by a C library and there is no compiler; {WITHOUT_COMPILER}=1 skips them")
    library = directory / "powercut.so"
    source = Path(__file__).with_name("powercut.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library


def record(directory: Path, seed: int, submits: int, **environment: str) -> Path:
    """Run a store process under the recorder; return the trace."""
    trace = directory / "trace"
    paths = os.pathsep.join((str(_TESTS.parent / "services"), str(_TESTS)))
    command = [sys.executable, "-m", "fault.traffic.transactions", str(directory / "work"), str(seed), str(submits)]
    settings = {"LD_PRELOAD": str(recorder(directory)), "FAULT_TRACE": str(trace), "PYTHONPATH": paths, **environment}
    found = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=_RECORD_TIMEOUT_S, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return trace


def events(trace: Path) -> list[Recorded]:
    """The trace, in order. Raises if the file was written in a way the recorder cannot follow."""
    data, at, found = trace.read_bytes(), 0, []
    while at < len(data):
        kind, offset, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append(Recorded(kind.decode(), offset, data[at : at + size]))
        at += size
    assert not any(one.kind == "M" for one in found), "the file is mapped for writing"
    return found


class Disk:
    """The synced sectors of a disk, and the written ones."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Recorded] = []

    def take(self, event: Recorded) -> None:
        if event.kind in {"W", "T"}:
            self.pending.append(event)
        elif event.kind == "Y":
            _write(self.durable, self.pending.pop())
        elif event.kind == "S":
            for one in self.pending:
                _write(self.durable, one)
            self.pending.clear()

    def cut(self, dice: random.Random) -> bytes:
        """One file that a cut now could leave."""
        found, sector, kept = bytearray(self.durable), dice.choice(SECTORS), dice.choice(_KEPT)
        for one in self.pending:
            if one.kind == "T":
                if dice.random() < kept:
                    _write(found, one)
                continue
            for piece in _pieces(one, sector):
                if dice.random() < kept:
                    _write(found, piece)
        return bytes(found)


def _write(data: bytearray, event: Recorded) -> None:
    size = event.offset if event.kind == "T" else event.offset + len(event.data)
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    if event.kind == "T":
        del data[size:]
    else:
        data[event.offset : size] = event.data


def _pieces(event: Recorded, sector: int) -> Iterator[Recorded]:
    at, end = event.offset, event.offset + len(event.data)
    while at < end:
        until = min(end, (at // sector + 1) * sector)
        yield Recorded("W", at, event.data[at - event.offset : until - event.offset])
        at = until


def first_submit(recorded: list[Recorded]) -> int:
    """The index of the first submit's first event: before it the store was created and opened."""
    return next(index for index, one in enumerate(recorded) if one.kind == "A")


def named(recorded: list[Recorded]) -> int:
    """From where on the new file has its name: behind the sync of a file that was not written to since the last."""
    for index, (before, one) in enumerate(pairwise(recorded), 1):
        if one.kind == "S" and before.kind == "Y":
            return index + 1
    raise AssertionError("the new file was not synced before it got its name")


def images(recorded: list[Recorded], count: int, seed: int, part: tuple[int, int] | None = None) -> Iterator[Image]:
    """So many images of random cuts, in the order of the cuts; cuts while something is unsynced are what matters.

    They lie in a part of the recorded events, from the first submit to the end unless one is given.
    """
    dice = random.Random(seed)
    first, end = part or (first_submit(recorded), len(recorded))
    cuts = sorted(dice.randrange(first, end + 1) for _ in range(count))
    disk, at = Disk(), 0
    for number, cut in enumerate(cuts):
        for one in recorded[at:cut]:
            disk.take(one)
        at = cut
        yield Image(number, cut, disk.cut(random.Random(f"{seed} {number}")))
