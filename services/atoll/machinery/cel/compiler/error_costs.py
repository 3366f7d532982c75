"""Costs of failing expressions: cel-go evaluates other operands after an error and charges for them.

Called by the closures of calls, operators and literals. `&&`, `||` or a loop may absorb an error, so the cost after it
counts. Calls of one or two arguments evaluate both and charge for themselves, with an error of size 1; longer calls and
list literals stop at the first error and refund the costs charged in advance for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, Activation, Eval
from atoll.machinery.cel.compiler.code import Code


class ErrorValue:
    """The stand-in for an error in the computation of sizes."""

    def __len__(self) -> int:
        return 1


ERROR_VALUE: Final = ErrorValue()


def value_or_error(run: Eval, activation: Activation) -> Any:
    """Return the value, or ERROR_VALUE; the cost is charged in both cases."""
    try:
        return run(activation)
    except ABSORBED:
        return ERROR_VALUE


def first_operand(first: Code, second: Code) -> Eval:
    """Return the closure of the first of two operands, which evaluates the second as well if the first fails."""
    run_first, run_second = first.run, second.run
    if second.is_constant or (second.slot >= 0 and len(second.keys) < 2):
        # The whole cost of these is charged in advance.
        return run_first

    def run(activation: Activation) -> Any:
        try:
            return run_first(activation)
        except ABSORBED:
            value_or_error(run_second, activation)
            raise

    return run


def costs_after(codes: Sequence[Code], own_cost: int = 0) -> list[int]:
    """Return for each position the costs to refund if it fails: those of all later codes, and `own_cost` unless it is
    last.
    """
    last = len(codes) - 1
    return [sum(code.cost for code in codes[at + 1 :]) + (own_cost if at < last else 0) for at in range(len(codes))]


def evaluate_in_order(codes: Sequence[Code], own_cost: int = 0) -> Callable[[Activation], list[Any]]:
    """Return a closure of all values.

    The first error ends it and refunds the costs charged in advance: those of the later codes and, if there are any,
    `own_cost` of the call.
    """
    runs = [code.run for code in codes]
    refunds = costs_after(codes, own_cost)

    def run(activation: Activation) -> list[Any]:
        values: list[Any] = []
        try:
            for each in runs:
                values.append(each(activation))
        except ABSORBED:
            activation[COST] -= refunds[len(values)]
            raise
        return values

    return run


def failed_call_price(price: Callable[[Sequence[Any], Any], int], arguments: Sequence[Any]) -> int:
    """Return the price of a call that fails, or one of whose arguments failed."""
    try:
        return price(arguments, ERROR_VALUE)
    except TypeError:
        # The price depends on the value itself, not on its size.
        return 1
