"""Typed tree to closures.

Called by the environment; the result becomes a Program. Each node is compiled once into a `Code`; constants are folded
where cel-go folds them, because folded expressions are free. Invariant: names, overloads and types come from the
checker only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from atoll.machinery.cel import patterns
from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.checker.scope import Tables
from atoll.machinery.cel.compiler import access, comprehensions, operators
from atoll.machinery.cel.compiler.activation import FIRST, Activation
from atoll.machinery.cel.compiler.calls import EntryCode, call_code, list_code, map_code, or_value, structure_code
from atoll.machinery.cel.compiler.code import Code, constant
from atoll.machinery.cel.compiler.error_costs import first_operand
from atoll.machinery.cel.cost.runtime_cost import LIST_COST, MAP_COST, STRUCT_COST, price
from atoll.machinery.cel.dispatch import dispatcher, is_open
from atoll.machinery.cel.functions import Overload
from atoll.machinery.cel.std.indexing import insert_new
from atoll.machinery.cel.structures import StructureType
from atoll.machinery.cel.syntax.ast import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)
from atoll.machinery.cel.types import Field, Kind, ObjectType, Type
from atoll.machinery.cel.values import UInt

#: Calls that cel-go evaluates at planning time if their argument is a literal.
_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
#: Nodes between two pauses.
_STRIDE: Final = 63
_TEXT: Final = frozenset({Kind.STRING, Kind.BYTES})
_PLAIN: Final = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES})
_NUMBERS: Final = frozenset({Kind.INT, Kind.UINT})
_SET_KINDS: Final = frozenset({bool, int, UInt, float, str, type(None)})


class Compiler:
    """Compiles one tree. `globals` maps each variable in use to its slot; `slots` counts all slots."""

    def __init__(self, checked: CheckedExpr, tables: Tables) -> None:
        self.checked = checked
        self.tables = tables
        self.nodes = 0
        self.globals: dict[str, int] = {}
        self.locals: list[tuple[str, Callable[[], Code]]] = []
        self.used = _variables(checked)
        for name in self.used:
            self.globals[name] = FIRST + len(self.globals)
        self.slots = FIRST + len(self.globals)

    def compile(self, expr: Expr) -> Code:
        """Return the code of a node."""
        self.nodes += 1
        if self.nodes & _STRIDE == _STRIDE:
            yield_to_loop()
        return _COMPILERS[type(expr)](self, expr)

    def type(self, expr: Expr) -> Type:
        """Return the checked type of a node."""
        return self.checked.types[expr.id]

    # --- leaves

    def literal(self, expr: Literal) -> Code:
        return constant(expr.value)

    def ident(self, expr: Ident) -> Code:
        declaration = self.checked.names[expr.id]
        if declaration.is_global:
            return self._global(expr.id)
        return next(make() for name, make in reversed(self.locals) if name == expr.name)

    def _global(self, id: int) -> Code:
        declaration = self.checked.names[id]
        if declaration.constant:
            return constant(declaration.value)
        return access.variable(self.globals[declaration.name])

    def select(self, expr: Select) -> Code:
        if expr.id in self.checked.names:
            return self._global(expr.id)
        operand, of = self.compile(expr.operand), self.type(expr.operand)
        return access.has(operand, of, expr.field) if expr.test else access.select(operand, of, expr.field)

    # --- calls

    def call(self, expr: Call) -> Code:
        special = _SPECIAL.get(expr.function)
        if special is not None:
            return special(self, expr)
        arguments = expr.arguments if expr.target is None else [expr.target, *expr.arguments]
        codes = [self.compile(argument) for argument in arguments]
        overloads = self.checked.overloads[expr.id]
        types = [self.type(argument) for argument in arguments]
        if overloads[0].id in ("optional_or_optional", "optional_orValue_value") and len(overloads) == 1:
            return or_value(codes[0], codes[1], unwrap=expr.function == "orValue")
        if expr.function in _CONVERSIONS and codes[0].is_constant:
            return constant(dispatcher(expr.function, overloads)(codes[0].constant))
        return self._general(expr, overloads, codes, types)

    def _general(self, expr: Call, overloads: tuple[Overload, ...], codes: list[Code], types: list[Type]) -> Code:
        cost = price(self.tables, expr.function, overloads, types, dispatched=len(overloads) > 1)
        only = overloads[0]
        written = codes[only.pattern_at].constant if only.pattern_at is not None else None
        is_planned = isinstance(written, str)
        if isinstance(written, str):
            patterns.compile_pattern(written)
        if len(overloads) == 1 and (not only.guarded or not any(map(_needs_guard, types, only.parameters))):
            binary = operators.BINARY.get(only.id)
            if binary is not None and isinstance(cost, int):
                return Code(binary(first_operand(*codes), codes[1].run), codes[0].cost + codes[1].cost + cost)
            is_match = only.id in ("matches", "matches_string") and codes[1].is_constant
            return call_code(only.call, codes, cost, stops=is_planned or is_match)
        return call_code(dispatcher(expr.function, overloads), codes, cost, stops=is_planned)

    def logic(self, expr: Call) -> Code:
        terms: list[Expr] = []
        _flatten(expr, expr.function, terms)
        return operators.logic([self.compile(term) for term in terms], expr.function == "_||_")

    def conditional(self, expr: Call) -> Code:
        condition, if_true, if_false = map(self.compile, expr.arguments)
        return operators.conditional(condition, if_true, if_false)

    def negation(self, expr: Call) -> Code:
        operand = self.compile(expr.arguments[0])
        return Code(operators.negation(operand.run), operand.cost + 1)

    def equality(self, expr: Call) -> Code:
        left, right = (self.compile(argument) for argument in expr.arguments)
        types = [self.type(argument) for argument in expr.arguments]
        overloads = self.checked.overloads[expr.id]
        cost = price(self.tables, expr.function, overloads, types, dispatched=False)
        kinds = {of.kind for of in types}
        negated = expr.function == "_!=_"
        if len(kinds) == 1 and kinds <= _PLAIN and not any(of.nullable for of in types):
            if isinstance(cost, int):
                run = operators.equal_plain(first_operand(left, right), right.run, negated)
                return Code(run, left.cost + right.cost + cost)
            if kinds <= _TEXT:
                return Code(operators.equal_text(left.run, right.run, negated), left.cost + right.cost)
        return call_code(overloads[0].call, [left, right], cost)

    def member(self, expr: Call) -> Code:
        value, of = (self.compile(argument) for argument in expr.arguments)
        types = [self.type(argument) for argument in expr.arguments]
        overloads = self.checked.overloads[expr.id]
        literals = of.is_constant and isinstance(of.constant, list) and len(overloads) == 1
        if literals and all(type(item) in _SET_KINDS for item in of.constant):
            kind = types[0].kind
            return operators.member_of_constants(
                value, of.constant, texts=kind is Kind.STRING, numbers=kind in _NUMBERS
            )
        return self._general(expr, overloads, [value, of], types)

    def index(self, expr: Call) -> Code:
        operand, at = (self.compile(argument) for argument in expr.arguments)
        of, key_type = (self.type(argument) for argument in expr.arguments)
        return access.index(operand, of, at, key_type)

    def optional_index(self, expr: Call) -> Code:
        operand, at = (self.compile(argument) for argument in expr.arguments)
        return access.optional_index(operand, at)

    def optional_select(self, expr: Call) -> Code:
        operand, field = expr.arguments
        assert isinstance(field, Literal)
        return access.optional_select(self.compile(operand), self.type(operand), field.value)

    # --- literals of collections

    def list(self, expr: ListExpr) -> Code:
        items = [self.compile(item) for item in expr.items]
        code = list_code(items, expr.optional, LIST_COST)
        return _constant_of_constants(code, all(item.is_constant for item in items))

    def map(self, expr: MapExpr) -> Code:
        entries = []
        for entry in expr.entries:
            assert entry.key is not None
            entries.append(EntryCode(self.compile(entry.key), self.compile(entry.value), entry.optional))
        code = map_code(entries, MAP_COST)
        return _constant_of_constants(code, all(entry.key.is_constant and entry.value.is_constant for entry in entries))

    def struct(self, expr: StructExpr) -> Code:
        of = self.tables.object_type(self.type(expr).name)
        fields: Mapping[str, Field] = of.fields if isinstance(of, ObjectType) else {}
        entries = []
        for entry in expr.entries:
            field = fields.get(entry.field)
            name = entry.field if field is None or field.name is None else field.name
            entries.append(EntryCode(constant(name), self.compile(entry.value), entry.optional))
        code = map_code(entries, STRUCT_COST)
        return structure_code(of, code) if isinstance(of, StructureType) else code

    # --- comprehensions

    def comprehension(self, expr: Comprehension) -> Code:
        if expr.accumulator != ACCUMULATOR:
            return self._bind(expr)
        over = self.compile(expr.range)
        first = self._slot()
        second = self._slot() if expr.variable2 else -1
        loop = comprehensions.Loop(over, first, second, self._slot())
        self.locals.append((expr.accumulator, lambda: access.variable(loop.accumulator)))
        init = self.compile(expr.init)
        self.locals.append((expr.variable, lambda: access.variable(first)))
        if expr.variable2:
            self.locals.append((expr.variable2, lambda: access.variable(second)))
        depth = len(self.locals)
        code = self._macro_loop(expr, loop, init)
        del self.locals[depth - (3 if expr.variable2 else 2) :]
        return code

    def _macro_loop(self, expr: Comprehension, loop: comprehensions.Loop, init: Code) -> Code:
        """Return the loop of the macro that made the comprehension, recognized by its initial value and its step."""
        step = expr.step
        assert isinstance(step, Call)
        if step.function in ("_&&_", "_||_"):
            stop = step.function == "_||_"
            return comprehensions.quantifier(loop, self.compile(step.arguments[1]), stop, 3 if stop else 2)
        condition: Expr | None = None
        if step.function == "_?_:_":
            condition, taken = step.arguments[0], step.arguments[1]
            assert isinstance(taken, Call)
            step = taken
        if isinstance(expr.init, Literal):
            assert condition is not None
            return comprehensions.count(loop, self.compile(condition))
        test = None if condition is None else self.compile(condition)
        if isinstance(expr.init, ListExpr):
            return self._transform_list(loop, test, step)
        return self._transform_map(loop, test, step)

    def _transform_list(self, loop: comprehensions.Loop, test: Code | None, step: Call) -> Code:
        item = step.arguments[1]
        assert isinstance(item, ListExpr)
        value = self.compile(item.items[0])
        # The step reads the list, makes a list of one item (free if constant) and adds the two.
        cost = 2 + (0 if value.is_constant else LIST_COST + value.cost)
        return comprehensions.transform_list(loop, comprehensions.Step(test, value, cost))

    def _transform_map(self, loop: comprehensions.Loop, test: Code | None, step: Call) -> Code:
        if len(step.arguments) == 3:
            key, value = (self.compile(argument) for argument in step.arguments[1:])
            cost = 2 + key.cost + value.cost
            key_run, value_run = key.run, value.run

            def insert(activation: Activation, entries: dict[Any, Any]) -> None:
                insert_new(entries, key_run(activation), value_run(activation))

            return comprehensions.transform_map(loop, comprehensions.Step(test, value, cost), insert)
        added = self.compile(step.arguments[1])
        added_run = added.run

        def insert_all(activation: Activation, entries: dict[Any, Any]) -> None:
            for key, value in added_run(activation).items():
                insert_new(entries, key, value)

        return comprehensions.transform_map(loop, comprehensions.Step(test, added, 2 + added.cost), insert_all)

    def _bind(self, expr: Comprehension) -> Code:
        value = self.compile(expr.init)
        slot = self._slot()
        self.locals.append((expr.accumulator, lambda: comprehensions.bound_variable(slot, value)))
        result = self.compile(expr.result)
        self.locals.pop()
        return comprehensions.bind(slot, result)

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1


def _needs_guard(given: Type, parameter: Type) -> bool:
    """Report whether values of a static type need a test before they are passed to a parameter."""
    if parameter.kind in (Kind.PARAMETER, Kind.DYN, Kind.ANY):
        return False
    if is_open(given) or given.kind is Kind.NULL:
        return True
    return any(map(_needs_guard, given.parameters, parameter.parameters))


def _flatten(expr: Expr, function: str, terms: list[Expr]) -> None:
    if isinstance(expr, Call) and expr.function == function and expr.target is None:
        for argument in expr.arguments:
            _flatten(argument, function, terms)
    else:
        terms.append(expr)


def _constant_of_constants(code: Code, is_constant: bool) -> Code:
    """Return the constant of a literal of literals, which is made once; functions never change their arguments."""
    return constant(code.run([0, 0, None])) if is_constant else code


def _variables(checked: CheckedExpr) -> list[str]:
    """Return the variables of the environment that the expression uses, each once."""
    declarations = checked.names.values()
    return list(dict.fromkeys(each.name for each in declarations if each.is_global and not each.constant))


_COMPILERS: Final[dict[type[Expr], Callable[[Compiler, Any], Code]]] = {
    Literal: Compiler.literal,
    Ident: Compiler.ident,
    Select: Compiler.select,
    Call: Compiler.call,
    ListExpr: Compiler.list,
    MapExpr: Compiler.map,
    StructExpr: Compiler.struct,
    Comprehension: Compiler.comprehension,
}
_SPECIAL: Final = {
    "_&&_": Compiler.logic,
    "_||_": Compiler.logic,
    "_?_:_": Compiler.conditional,
    "!_": Compiler.negation,
    "_==_": Compiler.equality,
    "_!=_": Compiler.equality,
    "@in": Compiler.member,
    "_[_]": Compiler.index,
    "_[?_]": Compiler.optional_index,
    "_?._": Compiler.optional_select,
}
