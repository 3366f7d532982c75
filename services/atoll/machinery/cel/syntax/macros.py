"""The standard macros of the language: `has`, `all`, `exists`, `exists_one`, `map` and `filter`.

Called by the parser through `expansion`. Invariant: the expanded trees are those of cel-go, node for node, because the
cost of an expression is the cost of its tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from atoll.machinery.cel.syntax.ast import ACCUMULATOR, Expr, Ident, LoopParts, LoopVariables, Select
from atoll.machinery.cel.syntax.expansion import Expander, Macro

_SIMPLE_NAME: Final = "argument must be a simple name"
_IDENTIFIER: Final = "argument is not an identifier"


def iteration_variable(expander: Expander, expr: Expr, message: str = _SIMPLE_NAME) -> str:
    """Return the name of an iteration variable. Raises MacroError with the message for any other expression."""
    if not isinstance(expr, Ident):
        raise expander.error(expr, message)
    if expr.name in (ACCUMULATOR, "__result__"):
        raise expander.error(expr, "iteration variable overwrites accumulator variable")
    return expr.name


def all_loop(e: Expander, target: Expr, variables: LoopVariables, predicate: Expr) -> Expr:
    """Return the loop of `all`: it stops at the first false, and a later false absorbs errors."""
    condition = e.call("@not_strictly_false", e.accumulator())
    step = e.call("_&&_", e.accumulator(), predicate)
    return e.comprehension(target, variables, LoopParts(e.literal(True), condition, step, e.accumulator()))


def exists_loop(e: Expander, target: Expr, variables: LoopVariables, predicate: Expr) -> Expr:
    """Return the loop of `exists`: it stops at the first true, and a later true absorbs errors."""
    condition = e.call("@not_strictly_false", e.call("!_", e.accumulator()))
    step = e.call("_||_", e.accumulator(), predicate)
    return e.comprehension(target, variables, LoopParts(e.literal(False), condition, step, e.accumulator()))


def exists_one_loop(e: Expander, target: Expr, variables: LoopVariables, predicate: Expr) -> Expr:
    """Return the loop of `exists_one`: it counts over the whole range and absorbs no error."""
    more = e.call("_+_", e.accumulator(), e.literal(1))
    step = e.call("_?_:_", predicate, more, e.accumulator())
    result = e.call("_==_", e.accumulator(), e.literal(1))
    return e.comprehension(target, variables, LoopParts(e.literal(0), e.literal(True), step, result))


def _has(e: Expander, _target: Any, arguments: Sequence[Expr]) -> Expr:
    argument = arguments[0]
    if not isinstance(argument, Select) or argument.test:
        raise e.error(argument, "invalid argument to has() macro")
    return e.select(argument.operand, argument.field, test=True)


def _all(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return all_loop(e, target, LoopVariables(iteration_variable(e, arguments[0])), arguments[1])


def _exists(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return exists_loop(e, target, LoopVariables(iteration_variable(e, arguments[0])), arguments[1])


def _exists_one(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return exists_one_loop(e, target, LoopVariables(iteration_variable(e, arguments[0])), arguments[1])


def _map(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    variables = LoopVariables(iteration_variable(e, arguments[0], _IDENTIFIER))
    init = e.list()
    step = e.call("_+_", e.accumulator(), e.list(arguments[-1]))
    if len(arguments) == 3:
        step = e.call("_?_:_", arguments[1], step, e.accumulator())
    return e.comprehension(target, variables, LoopParts(init, e.literal(True), step, e.accumulator()))


def _filter(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    variables = LoopVariables(iteration_variable(e, arguments[0], _IDENTIFIER))
    init = e.list()
    step = e.call("_+_", e.accumulator(), e.list(arguments[0]))
    step = e.call("_?_:_", arguments[1], step, e.accumulator())
    return e.comprehension(target, variables, LoopParts(init, e.literal(True), step, e.accumulator()))


#: `map` with two arguments; `sortBy` expands through it.
MAP: Final = Macro("map", 2, True, _map)
STANDARD: Final = (
    Macro("has", 1, False, _has),
    Macro("all", 2, True, _all),
    Macro("exists", 2, True, _exists),
    Macro("exists_one", 2, True, _exists_one),
    Macro("existsOne", 2, True, _exists_one),
    MAP,
    Macro("map", 3, True, _map),
    Macro("filter", 2, True, _filter),
)
