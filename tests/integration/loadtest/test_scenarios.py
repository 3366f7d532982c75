"""Every benchmark runs, at the smallest size: a broken one would be noticed with the next measurement only."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from loadtest import processes
from loadtest.bench import TINY, Bench
from loadtest.scenarios import ORDER

#: Those that what changes most often breaks, a few seconds each; the others belong to the long tier.
SHORT = ("create", "watch")


async def check_runs(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one scenario. It may bind its server to one core, but not the tests that follow."""
    monkeypatch.setattr(processes, "cores", lambda: (set(processes.USABLE), set(processes.USABLE)))
    rows = await importlib.import_module(f"loadtest.scenarios.{name}").run(Bench(place, TINY))
    assert rows and all(row.reached >= 0 for row in rows)


@pytest.mark.parametrize("name", SHORT)
async def test_a_short_benchmark_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_runs(name, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in ORDER if name not in SHORT])
async def test_a_long_benchmark_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_runs(name, tmp_path, monkeypatch)
