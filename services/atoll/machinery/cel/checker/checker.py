"""Type checking: resolves every name, field and call of an expression, or reports issues in cel-go's words.

Called by the environment between parser and compiler. It annotates by expression id: a type for each expression, and
the declarations of names and calls. Invariant: an expression with an issue has the type error, which every other type
accepts, so one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.checker.scope import Declaration, Scope, Tables
from atoll.machinery.cel.checker.unification import Bindings, most_general, signature
from atoll.machinery.cel.errors import Issue
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.syntax.ast import (
    Call,
    Comprehension,
    Entry,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Place,
    Select,
    StructExpr,
)
from atoll.machinery.cel.syntax.ast import qualified_name as qualified
from atoll.machinery.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Kind,
    ListType,
    MapType,
    ObjectType,
    OptionalType,
    Type,
    TypeParameter,
    is_dyn,
    is_optional,
)
from atoll.machinery.cel.values import type_of

#: Nodes between two pauses.
_STRIDE: Final = 63
_LOGICAL = frozenset({"_&&_", "_||_"})


@dataclass(slots=True)
class CheckedExpr:
    """The tree with its annotations. `names` maps identifiers and dotted names to their declarations."""

    tree: Expr
    types: dict[int, Type]
    names: dict[int, Declaration]
    overloads: dict[int, tuple[Overload, ...]]
    issues: list[Issue]


def check(tree: Expr, tables: Tables, place: Place) -> CheckedExpr:
    """Check a tree. The caller reads `issues`."""
    checker = _Checker(tables, place)
    checker.check(tree)
    types = {id: checker.bindings.resolve(t, free_to_dyn=True) for id, t in checker.types.items()}
    return CheckedExpr(tree, types, checker.names, checker.overloads, checker.issues)


class _Checker:
    def __init__(self, tables: Tables, place: Place) -> None:
        self.tables = tables
        self.place = place
        self.bindings = Bindings()
        self.types: dict[int, Type] = {}
        self.names: dict[int, Declaration] = {}
        self.overloads: dict[int, tuple[Overload, ...]] = {}
        self.issues: list[Issue] = []
        self.scope = Scope({}, None)
        self.fresh = 0

    def check(self, expr: Expr) -> Type:
        if len(self.types) & _STRIDE == _STRIDE:
            yield_to_loop()
        result = _CHECKS[type(expr)](self, expr)
        self.types[expr.id] = result
        return result

    # --- leaves

    def literal(self, expr: Literal) -> Type:
        return type_of(expr.value)

    def ident(self, expr: Ident) -> Type:
        found = self._lookup(expr.name)
        if found is None:
            return self._undeclared(expr, expr.name)
        self.names[expr.id] = found
        expr.name = found.name
        return found.type

    def select(self, expr: Select) -> Type:
        if not expr.test:
            name = qualified(expr)
            found = None if name is None or self._is_local(name) else self._lookup(name)
            if found is not None:
                self.names[expr.id] = found
                return found.type
        result = self._field(expr, expr.operand, expr.field, False)
        return BOOL if expr.test else self.bindings.resolve(result)

    def _field(self, expr: Expr, operand: Expr, field: str, optional: bool) -> Type:
        operand_type = self.bindings.resolve(self.check(operand))
        wrapped = is_optional(operand_type)
        target = operand_type.parameters[0] if wrapped else operand_type
        result = DYN
        if target.kind is Kind.MAP:
            result = target.parameters[1]
        elif target.kind is Kind.OBJECT:
            result = self._object_field(expr, target, field)
        elif target.kind is Kind.PARAMETER:
            self.bindings.assignable(DYN, target)
        elif not is_dyn(target) and target.kind is not Kind.ERROR:
            self._report(expr, f"type '{target}' does not support field selection")
        return OptionalType(result) if wrapped or optional else result

    def _object_field(self, expr: Expr, target: Type, field: str) -> Type:
        declared = target if isinstance(target, ObjectType) else self.tables.object_type(target.name)
        found = declared.fields.get(field) if isinstance(declared, ObjectType) else None
        if found is None:
            self._report(expr, f"undefined field '{field}'")
            return ERROR
        return found.type

    # --- calls

    def call(self, expr: Call) -> Type:
        if expr.function == "_?._" and expr.target is None:
            return self._optional_select(expr)
        argument_types = [self.check(argument) for argument in expr.arguments]
        if expr.target is None:
            return self._global_call(expr, argument_types)
        prefix = qualified(expr.target)
        found = None if prefix is None else self._function(f"{prefix}.{expr.function}")
        if found is not None:
            expr.target = None
            return self._resolve(expr, found, argument_types)
        target = self.check(expr.target)
        found = self._function(expr.function)
        if found is None:
            return self._undeclared(expr, expr.function)
        return self._resolve(expr, found, [target, *argument_types])

    def _global_call(self, expr: Call, argument_types: list[Type]) -> Type:
        found = self._function(expr.function)
        if found is None:
            return self._undeclared(expr, expr.function)
        return self._resolve(expr, found, argument_types)

    def _optional_select(self, expr: Call) -> Type:
        operand, field = expr.arguments
        assert isinstance(field, Literal)
        self.check(field)
        return self.bindings.resolve(self._field(expr, operand, field.value, True))

    def _resolve(self, expr: Call, function: Function, argument_types: list[Type]) -> Type:
        expr.function, overloads = function.name, function.overloads
        if expr.function in _LOGICAL:
            return self._logical(expr, overloads, argument_types)
        member = expr.target is not None
        matching: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member is not member:
                continue
            parameters, overload_result = self._instance(overload)
            if not self.bindings.all_assignable(argument_types, parameters):
                continue
            matching.append(overload)
            this = self.bindings.resolve(overload_result)
            if result is None:
                result = this
            elif not is_dyn(result) and this != result:
                result = DYN
        if result is None:
            shown = signature([self.bindings.resolve(t, free_to_dyn=True) for t in argument_types], member)
            self._report(expr, f"found no matching overload for '{expr.function}' applied to '{shown}'")
            return ERROR
        self.overloads[expr.id] = tuple(matching)
        return result

    def _logical(self, expr: Call, overloads: tuple[Overload, ...], argument_types: list[Type]) -> Type:
        self.overloads[expr.id] = overloads[:1]
        result = BOOL
        for argument, found in zip(expr.arguments, argument_types, strict=True):
            if not self.bindings.assignable(found, BOOL):
                self._mismatch(argument, BOOL, found)
                result = ERROR
        return result

    def _instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Return the signature with fresh variables for its type parameters."""
        named: dict[str, Type] = {}
        parameters = tuple(self._instantiate(p, named) for p in overload.parameters)
        return parameters, self._instantiate(overload.result, named)

    def _instantiate(self, of: Type, named: dict[str, Type]) -> Type:
        if of.kind is Kind.PARAMETER:
            if of.name not in named:
                named[of.name] = self._variable()
            return named[of.name]
        if not of.parameters:
            return of
        return Type(of.kind, of.name, tuple(self._instantiate(p, named) for p in of.parameters))

    # --- literals of collections

    def list(self, expr: ListExpr) -> Type:
        items: Type | None = None
        for index, item in enumerate(expr.items):
            found = self.check(item)
            if index in expr.optional:
                found = self._unwrap_optional(item, found)
            items = self._join(items, found)
        return ListType(self._variable() if items is None else items)

    def map(self, expr: MapExpr) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for entry in expr.entries:
            assert entry.key is not None
            keys = self._join(keys, self.check(entry.key))
            values = self._join(values, self._entry_value(entry))
        if keys is None or values is None:
            return MapType(self._variable(), self._variable())
        return MapType(keys, values)

    def struct(self, expr: StructExpr) -> Type:
        found = self._lookup(expr.name)
        if found is None:
            return self._undeclared(expr, expr.name)
        of = found.type.parameters[0] if found.type.kind is Kind.TYPE and found.type.parameters else None
        if of is None:
            self._report(expr, f"'{found.type}' is not a type")
        elif of.kind is not Kind.OBJECT:
            self._report(expr, f"'{of}' is not a message type")
            of = None
        if of is not None:
            expr.name = of.name
        for entry in expr.entries:
            value = self._entry_value(entry)
            field = ERROR if of is None else self._object_field(entry, of, entry.field)
            if not self.bindings.assignable(field, value):
                self._report(
                    entry, f"expected type of field '{entry.field}' is '{field}' but provided type is '{value}'"
                )
        return ERROR if of is None else of

    def _entry_value(self, entry: Entry) -> Type:
        found = self.check(entry.value)
        return self._unwrap_optional(entry.value, found) if entry.optional else found

    def _unwrap_optional(self, expr: Expr, found: Type) -> Type:
        if is_optional(found):
            return found.parameters[0]
        if not is_dyn(found):
            self._mismatch(expr, OptionalType(found), found)
        return found

    def _join(self, before: Type | None, found: Type) -> Type:
        """Return the common type of the items so far; mixed items are dyn (`validators` rejects them if the environment
        is homogeneous).
        """
        if before is None:
            return found
        if self.bindings.assignable(before, found):
            return most_general(before, found)
        return DYN

    # --- comprehensions

    def comprehension(self, expr: Comprehension) -> Type:
        self.check(expr.range)
        accumulated = self.check(expr.init)
        over = self.bindings.resolve(self.types[expr.range.id])
        self.scope = Scope({expr.accumulator: accumulated}, self.scope)
        first, second = self._variable_types(expr, over)
        variables = {expr.variable: first}
        if expr.variable2:
            variables[expr.variable2] = second
        self.scope = Scope(variables, self.scope)
        self._require(expr.condition, self.check(expr.condition), BOOL)
        self._require(expr.step, self.check(expr.step), accumulated)
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        result = self.check(expr.result)
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        return self.bindings.resolve(result)

    def _variable_types(self, expr: Comprehension, over: Type) -> tuple[Type, Type]:
        """Return the types of the two variables; the second has no meaning in the form with one."""
        if over.kind is Kind.LIST:
            return (INT, over.parameters[0]) if expr.variable2 else (over.parameters[0], ERROR)
        if over.kind is Kind.MAP:
            return over.parameters[0], over.parameters[1]
        if over.kind in (Kind.DYN, Kind.ERROR, Kind.PARAMETER):
            self.bindings.assignable(DYN, over)
            return DYN, DYN
        self._report(
            expr.range,
            f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return ERROR, ERROR

    def _require(self, expr: Expr, found: Type, wanted: Type) -> None:
        if not self.bindings.assignable(wanted, found):
            self._mismatch(expr, wanted, found)

    # --- names

    def _is_local(self, name: str) -> bool:
        """Report whether a dotted name starts with a loop variable, which hides all global names."""
        return self.scope.find(name.partition(".")[0]) is not None

    def _lookup(self, name: str) -> Declaration | None:
        local = self.scope.find(name)
        if local is not None:
            return Declaration(name, local, is_global=False)
        for candidate in self.tables.candidates(name):
            found = self.tables.declaration(candidate)
            if found is not None:
                return found
        return None

    def _function(self, name: str) -> Function | None:
        for candidate in self.tables.candidates(name):
            found = self.tables.functions.get(candidate)
            if found is not None:
                return Function(candidate, found)
        return None

    def _variable(self) -> Type:
        self.fresh += 1
        return TypeParameter(f"_var{self.fresh - 1}")

    # --- issues

    def _undeclared(self, expr: Expr, name: str) -> Type:
        self._report(expr, f"undeclared reference to '{name}' (in container '{self.tables.container}')")
        return ERROR

    def _mismatch(self, expr: Expr, wanted: Type, found: Type) -> None:
        self._report(expr, f"expected type '{wanted}' but found '{found}'")

    def _report(self, expr: Expr, message: str) -> None:
        line, column = self.place.of(expr.offset)
        self.issues.append(Issue(line, column, message))


_CHECKS: Final[dict[type[Expr], Callable[[_Checker, Any], Type]]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListExpr: _Checker.list,
    MapExpr: _Checker.map,
    StructExpr: _Checker.struct,
    Comprehension: _Checker.comprehension,
}
