"""The runner: scenarios in order, each in a directory of its own; then the table and the JSON.

    python -m loadtest [--quick] [--out FILE] [--at NAME=COUNT ...] [scenario ...]
    python -m loadtest --against DIR [--rounds N] [--results] [--quick] [scenario ...]

Ends with status 1 if a scenario failed, never for a missed budget.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from harness.servers import launch
from loadtest import against, processes, report, results
from loadtest.bench import FULL, QUICK, TINY, Bench
from loadtest.calibration import Calibration, calibrate
from loadtest.scenarios import ORDER

#: A scenario that takes longer has hung. With counts of its own it may take what a full run may.
LIMIT_S = {TINY: 120.0, QUICK: 420.0, FULL: 3600.0}


async def measure(
    name: str, place: Path, size: str, *, own: bool = True, chosen: Mapping[str, int] | None = None
) -> report.Section:
    """Run one scenario."""
    module = importlib.import_module(f"loadtest.scenarios.{name}")
    bench = Bench(place / name, size, own=own, chosen=chosen)
    began, failed = time.monotonic(), ""
    try:
        async with asyncio.timeout(LIMIT_S[FULL if chosen else size]):
            rows = await module.run(bench)
    except Exception as error:
        rows, failed = bench.rows, f"{type(error).__name__}: {error}".splitlines()[0]
        sys.excepthook(type(error), error, error.__traceback__)
    question = (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return report.Section(name, question, round(time.monotonic() - began, 1), rows, failed)


async def run(
    names: Sequence[str], size: str, *, own: bool, call_us: float, chosen: Mapping[str, int]
) -> list[report.Section]:
    """Run scenarios one after the other, on the second core."""
    os.sched_setaffinity(0, processes.cores()[1])
    sections: list[report.Section] = []
    with tempfile.TemporaryDirectory(prefix="loadtest-") as place:
        for name in names:
            section = await measure(name, Path(place), size, own=own, chosen=chosen)
            sections.append(section)
            text = report.table([section], call_us)
            sys.stderr.write(f"\n{name} ({section.seconds} s): {section.question}\n{text}\n")
    return sections


def main() -> int:
    parser = argparse.ArgumentParser(prog="loadtest", description="Benchmarks beside their budgets.")
    parser.add_argument("scenario", nargs="*", help=f"some of: {' '.join(ORDER)}")
    parser.add_argument(
        "--quick", dest="size", action="store_const", const=QUICK, default=FULL, help="minutes, not an hour"
    )
    parser.add_argument("--size", choices=(TINY, QUICK, FULL), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("loadtest/results/last.json"), help="where the JSON goes")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with another checkout, in turn")
    parser.add_argument("--rounds", type=int, default=against.ROUNDS, help="how often both are measured")
    parser.add_argument("--results", action="store_true", help="write the comparison into RESULTS.md")
    parser.add_argument("--at", action="append", default=[], metavar="NAME=COUNT", help="a count of a scenario")
    parser.add_argument("--services", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.scenario) - set(ORDER)
    if unknown:
        parser.error(f"no such scenario: {' '.join(sorted(unknown))}")
    calibration = calibrate()
    sys.stderr.write(f"{calibration.text()}\n")
    if given.against is not None:
        return _compare(given, calibration)
    if given.services is not None:
        launch.services = given.services.resolve()
    own, call_us = given.services is None, calibration.python_call
    counts = {name: int(count) for name, _, count in (each.partition("=") for each in given.at)}
    sections = uvloop.run(run(given.scenario or ORDER, given.size, own=own, call_us=call_us, chosen=counts))
    report.write(given.out, sections, size=given.size, calibration=calibration)
    sys.stdout.write(f"{report.table(sections, call_us)}\nwritten to {given.out}\n")
    return int(any(section.failed for section in sections))


def _compare(given: argparse.Namespace, calibration: Calibration) -> int:
    chosen = given.scenario or against.CHOSEN
    rows = against.run(given.against.resolve(), chosen, rounds=given.rounds, size=given.size)
    text = against.table(rows)
    if given.results:
        size = "--quick " if given.size == QUICK else ""
        results.write(text, calibration, f"loadtest/run {size}--against DIR --rounds {given.rounds} {' '.join(chosen)}")
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
