"""The syntax tree of an expression.

The parser and its macros make it, the checker annotates it by `id`, the compiler and the estimate read it. Invariant:
ids are unique within a tree; a macro that uses an expression twice copies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple


class Expr:
    """Base class of all nodes. `offset` is the position, in code points, of the token that names the node."""

    __slots__ = ("id", "offset")

    def __init__(self, id: int, offset: int) -> None:
        self.id = id
        self.offset = offset


class Literal(Expr):
    """A scalar: bool, int, UInt, float, str, bytes or None."""

    __slots__ = ("value",)

    def __init__(self, id: int, offset: int, value: Any) -> None:
        super().__init__(id, offset)
        self.value = value


class Ident(Expr):
    """A name; the checker replaces it by the qualified name."""

    __slots__ = ("name",)

    def __init__(self, id: int, offset: int, name: str) -> None:
        super().__init__(id, offset)
        self.name = name


class Select(Expr):
    """`operand.field`, or its presence test (`has(operand.field)`)."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, id: int, offset: int, operand: Expr, field: str, test: bool = False) -> None:
        super().__init__(id, offset)
        self.operand = operand
        self.field = field
        self.test = test


class Call(Expr):
    """A function call; `target` is None for calls without a receiver."""

    __slots__ = ("arguments", "function", "target")

    def __init__(
        self, id: int, offset: int, function: str, arguments: Sequence[Expr], target: Expr | None = None
    ) -> None:
        super().__init__(id, offset)
        self.function = function
        self.arguments = list(arguments)
        self.target = target


class ListExpr(Expr):
    """`[a, ?b]`; `optional` holds the indices of the items marked with `?`."""

    __slots__ = ("items", "optional")

    def __init__(self, id: int, offset: int, items: Sequence[Expr], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(id, offset)
        self.items = list(items)
        self.optional = optional


class Entry(Expr):
    """One `key: value` of a map, or one `field: value` of a struct, whose `key` is None."""

    __slots__ = ("field", "key", "optional", "value")

    def __init__(
        self, id: int, offset: int, key: Expr | None, value: Expr, optional: bool = False, field: str = ""
    ) -> None:
        super().__init__(id, offset)
        self.key = key
        self.value = value
        self.optional = optional
        self.field = field


class MapExpr(Expr):
    """`{k: v, ?k: v}`."""

    __slots__ = ("entries",)

    def __init__(self, id: int, offset: int, entries: Sequence[Entry]) -> None:
        super().__init__(id, offset)
        self.entries = list(entries)


class StructExpr(Expr):
    """`Name{field: v}`."""

    __slots__ = ("entries", "name")

    def __init__(self, id: int, offset: int, name: str, entries: Sequence[Entry]) -> None:
        super().__init__(id, offset)
        self.name = name
        self.entries = list(entries)


#: The variable in which comprehensions accumulate their result; no source text can name it.
ACCUMULATOR: Final = "@result"


class LoopVariables(NamedTuple):
    """The names that a comprehension declares. `second` is "" in the form with one variable."""

    first: str
    second: str = ""
    accumulator: str = ACCUMULATOR


class LoopParts(NamedTuple):
    """The expressions of a comprehension other than its range, in cel-go's order."""

    init: Expr
    condition: Expr
    step: Expr
    result: Expr


class Comprehension(Expr):
    """A loop: the expansion of a macro over lists and maps. `variable2` is "" in the form with one variable."""

    __slots__ = ("accumulator", "condition", "init", "range", "result", "step", "variable", "variable2")

    def __init__(self, id: int, offset: int, range: Expr, variables: LoopVariables, parts: LoopParts) -> None:
        super().__init__(id, offset)
        self.range = range
        self.variable, self.variable2, self.accumulator = variables
        self.init, self.condition, self.step, self.result = parts


def children(expr: Expr) -> list[Expr]:
    """Return the expressions directly below, from left to right."""
    if isinstance(expr, Select):
        return [expr.operand]
    if isinstance(expr, Call):
        return ([] if expr.target is None else [expr.target]) + expr.arguments
    if isinstance(expr, ListExpr):
        return expr.items
    if isinstance(expr, MapExpr | StructExpr):
        return [part for entry in expr.entries for part in (entry.key, entry.value) if part is not None]
    if isinstance(expr, Comprehension):
        return [expr.range, expr.init, expr.condition, expr.step, expr.result]
    return []


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all expressions below it, parents first, from left to right."""
    stack = [expr]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def qualified_name(expr: Expr) -> str | None:
    """Return `a.b.c` if the expression consists of names only, else None."""
    if isinstance(expr, Ident):
        return expr.name
    if isinstance(expr, Select) and not expr.test:
        prefix = qualified_name(expr.operand)
        return None if prefix is None else f"{prefix}.{expr.field}"
    return None


class Place:
    """Converts offsets in one text to lines (from 1) and columns (from 0)."""

    __slots__ = ("_starts",)

    def __init__(self, text: str) -> None:
        starts = [0]
        at = text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = text.find("\n", at + 1)
        self._starts = starts

    def of(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset; (-1, -1) for the offset -1 of an issue without position, which cel-go
        prints as -1:0.
        """
        if offset < 0:
            return -1, -1
        low, high = 0, len(self._starts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._starts[middle] <= offset:
                low = middle
            else:
                high = middle - 1
        return low + 1, offset - self._starts[low]
