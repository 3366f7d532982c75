"""Macro expansion: how a macro is declared, and the nodes that its expansion consists of.

Called by the parser, which expands calls while it reads them; `macros`, `std` and `ext` declare macros in these terms.
Invariant: every node gets a fresh id and the position of the macro's call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.syntax.ast import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Entry,
    Expr,
    Ident,
    ListExpr,
    Literal,
    LoopParts,
    LoopVariables,
    MapExpr,
    Select,
    StructExpr,
)

#: Nodes between two pauses.
_STRIDE: Final = 63


class MacroError(Exception):
    """A macro call has invalid arguments."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


class Expander:
    """Makes the nodes of an expansion, with fresh ids and at the position of the macro's call."""

    __slots__ = ("_last", "offset")

    def __init__(self) -> None:
        self._last = 0
        self.offset = 0

    def id(self) -> int:
        """Return a fresh id."""
        self._last += 1
        if self._last & _STRIDE == _STRIDE:
            yield_to_loop()
        return self._last

    def error(self, expr: Expr, message: str) -> MacroError:
        """Return the error to raise for an argument."""
        return MacroError(expr.offset, message)

    def literal(self, value: Any) -> Expr:
        """Return a scalar."""
        return Literal(self.id(), self.offset, value)

    def ident(self, name: str) -> Expr:
        """Return a name."""
        return Ident(self.id(), self.offset, name)

    def accumulator(self) -> Expr:
        """Return a reference to the accumulator of the enclosing loop."""
        return self.ident(ACCUMULATOR)

    def call(self, function: str, *arguments: Expr) -> Expr:
        """Return a call without a receiver."""
        return Call(self.id(), self.offset, function, arguments)

    def member_call(self, function: str, target: Expr, *arguments: Expr) -> Expr:
        """Return a call with a receiver."""
        return Call(self.id(), self.offset, function, arguments, target)

    def list(self, *items: Expr) -> Expr:
        """Return a list."""
        return ListExpr(self.id(), self.offset, items)

    def map(self, *entries: Entry) -> Expr:
        """Return a map."""
        return MapExpr(self.id(), self.offset, entries)

    def entry(self, key: Expr, value: Expr) -> Entry:
        """Return an entry of a map."""
        return Entry(self.id(), self.offset, key, value)

    def select(self, operand: Expr, field: str, *, test: bool = False) -> Expr:
        """Return a selection or its presence test."""
        return Select(self.id(), self.offset, operand, field, test)

    def comprehension(self, over: Expr, variables: LoopVariables, parts: LoopParts) -> Expr:
        """Return a loop over a list or a map."""
        return Comprehension(self.id(), self.offset, over, variables, parts)

    def copy(self, expr: Expr) -> Expr:
        """Return the same tree with fresh ids, for macros that use an argument twice."""
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
            parts = LoopParts(*map(self.copy, (expr.init, expr.condition, expr.step, expr.result)))
            variables = LoopVariables(expr.variable, expr.variable2, expr.accumulator)
            return Comprehension(self.id(), expr.offset, self.copy(expr.range), variables, parts)
        raise TypeError(type(expr))

    def _copy_entry(self, entry: Entry) -> Entry:
        key = None if entry.key is None else self.copy(entry.key)
        return Entry(self.id(), entry.offset, key, self.copy(entry.value), entry.optional, entry.field)


@dataclass(frozen=True, slots=True)
class Macro:
    """A call that is rewritten before checking.

    `arguments` is the number of arguments, None for any. `expand(expander, target, arguments)` returns the replacement,
    or None to leave the call as it is, or raises `expander.error(expr, message)`.
    """

    name: str
    arguments: int | None
    member: bool
    expand: Callable[[Expander, Any, list[Any]], Any]
