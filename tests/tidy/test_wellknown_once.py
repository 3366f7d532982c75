"""A well-known key has one home: no module but `meta/wellknown` spells one of its keys."""

from __future__ import annotations

import ast
from pathlib import Path

from atoll.machinery.meta import wellknown

SERVICES = Path(__file__).resolve().parents[2] / "services"
KEYS = {value for name, value in vars(wellknown).items() if name.isupper() and isinstance(value, str) and "/" in value}


def test_a_wellknown_key_is_spelled_once() -> None:
    assert "kcp.io/cluster" in KEYS
    found = [
        f"{path.relative_to(SERVICES)}:{node.lineno}: {node.value}"
        for path in sorted(SERVICES.rglob("*.py"))
        if path.stem != "wellknown"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in KEYS
    ]
    assert not found
