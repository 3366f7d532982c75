"""Which module of services imports which, TYPE_CHECKING and imports inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tidy.sources import modules, parsed, statements


def imported(tree: ast.Module, files: Mapping[str, Path]) -> set[str]:
    """The modules of `known` that a file imports. A package counts if no module below it is named."""
    found: set[str] = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in files}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            inside = {name for name in whole if name in files}
            found |= inside
            if len(inside) < len(whole) and node.module in files:
                found.add(node.module)
    return found


@cache
def import_graph() -> dict[str, frozenset[str]]:
    files = modules()
    return {name: frozenset(imported(parsed(path), files) - {name}) for name, path in files.items()}


def circles(graph: Mapping[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """The largest groups of modules in which each one reaches each other."""
    reach = {name: _reachable(graph, name) for name in graph}
    seen: set[str] = set()
    for name in sorted(graph):
        if name not in seen and name in reach[name]:
            circle = frozenset(other for other in reach[name] if name in reach[other])
            seen |= circle
            yield circle


def _reachable(graph: Mapping[str, frozenset[str]], start: str) -> set[str]:
    found: set[str] = set()
    open_ = list(graph[start])
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += graph[name]
    return found
