"""A well-known key has one home: no module but `meta/wellknown` spells one of its keys."""

from __future__ import annotations

import ast

from atoll.machinery.meta import wellknown
from tidy.sources import SERVICES, parsed, source_files

KEYS = {value for name, value in vars(wellknown).items() if name.isupper() and isinstance(value, str) and "/" in value}


def test_a_wellknown_key_is_spelled_once() -> None:
    assert "kcp.io/cluster" in KEYS
    found = [
        f"{path.relative_to(SERVICES)}:{node.lineno}: {node.value}"
        for path in source_files()
        if path.stem != "wellknown" and any(key in path.read_text() for key in KEYS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and node.value in KEYS
    ]
    assert not found
