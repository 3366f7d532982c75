"""The surroundings of a scenario: sizes, a directory, servers; and its form.

A scenario is a module with a docstring that states its question and `async def run(bench) -> list[Row]`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from loadtest import processes
from loadtest.http import Load
from loadtest.report import Row, number
from loadtest.server import Server, running

CONFIG_MAPS = Resource("", "v1", "configmaps")
WORKSPACES = Resource("tenancy.kcp.io", "v1alpha1", "workspaces", False)
#: Fills an object to about 1 KB as it is stored.
FILLING = "y" * 700
#: Sizes of a run. Tiny ones measure nothing: they show that a scenario works.
TINY, QUICK, FULL = "tiny", "quick", "full"
_TINY_PART = 40


class Bench:
    """One scenario's surroundings."""

    def __init__(
        self, directory: Path, size: str = FULL, *, own: bool = True, chosen: Mapping[str, int] | None = None
    ) -> None:
        """`own` False: servers run the code of another checkout, so nothing is measured in this process.

        `chosen` are counts by name, whatever the size of the run.
        """
        self._directory, self._size, self._chosen = directory, size, chosen or {}
        #: Whether parts of the server are measured in this process, which changes its logging.
        self.in_process = own and size != TINY
        self._made = 0
        #: What is known so far: a scenario that ends early has given that.
        self.rows: list[Row] = []

    def add(self, *rows: Row) -> None:
        """Take rows of a long scenario as they become known, and print them."""
        self.rows += rows
        for row in rows:
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {row.what}: {number(row.reached)} {row.unit} {row.note}\n")

    def size(self, quick: int, full: int, name: str = "") -> int:
        """A count, which may be chosen by its name."""
        if name in self._chosen:
            return self._chosen[name]
        if self._size == TINY:
            return max(1, quick // _TINY_PART)
        return quick if self._size == QUICK else full

    def seconds(self, quick: float, full: float) -> float:
        """The length of a load."""
        if self._size == TINY:
            return quick / _TINY_PART
        return quick if self._size == QUICK else full

    def place(self) -> Path:
        """A fresh directory."""
        self._made += 1
        path = self._directory / str(self._made)
        path.mkdir(parents=True)
        return path

    @asynccontextmanager
    async def server(self, *flags: str, cores: set[int] | None = None) -> AsyncIterator[Server]:
        """A fresh server, on a core of its own unless `cores` are given; stopped and removed at the end."""
        place = self.place()
        try:
            async with running(place, cores or processes.cores()[0], *flags) as server:
                yield server
        finally:
            shutil.rmtree(place, ignore_errors=True)


def config_map(name: str, generate: bool = False, **data: str) -> Object:
    """A ConfigMap of about 1 KB."""
    metadata = {"generateName" if generate else "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": FILLING, **data}}


def workspace(name: str, type: str = "universal") -> Object:
    """A Workspace of a type of root."""
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name},
        "spec": {"type": {"name": type, "path": "root"}},
    }


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile of anything, 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def sound(load: Load) -> Load:
    """Reject a load that met errors. Raises RuntimeError."""
    if load.errors or not load.answers:
        raise RuntimeError(f"{load.errors} of {load.answers} requests failed")
    return load
