"""The macros of the language: calls that become folds and presence tests before anything is checked.

Expanded by the parser. Invariant: the trees are those of cel-go, node for node, because the cost of an
expression is the cost of its tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from atoll.machinery.cel.ast import (
    Call,
    Comprehension,
    Entry,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)
from atoll.machinery.cel.bounds import breathe
from atoll.machinery.cel.functions import Macro

#: Nodes between two questions whether to pause.
_STRIDE: Final = 63
#: The variable in which folds gather their result; no text can name it.
ACCUMULATOR: Final = "@result"


class MacroError(Exception):
    """A macro was called in a form that it does not have."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


class Expander:
    """Makes the nodes of an expansion: fresh ids, all at the place of the macro's call."""

    __slots__ = ("_last", "offset")

    def __init__(self) -> None:
        self._last = 0
        self.offset = 0

    def id(self) -> int:
        """A fresh id."""
        self._last += 1
        if self._last & _STRIDE == _STRIDE:
            breathe()
        return self._last

    def error(self, expr: Expr, message: str) -> MacroError:
        """The error to raise about an argument."""
        return MacroError(expr.offset, message)

    def literal(self, value: Any) -> Expr:
        """A scalar."""
        return Literal(self.id(), self.offset, value)

    def ident(self, name: str) -> Expr:
        """A name."""
        return Ident(self.id(), self.offset, name)

    def accumulator(self) -> Expr:
        """The accumulator of the fold around."""
        return self.ident(ACCUMULATOR)

    def call(self, function: str, *arguments: Expr) -> Expr:
        """A call that is no member call."""
        return Call(self.id(), self.offset, function, arguments)

    def member_call(self, function: str, target: Expr, *arguments: Expr) -> Expr:
        """A member call."""
        return Call(self.id(), self.offset, function, arguments, target)

    def list(self, *items: Expr) -> Expr:
        """A list."""
        return ListExpr(self.id(), self.offset, items)

    def map(self, *entries: Entry) -> Expr:
        """A map."""
        return MapExpr(self.id(), self.offset, entries)

    def entry(self, key: Expr, value: Expr) -> Entry:
        """An entry of a map."""
        return Entry(self.id(), self.offset, key, value)

    def select(self, operand: Expr, field: str, *, test: bool = False) -> Expr:
        """A selection or the presence test of one."""
        return Select(self.id(), self.offset, operand, field, test)

    def fold(  # noqa: PLR0913, PLR0917 - a fold has that many parts
        self,
        over: Expr,
        variables: tuple[str, str],
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
        accumulator: str = ACCUMULATOR,
    ) -> Expr:
        """A comprehension; the second variable is "" in the form with one."""
        names = (*variables, accumulator)
        return Comprehension(self.id(), self.offset, over, names, (init, condition, step, result))

    def copy(self, expr: Expr) -> Expr:
        """The same tree with fresh ids, for macros that use an argument twice."""
        if isinstance(expr, Literal):
            return Literal(self.id(), expr.offset, expr.value)
        if isinstance(expr, Ident):
            return Ident(self.id(), expr.offset, expr.name)
        if isinstance(expr, Select):
            return Select(self.id(), expr.offset, self.copy(expr.operand), expr.field, expr.test)
        if isinstance(expr, Call):
            target = None if expr.target is None else self.copy(expr.target)
            return Call(self.id(), expr.offset, expr.function, [self.copy(a) for a in expr.arguments], target)
        if isinstance(expr, ListExpr):
            return ListExpr(self.id(), expr.offset, [self.copy(item) for item in expr.items], expr.optional)
        if isinstance(expr, MapExpr):
            return MapExpr(self.id(), expr.offset, [self._copy_entry(entry) for entry in expr.entries])
        if isinstance(expr, StructExpr):
            return StructExpr(self.id(), expr.offset, expr.name, [self._copy_entry(entry) for entry in expr.entries])
        if isinstance(expr, Comprehension):
            parts = (self.copy(expr.init), self.copy(expr.condition), self.copy(expr.step), self.copy(expr.result))
            names = (expr.variable, expr.variable2, expr.accumulator)
            return Comprehension(self.id(), expr.offset, self.copy(expr.range), names, parts)
        raise TypeError(type(expr))

    def _copy_entry(self, entry: Entry) -> Entry:
        key = None if entry.key is None else self.copy(entry.key)
        return Entry(self.id(), entry.offset, key, self.copy(entry.value), entry.optional, entry.field)


