"""The house's habits as tests: format, lint, types, layers, sizes, unfinished marks, names that do not belong."""

from __future__ import annotations

import ast
import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.go_programs import cache_folder
from tidy.sources import ROOT, name_of, parsed, source_files, statements

MAX_LINES, MAX_FUNCTION, MAX_PARAMETERS = 500, 60, 7
_MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def run(*command: str) -> None:
    found = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


def test_ruff_finds_nothing() -> None:
    run("ruff", "check", "--no-cache", "services", "tests", "loadtest")


def test_the_formatter_changes_nothing() -> None:
    run("ruff", "format", "--check", "--no-cache", "services", "tests", "loadtest")


@pytest.mark.timeout(600)
def test_types_hold() -> None:
    """Covers services, tests and loadtest, as in pyproject; mypy skips files unchanged since the last run.

    Two runs at a time would leave a cache of both, so one waits; what it finds counts once it is found without a cache.
    """
    cache = cache_folder() / "mypy"
    with (cache_folder() / "mypy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            run("mypy", "--cache-dir", str(cache))
        except AssertionError:
            shutil.rmtree(cache)
            run("mypy", "--cache-dir", str(cache))


def test_layers_hold() -> None:
    found = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "services"), "PATH": ""},
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in statements(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([name for name in names if name.arg not in {"self", "cls"}])


def test_files_and_functions_stay_small() -> None:
    wrong = [name_of(path) for path in source_files() if path.read_text().count("\n") > MAX_LINES]
    for path in source_files():
        for node in functions(path):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > MAX_FUNCTION:
                wrong.append(f"{name_of(path)}: {node.name} has {size} lines")
            if parameters(node) > MAX_PARAMETERS:
                wrong.append(f"{name_of(path)}: {node.name} has {parameters(node)} parameters")
    assert not wrong


def test_every_module_says_what_it_is_for() -> None:
    assert not [name_of(path) for path in source_files() if not ast.get_docstring(parsed(path))]


def test_nothing_is_marked_as_unfinished() -> None:
    assert not [name_of(path) for path in source_files() if _MARKS.search(path.read_text())]


def test_every_package_has_an_init() -> None:
    folders = {path.parent for path in source_files()}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
