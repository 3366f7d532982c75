"""What every test may take, and what a run says at its end about what was not run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.data.manifests import manifests_folder


@pytest.fixture(scope="session")
def manifests() -> Path:
    """The folder of real projects' manifests; skips where they cannot be had. Its tests carry the mark `manifests`."""
    return manifests_folder()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that read manifests of real projects, for a run of these alone."""
    for item in items:
        if "manifests" in getattr(item, "fixturenames", ()):
            item.add_marker("manifests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each reason to skip once, with the number of tests."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports if report.longrepr)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"NOT RUN: {count} tests, because: {reason}", red=True, bold=True)
