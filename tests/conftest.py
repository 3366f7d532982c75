"""Fixtures and hooks of all tests, and the summary of skipped tests."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from harness.data.manifests import manifests_folder, sources
from harness.environment import ABSENT
from harness.seeds import draw_all, drawn
from harness.servers.launch import preload_started_server

#: What a run selects that is not told otherwise, and the folder whose tests the long tier repeats with all examples.
DEFAULT_TIER, LONG_TIER, DRAWN = "not long", "long", "property/"

#: Files and folders that a run begins with: those of the longest files first, then what starts servers of its own.
#: Those of one line are mixed: while files of one wait for servers, files of another compute.
FIRST = (
    ("tidy/test_tidy.py",),
    ("tidy/test_calls.py",),
    ("fault/", "contract/", "property/"),
    ("integration/security/test_matrix.py",),
    ("integration/site/",),
    ("integration/",),
)


#: So many workers collect from different folders on (`tests/run` starts four).
WORKERS = 4
#: The end of a run watches its own threads for so long; so much of it may be computed.
WATCHED_S, COMPUTED_S = 0.2, 0.1


@pytest.fixture(scope="session", autouse=True)
def no_thread_computes_for_ever() -> Iterator[None]:
    """Fail a run that ends with a thread that computes. Such a thread takes a core from all tests that follow."""
    yield
    before_s = time.process_time()
    time.sleep(WATCHED_S)
    computed_s = time.process_time() - before_s
    assert computed_s < COMPUTED_S, f"threads of ended tests compute: {computed_s:.2f} s of {WATCHED_S} s"


def _each_source() -> Iterator[object]:
    """The fullest source; another one in the long tier."""
    for number, source in enumerate(sources()):
        yield pytest.param(source, marks=[pytest.mark.long] if number else [])


@pytest.fixture(params=_each_source())
def manifests(request: pytest.FixtureRequest) -> Path:
    """The folder of real projects' manifests, of each source in turn; skips without one."""
    return manifests_folder(request.param)


@pytest.fixture(scope="session")
def boutique() -> Path:
    """The manifests of a real application of Deployments and Services; skips where only Go's modules are."""
    if "shared" not in sources():
        pytest.skip("only ../shared/data holds an application of Deployments and Services")
    return manifests_folder("shared") / "online-boutique" / "kubernetes-manifests.yaml"


class Root(pytest.Dir):  # type: ignore[misc]  # final: it may change with pytest, which is pinned
    """The folder of all tests."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return from_another_place(self.config, super().collect())


class Folder(pytest.Package):
    """A folder of tests. What its tests share (scope "package") ends with its last test, and not with the run."""

    def setup(self) -> None:
        """There is no `__init__.py` to set up."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return from_another_place(self.config, super().collect())


def from_another_place(
    config: pytest.Config, found: Iterable[pytest.Item | pytest.Collector]
) -> list[pytest.Item | pytest.Collector]:
    """What a folder holds, of which each worker collects another part first.

    Workers collect the same tests at the same time. In the same order each would rewrite and compile every file.
    """
    held = list(found)
    first = len(held) * worker_number(config) // WORKERS
    return held[first:] + held[:first]


def worker_number(config: pytest.Config) -> int:
    """The number of this worker; 0 in a run without workers."""
    return int(getattr(config, "workerinput", {}).get("workerid", "gw0").removeprefix("gw")) % WORKERS


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    kind = Root if path == Path(__file__).parent else Folder
    found: pytest.Collector = kind.from_parent(parent, path=path)
    return found


def pytest_configure(config: pytest.Config) -> None:
    """No test asserts on speed, nor do generated examples: a busy machine is no failure."""
    sys.path.insert(0, str(ABSENT))
    preload_started_server()
    is_default = config.option.markexpr == DEFAULT_TIER
    if is_default:
        # What the product's modules hold is read by each worker for seconds, and depends on what was imported.
        providers._get_local_constants = lambda: providers._local_constants
    else:
        draw_all()
    slow = [HealthCheck.too_slow]
    examples = drawn(100)
    settings.register_profile(
        "atoll", max_examples=examples, deadline=None, derandomize=is_default, suppress_health_check=slow
    )
    settings.load_profile("atoll")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules and tests are collected, and never look through them again: all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the files that take longest to the front; the long tier has the tests that draw examples too.

    Each worker takes whole files in this order, so that all come to an end together, with short files.
    """
    if config.option.markexpr == LONG_TIER:
        for item in items:
            if _below(item.path).startswith(DRAWN):
                item.add_marker(LONG_TIER)
    places = _places({item.path for item in items})
    items.sort(key=lambda item: (places[item.path], item.path))


def _below(file: Path) -> str:
    return file.relative_to(Path(__file__).parent).as_posix()


def _places(files: set[Path]) -> dict[Path, tuple[int, float]]:
    """The place of each file: the line of FIRST, and the part of the files of its folder that come before it."""
    folders: dict[tuple[int, str], list[Path]] = {}
    for file in sorted(files):
        path = _below(file)
        found = (
            (line, prefix) for line, prefixes in enumerate(FIRST) for prefix in prefixes if path.startswith(prefix)
        )
        folders.setdefault(next(found, (len(FIRST), "")), []).append(file)
    return {
        file: (line, number / len(found)) for (line, _), found in folders.items() for number, file in enumerate(found)
    }


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """Collect no garbage while a failure's traceback is formatted.

    CPython 3.11 raises SystemError from `ast.parse` if a collection within it parses too, as the traceback of a failing
    finalizer does. The worker would end by that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each reason to skip once, with the number of tests."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports if report.longrepr)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"NOT RUN: {count} tests, because: {reason}", red=True, bold=True)
