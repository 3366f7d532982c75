"""A type has one name: no two modules spell the same one as a constant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tidy.sources import name_of, parsed, source_files


def spelled(path: Path) -> list[tuple[str, ...]]:
    """The types that a module's constants spell out."""
    found = []
    for node in parsed(path).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ResourceType":
            found.append(tuple(ast.unparse(argument) for argument in call.args[:2]))
    return found


def test_a_type_is_a_constant_of_one_module() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for type in spelled(path):
            # The resource decides: groups are spelled out in one module and named in another.
            modules[type[1]].append(name_of(path))
    assert modules, "there are constants"
    assert not {type: paths for type, paths in modules.items() if len(paths) > 1}
