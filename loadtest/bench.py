"""The surroundings of a scenario: sizes, a directory, servers; and its form.

A scenario is a module with a docstring that states its question and `async def run(bench) -> list[Row]`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from loadtest import processes
from loadtest.http import Load
from loadtest.server import Server, running

CONFIG_MAPS = Resource("", "v1", "configmaps")
WORKSPACES = Resource("tenancy.kcp.io", "v1alpha1", "workspaces", False)
#: Fills an object to about 1 KB as it is stored.
FILLING = "y" * 700


class Bench:
    """One scenario's surroundings."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self._directory, self.quick = directory, quick
        self._made = 0

    def size(self, quick: int, full: int) -> int:
        """A count or a number of seconds."""
        return quick if self.quick else full

    def place(self) -> Path:
        """A fresh directory."""
        self._made += 1
        path = self._directory / str(self._made)
        path.mkdir(parents=True)
        return path

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Server]:
        """A fresh server, stopped and removed at the end."""
        place = self.place()
        try:
            async with running(place, processes.cores()[0]) as server:
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
