"""A program in Go is built again when what it is made of changes, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.go_programs import sources


@pytest.mark.parametrize(
    ("changed", "is_built_again"),
    [
        ("go.sum", True),
        ("cmd/one/main.go", True),
        ("cmd/one/parts/more.go", True),
        ("internal/checks/checks.go", True),
        ("cmd/two/main.go", False),
        ("other/go.sum", False),
        ("other/cmd/one/main.go", False),
    ],
)
def test_a_program_is_built_again_when_its_own_sources_change(
    tmp_path: Path, changed: str, is_built_again: bool
) -> None:
    before = sources(tmp_path, "one", "go1")
    path = tmp_path / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("package changed")
    sources.cache_clear()
    assert (sources(tmp_path, "one", "go1") != before) == is_built_again
    assert sources(tmp_path, "one", "go2") != sources(tmp_path, "one", "go1")


@pytest.mark.parametrize(("changed", "is_built_again"), [("go.sum", False), ("older.mod", True), ("older.sum", True)])
def test_a_program_with_requirements_of_its_own_is_built_again_when_these_change(
    tmp_path: Path, changed: str, is_built_again: bool
) -> None:
    before = sources(tmp_path, "one", "go1", "older.mod")
    (tmp_path / changed).write_text("changed")
    sources.cache_clear()
    assert (sources(tmp_path, "one", "go1", "older.mod") != before) == is_built_again
