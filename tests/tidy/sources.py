"""The product's source files, each read and parsed once for all tests of this folder."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "services"


@cache
def source_files() -> tuple[Path, ...]:
    """Every module below services."""
    return tuple(sorted(SERVICES.rglob("*.py")))


def parse(path: Path) -> ast.Module:
    """The module of a file, without looking for garbage meanwhile: there is none, and it takes twice as long."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


@cache
def parsed(path: Path) -> ast.Module:
    """The module of a source file, which stays: nobody looks for garbage in it again."""
    found = parse(path)
    gc.freeze()
    return found


def statements(module: ast.Module) -> Iterator[ast.AST]:
    """A module and every statement in it. Most of what `ast.walk` takes long for is below them."""
    found: list[ast.AST] = [module]
    while found:
        yield (node := found.pop())
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, block, ())


def name_of(path: Path) -> str:
    """The path from the repository's root, for messages."""
    return str(path.relative_to(ROOT))


@cache
def modules() -> dict[str, Path]:
    """Each module of services by its dotted name; a package has the name of its folder."""
    return {dotted(path): path for path in source_files()}


def dotted(path: Path) -> str:
    parts = path.relative_to(SERVICES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
