"""Every benchmark runs, at the smallest size: a broken one would be noticed with the next measurement only."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from loadtest import edge_processes, processes
from loadtest.bench import TINY, Bench
from loadtest.scenarios import ORDER, edgescale

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


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_edges_run_in_several_processes_behind_several_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("EDGES_A_PROCESS", 2), ("EDGES_A_PROXY", 3), ("EDGES_A_SERVER", 3), ("AT_ONCE", 1)):
        monkeypatch.setattr(edge_processes, name, most)
    bench = Bench(tmp_path, TINY, chosen={"edges": 5, "objects": 2, "locations": 5})
    rows = {row.what: row for row in await edgescale.run(bench)}
    assert rows["10 objects to 5 edges"].reached > 0
    assert "bound" not in rows["5 edges back at once, until all have an edit"].note
