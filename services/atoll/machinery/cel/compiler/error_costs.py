"""What is charged where an expression fails: cel-go goes on for a while after an error, and so does the price.

Used by the closures of calls, operators and literals. An error may be absorbed by `&&`, `||` or a fold, and the cost
counts on. Calls of one or two arguments evaluate both and charge for themselves, an error being of size 1; longer ones
and list literals stop at the first error, and what was charged for the rest in advance is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, Activation, Eval
from atoll.machinery.cel.compiler.code import Code


class ErrorValue:
    """Stands for an error where sizes are asked for."""

    def __len__(self) -> int:
        return 1


ERROR_VALUE: Final = ErrorValue()


def value_or_error(run: Eval, activation: Activation) -> Any:
    """The value, or FAILED; what was spent on it is charged either way."""
    try:
        return run(activation)
    except ABSORBED:
        return ERROR_VALUE


def first_operand(first: Code, second: Code) -> Eval:
    """The first of two operands: when it fails, the second is evaluated all the same."""
    run_first, run_second = first.run, second.run
    if second.is_constant or (second.slot >= 0 and len(second.keys) < 2):
        # All that these cost is charged in advance.
        return run_first

    def run(activation: Activation) -> Any:
        try:
            return run_first(activation)
        except ABSORBED:
            value_or_error(run_second, activation)
            raise

    return run


def costs_after(codes: Sequence[Code], own_cost: int = 0) -> list[int]:
    """For each place what is not done when it fails: the costs of all behind it, and `own_cost` unless it is last."""
    last = len(codes) - 1
    return [sum(code.cost for code in codes[at + 1 :]) + (own_cost if at < last else 0) for at in range(len(codes))]


def evaluate_in_order(codes: Sequence[Code], own_cost: int = 0) -> Callable[[Activation], list[Any]]:
    """All values. The first error ends it and gives back what was charged in advance: the cost of those behind it and,
    if there are any, `own_cost` for what is not done with them."""
    runs = [code.run for code in codes]
    behind = costs_after(codes, own_cost)

    def run(activation: Activation) -> list[Any]:
        made: list[Any] = []
        try:
            for each in runs:
                made.append(each(activation))
        except ABSORBED:
            activation[COST] -= behind[len(made)]
            raise
        return made

    return run


def failed_call_price(price: Callable[[Sequence[Any], Any], int], arguments: Sequence[Any]) -> int:
    """The price of a call that failed or of whose arguments one did."""
    try:
        return price(arguments, ERROR_VALUE)
    except TypeError:
        # The price reckons with the value itself, not with its size.
        return 1