def variable(expander: Expander, expr: Expr, message: str) -> str:
    """The name of an iteration variable. Raises MacroError when the argument is something else."""
    if not isinstance(expr, Ident):
        raise expander.error(expr, message)
    if expr.name in (ACCUMULATOR, "__result__"):
        raise expander.error(expr, "iteration variable overwrites accumulator variable")
    return expr.name


_SIMPLE_NAME: Final = "argument must be a simple name"
_IDENTIFIER: Final = "argument is not an identifier"


def all_fold(e: Expander, target: Expr, variables: tuple[str, str], predicate: Expr) -> Expr:
    """Stops at the first false; errors are absorbed by a later false."""
    condition = e.call("@not_strictly_false", e.accumulator())
    step = e.call("_&&_", e.accumulator(), predicate)
    return e.fold(target, variables, e.literal(True), condition, step, e.accumulator())


def exists_fold(e: Expander, target: Expr, variables: tuple[str, str], predicate: Expr) -> Expr:
    """Stops at the first true; errors are absorbed by a later true."""
    condition = e.call("@not_strictly_false", e.call("!_", e.accumulator()))
    step = e.call("_||_", e.accumulator(), predicate)
    return e.fold(target, variables, e.literal(False), condition, step, e.accumulator())


def exists_one_fold(e: Expander, target: Expr, variables: tuple[str, str], predicate: Expr) -> Expr:
    """Counts to the end, so that errors are never absorbed."""
    more = e.call("_+_", e.accumulator(), e.literal(1))
    step = e.call("_?_:_", predicate, more, e.accumulator())
    result = e.call("_==_", e.accumulator(), e.literal(1))
    return e.fold(target, variables, e.literal(0), e.literal(True), step, result)


def _has(e: Expander, _target: Any, arguments: Sequence[Expr]) -> Expr:
    argument = arguments[0]
    if not isinstance(argument, Select) or argument.test:
        raise e.error(argument, "invalid argument to has() macro")
    return e.select(argument.operand, argument.field, test=True)


def _all(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return all_fold(e, target, (variable(e, arguments[0], _SIMPLE_NAME), ""), arguments[1])


def _exists(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return exists_fold(e, target, (variable(e, arguments[0], _SIMPLE_NAME), ""), arguments[1])


def _exists_one(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return exists_one_fold(e, target, (variable(e, arguments[0], _SIMPLE_NAME), ""), arguments[1])


def _map(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    name = variable(e, arguments[0], _IDENTIFIER)
    init = e.list()
    step = e.call("_+_", e.accumulator(), e.list(arguments[-1]))
    if len(arguments) == 3:
        step = e.call("_?_:_", arguments[1], step, e.accumulator())
    return e.fold(target, (name, ""), init, e.literal(True), step, e.accumulator())


def _filter(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    name = variable(e, arguments[0], _IDENTIFIER)
    init = e.list()
    step = e.call("_+_", e.accumulator(), e.list(arguments[0]))
    step = e.call("_?_:_", arguments[1], step, e.accumulator())
    return e.fold(target, (name, ""), init, e.literal(True), step, e.accumulator())


STANDARD: Final = (
    Macro("has", 1, False, _has),
    Macro("all", 2, True, _all),
    Macro("exists", 2, True, _exists),
    Macro("exists_one", 2, True, _exists_one),
    Macro("existsOne", 2, True, _exists_one),
    Macro("map", 2, True, _map),
    Macro("map", 3, True, _map),
    Macro("filter", 2, True, _filter),
)
