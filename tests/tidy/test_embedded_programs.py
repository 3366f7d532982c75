"""Programs that tests hand to other processes name modules and members that exist.

A test that takes a guard out of a running server does so by a program in a string. Renaming what it names would leave
the program, and the guard, without effect; neither the type checker nor the linter reads strings.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tidy.sources import parse

MISSING = object()
#: What a file has that may hold a program, a template of one or a dotted name. Parsing the others takes ten seconds.
_CANDIDATE = re.compile(
    r"""["'}](\\n|\\\n|\s)*(import|from)\s(?!__future__)|\.format\(|\b(patch|import_module|setattr|delattr)\(\s*\w?["']"""
)
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)*")
TESTS = Path(__file__).resolve().parents[1]


@cache
def named_in_tests() -> tuple[list[tuple[str, ast.Module]], list[tuple[str, str]]]:
    """Programs and dotted names in the strings of tests, with where they stand. Each file is parsed once."""
    found: list[tuple[str, ast.Module]] = []
    dotted: list[tuple[str, str]] = []
    for path in sorted(TESTS.rglob("*.py")):
        if not _CANDIDATE.search(path.read_text()):
            continue
        module, where = parse(path), str(path.relative_to(TESTS))
        found += [(f"{where}:{line}", program) for line, program in programs(module)]
        dotted += [(where, text) for text in dotted_names(module)]
    return found, dotted


def programs(module: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """Strings that are programs and import the product, with their lines."""
    for line, text in texts(module):
        if not text.lstrip().startswith(("import ", "from ")) or " atoll." not in text:
            continue
        with contextlib.suppress(SyntaxError):
            yield line, ast.parse(text)


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
    """Imports that fail, members of imported modules and classes and keyword arguments that do not exist."""
    names: dict[str, object] = {}
    for statement in program.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            try:
                exec(compile(ast.Module([statement], []), "<program>", "exec"), names)
            except ImportError as error:
                yield str(error)
    local = {argument.arg for node in ast.walk(program) if isinstance(node, ast.arguments) for argument in node.args}
    imported = {name: value for name, value in names.items() if name not in local}
    for node in ast.walk(program):
        if isinstance(node, ast.Attribute) and value_of(node, imported) is MISSING:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            keywords = [each.arg for each in node.keywords if each.arg]
            yield from unknown_keywords(value_of(node.func, imported), keywords, node)
    for target, parameters in stand_ins(program):
        yield from unknown_keywords(value_of(target, imported), parameters, target)


def value_of(node: ast.expr, names: dict[str, object]) -> object:
    """The value of a dotted name that begins with an imported module or class: MISSING if it has no such member.

    None for any other expression.
    """
    text = ast.unparse(node)
    if not text.replace(".", "").isidentifier() or not isinstance(names.get(text.split(".")[0]), ModuleType | type):
        return None
    try:
        found: object = eval(text, dict(names))
    except AttributeError:
        return MISSING
    return found


def stand_ins(program: ast.Module) -> Iterator[tuple[ast.expr, list[str]]]:
    """Members that are replaced by a function of the program, and the function's optional and keyword parameters."""
    functions = {node.name: node.args for node in program.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(program):
        match node:
            case ast.Assign(targets=targets, value=ast.Lambda(args=arguments)):
                pass
            case ast.Assign(targets=targets, value=ast.Name(name)) if name in functions:
                arguments = functions[name]
            case _:
                continue
        optional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        for target in targets:
            yield target, [each.arg for each in (*optional, *arguments.kwonlyargs)]


def unknown_keywords(function: object, keywords: list[str], where: ast.expr) -> Iterator[str]:
    if not callable(function) or not keywords:
        return
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function of C
        return
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        yield from (f"{ast.unparse(where)}: {name}" for name in keywords if name not in parameters)


def dotted_names(module: ast.Module) -> Iterator[str]:
    """Texts that a test hands over as the dotted name of a module or member."""
    for node in ast.walk(module):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=name) | ast.Name(id=name), args=[ast.Constant(str() as text), *rest]
            ) if name in {"patch", "import_module"} or (name in {"setattr", "delattr"} and len(rest) < 2):
                if _DOTTED.fullmatch(text):
                    yield text


def unresolved(text: str) -> bool:
    try:
        pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError):
        return True
    return False


def test_programs_in_strings_name_what_exists() -> None:
    found, _ = named_in_tests()
    assert len(found) > 30, "there are such programs"
    assert not [f"{where}: {text}" for where, program in found for text in problems(program)]


def test_dotted_names_in_strings_name_what_exists() -> None:
    _, found = named_in_tests()
    assert not [f"{where}: {text}" for where, text in found if unresolved(text)]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("pass\nimport atoll.shard.no_such", "No module named 'atoll.shard.no_such'"),
        ("hashes.no_such = None", "hashes.no_such"),
        ("Counter.no_such = None", "Counter.no_such"),
        ("hashes.no_such(1)", "hashes.no_such"),
        ("json.dumps({}, no_such=1)", None),
        ("Counter.elements(no_such=1)", "Counter.elements(no_such=1): no_such"),
        ("Counter.elements = lambda self, *, no_such=None: None", "Counter.elements: no_such"),
        ("def other(self, no_such=None): ...\nCounter.elements = other", "Counter.elements: no_such"),
        ("Counter.elements = lambda self: None", None),
    ],
)
def test_a_wrong_name_in_a_program_is_found(statement: str, problem: str | None) -> None:
    program = ast.parse(
        f"import json\nimport atoll.machinery.meta.hashes as hashes\nfrom collections import Counter\n{statement}"
    )
    assert list(problems(program)) == ([problem] if problem else [])


def test_a_wrong_dotted_name_is_found() -> None:
    text = """
monkeypatch.setattr("harness.clients.api.NO_SUCH", 1)
monkeypatch.setattr(thing, "member", 1)
patch("json.no_such")
importlib.import_module("no_such")
monkeypatch.delattr("json.dumps")
"""
    found = list(dotted_names(ast.parse(text)))
    assert [text for text in found if unresolved(text)] == ["harness.clients.api.NO_SUCH", "json.no_such", "no_such"]
    assert "json.dumps" in found and "member" not in found
