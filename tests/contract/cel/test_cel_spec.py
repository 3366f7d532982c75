"""The conformance tests of CEL. Exclusions are listed with their reasons, and the list may only shrink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.oracles import cel_spec

RECORD = json.loads((Path(__file__).parent / "cel_spec.json").read_text())
FILES: dict[str, Any] = RECORD["files"]


def _excluded(file: str) -> set[str]:
    return {name for names in FILES[file]["excluded"].values() for name in names}


def test_the_record_is_of_the_module_that_is_run_and_knows_all_of_its_files() -> None:
    assert RECORD["module"] == cel_spec.MODULE
    assert cel_spec.files() == sorted(FILES)


def test_every_exclusion_has_a_reason() -> None:
    assert {reason for file in FILES.values() for reason in file["excluded"]} <= set(RECORD["reasons"])


@pytest.mark.parametrize("file", sorted(FILES))
def test_all_cases_of_a_file_pass_but_those_excluded_and_those_fail(file: str) -> None:
    excluded = _excluded(file)
    passed, wrong = 0, []
    for case in cel_spec.cases(file):
        problem = cel_spec.run(case)
        passed += problem is None
        if problem is None and case.name in excluded:
            wrong.append(f"{case.name} passes: take it off the list")
        elif problem is not None and case.name not in excluded:
            wrong.append(f"{case.name}: {problem}")
    assert not wrong
    assert passed == FILES[file]["passed"]
