"""The list of conformance specs names tests that exist, and leaves no spec without a test or a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (TESTS / "CONFORMANCE.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| Spec |"))
]
#: Why nothing stands for a spec.
REASON = re.compile(r"\*(containers|controllers|scheduler|out of scope)\*")
NAMED = sorted({name for row in ROWS for name in re.findall(r"`([^`]+::[^`]+)`", row[1])})


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_spec_has_a_test_or_a_reason_of_a_known_class() -> None:
    assert len(ROWS) > 60
    assert not [row for row in ROWS if len(row) != 2 or not ("::" in row[1] or REASON.match(row[1]))]
    assert not [row for row in ROWS if "later" in row[1]]


def test_every_test_named_exists() -> None:
    assert len(NAMED) > 50
    named = [name.partition("::") for name in NAMED]
    assert not [name for name in NAMED if not name.partition("::")[2].startswith("test_")]
    assert not [f"{file}::{name}" for file, _, name in named if name not in functions_of(file)]
