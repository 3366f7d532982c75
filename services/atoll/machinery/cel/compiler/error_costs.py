"""What is charged where an expression fails: cel-go goes on for a while after an error, and so does the price.

Used by the closures of calls, operators and literals. An error may be absorbed by `&&`, `||` or a fold, and the cost
counts on. Calls of one or two arguments evaluate both and charge for themselves, an error being of size 1; longer ones
and list literals stop at the first error, and what was charged for the rest in advance is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, Eval, Frame
from atoll.machinery.cel.compiler.code import Code


class Failed:
    """Stands for an error where sizes are asked for."""

    def __len__(self) -> int:
        return 1


FAILED: Final = Failed()


def value_or_failed(run: Eval, frame: Frame) -> Any:
    """The value, or FAILED; what was spent on it is charged either way."""
    try:
        return run(frame)
    except ABSORBED:
        return FAILED


def beside(first: Code, second: Code) -> Eval:
    """The first of two operands: when it fails, the second is evaluated all the same."""
    run_first, run_second = first.run, second.run
    if second.is_constant or (second.slot >= 0 and len(second.keys) < 2):
        # All that these cost is charged in advance.
        return run_first

    def run(frame: Frame) -> Any:
        try:
            return run_first(frame)
        except ABSORBED:
            value_or_failed(run_second, frame)
            raise

    return run


def costs_behind(codes: Sequence[Code], own_cost: int = 0) -> list[int]:
    """For each place what is not done when it fails: the costs of all behind it, and `own_cost` unless it is last."""
    last = len(codes) - 1
    return [sum(code.cost for code in codes[at + 1 :]) + (own_cost if at < last else 0) for at in range(len(codes))]


def in_order(codes: Sequence[Code], own_cost: int = 0) -> Callable[[Frame], list[Any]]:
    """All values. The first error ends it and gives back what was charged in advance: the cost of those behind it and,
    if there are any, `own_cost` for what is not done with them."""
    runs = [code.run for code in codes]
    behind = costs_behind(codes, own_cost)

    def run(frame: Frame) -> list[Any]:
        made: list[Any] = []
        try:
            for each in runs:
                made.append(each(frame))
        except ABSORBED:
            frame[COST] -= behind[len(made)]
            raise
        return made

    return run


def failure_price(price: Callable[[Sequence[Any], Any], int], arguments: Sequence[Any]) -> int:
    """The price of a call that failed or of whose arguments one did."""
    try:
        return price(arguments, FAILED)
    except TypeError:
        # The price reckons with the value itself, not with its size.
        return 1
