"""Public names of services are used in services; modules named in docstrings exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tidy.sources import ROOT, SERVICES, modules, name_of, parsed, source_files, statements

#: Packages for programs beside a shard: their public names need no caller here.
PUBLIC = ("atoll/events/", "atoll/virtualworkspace_sdk/", "atoll/machinery/client/")
#: Texts that look like paths of modules and are none: paths of the API.
MISSING: frozenset[str] = frozenset(["apis/apps/v1", "atoll/_schemas"])
_WORD = re.compile(r"[A-Za-z_]\w*")
_QUOTED = re.compile(r"`([a-z_][\w./]*)`")


def is_protocol(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)


def public_names(path: Path) -> list[str]:
    """Functions, classes and constants of a module's top level, without those that decorators register."""
    found = []
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.decorator_list and not is_protocol(node):
                found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return [name for name in found if not name.startswith("_")]


def test_public_names_are_used_in_services() -> None:
    """A name is used when any file, its own included, mentions it beside its definition."""
    words: Counter[str] = Counter()
    for path in source_files():
        words.update(_WORD.findall(path.read_text()))
    # Console scripts, packaging and the operators' documents name functions as text.
    for path in (ROOT / "pyproject.toml", *(ROOT / "infra").rglob("*.md")):
        words.update(_WORD.findall(path.read_text()))
    unused = {
        name
        for path in source_files()
        if not name_of(path).removeprefix("services/").startswith(PUBLIC)
        for name in public_names(path)
        if words[name] < 2
    }
    assert not unused


def names_a_module(text: str, beside: Path) -> bool:
    """Whether quoted text with a path's form means a module or a file below services."""
    bases = [beside, *beside.parents]
    for base in bases[: len(bases) - len(SERVICES.parents)]:
        if (base / text).exists() or (base / f"{text}.py").exists():
            return True
    return f"atoll.{text.replace('/', '.')}" in modules() or (SERVICES.parent / text).exists()


def test_modules_named_in_docstrings_exist() -> None:
    """A text counts as a path if it has a slash and begins with a folder of services, or ends in `.py`."""
    folders = {path.parent.name for path in source_files()}
    missing = []
    for path in source_files():
        for node in statements(parsed(path)):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for text in _QUOTED.findall(ast.get_docstring(node) or ""):
                is_path = text.endswith(".py") or ("/" in text and text.partition("/")[0] in folders)
                if is_path and not names_a_module(text.rstrip("/"), path.parent):
                    missing.append(text)
    assert set(missing) <= MISSING
