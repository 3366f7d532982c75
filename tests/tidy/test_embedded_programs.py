"""Programs that tests hand to other processes name modules and members that exist.

A test that takes a guard out of a running server does so by a program in a string. Renaming what it names would leave
the program, and the guard, without effect; neither the type checker nor the linter reads strings.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).resolve().parents[1]


def programs() -> Iterator[tuple[str, ast.Module]]:
    """Strings of tests that are programs and import the product, with where they stand."""
    for path in sorted(TESTS.rglob("*.py")):
        for line, text in texts(ast.parse(path.read_text())):
            if not text.lstrip().startswith(("import ", "from ")) or " atoll." not in text:
                continue
            try:
                program = ast.parse(text)
            except SyntaxError:
                continue
            yield f"{path.relative_to(TESTS)}:{line}", program


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and value of every string, and of every template of the module that is formatted with literals."""
    templates: dict[str, str] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str() as text)):
                templates[name] = text
    for each in ast.walk(module):
        match each:
            case ast.Constant(str() as text):
                yield each.lineno, text
            case ast.Call(func=ast.Attribute(ast.Name(name), "format"), args=[*args]) if name in templates:
                with contextlib.suppress(ValueError):  # an argument that is no literal
                    yield each.lineno, templates[name].format(*map(ast.literal_eval, args))


def problems(program: ast.Module) -> Iterator[str]:
    """Imports that fail, and members of imported modules that are not there."""
    names: dict[str, object] = {}
    for statement in program.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            try:
                exec(compile(ast.Module([statement], []), "<program>", "exec"), names)
            except ImportError as error:
                yield str(error)
    local = {argument.arg for node in ast.walk(program) if isinstance(node, ast.arguments) for argument in node.args}
    for node in ast.walk(program):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        root = text.split(".")[0]
        if isinstance(names.get(root), ModuleType) and root not in local and text.replace(".", "").isidentifier():
            try:
                eval(text, dict(names))
            except AttributeError:
                yield text


def test_programs_in_strings_name_what_exists() -> None:
    found = list(programs())
    assert len(found) > 30, "there are such programs"
    assert not [f"{where}: {text}" for where, program in found for text in problems(program)]
