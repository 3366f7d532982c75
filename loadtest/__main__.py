"""The runner: scenarios in order, each in a directory of its own; then the table and the JSON.

    python -m loadtest [--quick] [--out FILE] [scenario ...]

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
from pathlib import Path

import uvloop

from loadtest import processes, report
from loadtest.bench import Bench
from loadtest.scenarios import ORDER

#: A scenario that takes longer has hung.
LIMIT_S = {True: 300.0, False: 3600.0}


async def measure(name: str, place: Path, *, quick: bool) -> report.Section:
    """Run one scenario."""
    module = importlib.import_module(f"loadtest.scenarios.{name}")
    began, rows, failed = time.monotonic(), [], ""
    try:
        async with asyncio.timeout(LIMIT_S[quick]):
            rows = await module.run(Bench(place / name, quick=quick))
    except Exception as error:
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
        sys.excepthook(type(error), error, error.__traceback__)
    question = (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return report.Section(name, question, round(time.monotonic() - began, 1), rows, failed)


async def run(chosen: list[str], *, quick: bool) -> list[report.Section]:
    """Run scenarios one after the other, on the second core."""
    os.sched_setaffinity(0, processes.cores()[1])
    sections: list[report.Section] = []
    with tempfile.TemporaryDirectory(prefix="loadtest-") as place:
        for name in chosen:
            section = await measure(name, Path(place), quick=quick)
            sections.append(section)
            sys.stderr.write(f"\n{name} ({section.seconds} s): {section.question}\n{report.table([section])}\n")
    return sections


def main() -> int:
    parser = argparse.ArgumentParser(prog="loadtest", description="Benchmarks beside their budgets.")
    parser.add_argument("scenario", nargs="*", help=f"some of: {' '.join(ORDER)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes instead of an hour")
    parser.add_argument("--out", type=Path, default=Path("loadtest/results/last.json"), help="where the JSON goes")
    given = parser.parse_args()
    unknown = set(given.scenario) - set(ORDER)
    if unknown:
        parser.error(f"no such scenario: {' '.join(sorted(unknown))}")
    sections = uvloop.run(run(given.scenario or list(ORDER), quick=given.quick))
    report.write(given.out, sections, quick=given.quick)
    sys.stdout.write(f"{report.table(sections)}\nwritten to {given.out}\n")
    return int(any(section.failed for section in sections))


if __name__ == "__main__":
    sys.exit(main())
