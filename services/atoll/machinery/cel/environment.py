"""The declarations that expressions may use: variables, functions, types and macros; and compilation of text to a
program.

Callers that hold rules make one for a set of libraries and extend it with variables. Making one merges tables;
compiling parses, checks and makes closures. Invariant: an environment never changes after it is made, so tasks and
threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from atoll.machinery.cel.bounds import replace_pause
from atoll.machinery.cel.checker.checker import check
from atoll.machinery.cel.checker.scope import Declaration, Tables
from atoll.machinery.cel.checker.validators import validate
from atoll.machinery.cel.compiler.compiler import Compiler
from atoll.machinery.cel.errors import CompileError, EvaluationError, ProgramError
from atoll.machinery.cel.functions import Estimate, Library, Overload, RuntimeCost
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.recursion_limit import deep_stack
from atoll.machinery.cel.std import OPTIONAL, STANDARD
from atoll.machinery.cel.syntax.ast import Place
from atoll.machinery.cel.syntax.expansion import Macro
from atoll.machinery.cel.syntax.parser import parse
from atoll.machinery.cel.types import Kind, Type, TypeType
from atoll.machinery.cel.values import TypeValue


class Environment:
    """Variables and libraries; the standard library and optional types are always included.

    `variables` maps names (dots allowed) to types. `types` are objects that expressions may construct (`Name{...}`).
    `homogeneous` requires one item type in list and map literals, as Kubernetes does. `container` is the namespace in
    which names are resolved.
    """

    def __init__(
        self,
        variables: Mapping[str, Type],
        libraries: Sequence[Library] = (),
        *,
        types: Sequence[Type] = (),
        homogeneous: bool = True,
        container: str = "",
    ) -> None:
        self.variables = dict(variables)
        self.libraries = tuple(libraries)
        self.types = tuple(types)
        self._base = _tables(self.libraries, homogeneous, container)
        self.tables = _with_names(self._base, self.variables, self.types)

    def extend(
        self, variables: Mapping[str, Type], libraries: Sequence[Library] = (), types: Sequence[Type] = ()
    ) -> Environment:
        """Return the environment with more variables, libraries and types; a new variable replaces an old one of its
        name.

        Without more libraries this is cheap: only the names are merged.
        """
        if not libraries:
            return self._extend_names(variables, types)
        return Environment(
            {**self.variables, **variables},
            (*self.libraries, *libraries),
            types=(*self.types, *types),
            homogeneous=self._base.homogeneous,
            container=self._base.container,
        )

    def _extend_names(self, variables: Mapping[str, Type], types: Sequence[Type]) -> Environment:
        extended = Environment.__new__(Environment)
        extended.variables = {**self.variables, **variables}
        extended.libraries = self.libraries
        extended.types = (*self.types, *types)
        extended._base = self._base
        extended.tables = _with_names(self._base, extended.variables, extended.types)
        return extended

    def compile(self, text: str, pause: Callable[[], None] | None = None) -> Program:
        """Parse, check and compile. A text of 100,000 characters takes some 400 ms, in which `pause` is called often.

        Raises CompileError with all issues, and ProgramError if the conversion of a literal fails (`int('x')`).
        """
        with deep_stack():
            if pause is None:
                return self._compile(text)
            before = replace_pause(pause)
            try:
                return self._compile(text)
            finally:
                replace_pause(before)

    def _compile(self, text: str) -> Program:
        tree = parse(text, self.tables.macros)
        place = Place(text)
        checked = check(tree, self.tables, place)
        issues = checked.issues or validate(checked, place, homogeneous=self.tables.homogeneous)
        if issues:
            raise CompileError(issues, text)
        compiler = Compiler(checked, self.tables)
        try:
            code = compiler.compile(checked.tree)
        except EvaluationError as error:
            raise ProgramError(str(error)) from None
        return Program(text, checked, self.tables, code, compiler.globals, compiler.slots)


def _tables(libraries: Sequence[Library], homogeneous: bool, container: str) -> Tables:
    """Return the tables of libraries without variables."""
    names: dict[str, Declaration] = {}
    functions: dict[str, tuple[Overload, ...]] = {}
    macros: dict[tuple[str, int, bool], Macro] = {}
    objects: dict[str, Type] = {}
    costs: dict[str, tuple[RuntimeCost, ...]] = {}
    estimates: dict[str, tuple[Estimate, ...]] = {}
    find_type: Callable[[str], Type | None] | None = None
    for library in (STANDARD, OPTIONAL, *libraries):
        for function in library.functions:
            functions[function.name] = _merge(functions.get(function.name, ()), function.overloads)
        for macro in library.macros:
            macros[macro.name, -1 if macro.arguments is None else macro.arguments, macro.member] = macro
        for name, (of, value) in library.constants.items():
            names[name] = Declaration(name, of, True, value)
        for of in library.types:
            _add_type(names, objects, of)
        for name, cost in library.costs.items():
            costs[name] = (cost, *costs.get(name, ()))
        for name, estimate in library.estimates.items():
            estimates[name] = (estimate, *estimates.get(name, ()))
        find_type = library.find_type or find_type
    return Tables(
        names=names,
        functions=functions,
        macros=macros,
        objects=objects,
        costs=costs,
        estimates=estimates,
        container=container,
        homogeneous=homogeneous,
        find_type=find_type,
    )


def _merge(before: tuple[Overload, ...], added: tuple[Overload, ...]) -> tuple[Overload, ...]:
    """Merge overloads by id; an overload that another library repeats replaces the first."""
    ids = {overload.id for overload in added}
    return (*(overload for overload in before if overload.id not in ids), *added)


def _add_type(names: dict[str, Declaration], objects: dict[str, Type], of: Type) -> None:
    names[of.name] = Declaration(of.name, TypeType(of), True, TypeValue(of.name))
    if of.kind is Kind.OBJECT:
        objects[of.name] = of


def _with_names(base: Tables, variables: Mapping[str, Type], types: Sequence[Type]) -> Tables:
    names, objects = dict(base.names), dict(base.objects)
    for of in types:
        _add_type(names, objects, of)
    for name, of in variables.items():
        names[name] = Declaration(name, of)
    return replace(base, names=names, objects=objects)
