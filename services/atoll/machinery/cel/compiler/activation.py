"""The state of one evaluation, and where it stops.

Compiled closures take a frame: a list, because indexing a list by a constant is the fastest mutable access
Python has. Slot COST holds what was spent, LIMIT the cost at which to call `overrun`, METER the budget's side,
the rest are variables. Invariant: cost only grows; `overrun` is the only place that ends an evaluation early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError

COST: Final = 0
LIMIT: Final = 1
METER: Final = 2
FIRST: Final = 3

Activation = list[Any]
Eval = Callable[[Activation], Any]

#: What && and || absorb. TypeError and AttributeError come of values that are not of their declared type (a null
#: in a typed field): CEL calls that "no such overload".
ABSORBED: Final = (EvaluationError, TypeError, AttributeError)

_UNLIMITED: Final = 1 << 62
#: Lists up to this length are not counted.
_SMALL: Final = 100
#: Items of lists that one evaluation may copy: 160 MB if all are kept.
_MAX_COPIED: Final = 20_000_000


class Meter:
    """The bounds of one evaluation."""

    __slots__ = ("copied", "limit", "pause", "stride")

    def __init__(self, budget: Budget | None) -> None:
        self.copied = 0
        self.limit = _UNLIMITED
        self.pause: Callable[[], None] | None = None
        self.stride = _UNLIMITED
        if budget is None:
            return
        limits = [bound for bound in (budget.remaining, budget.call_limit) if bound is not None]
        self.limit = min(limits, default=_UNLIMITED)
        if budget.pause is not None:
            self.pause, self.stride = budget.pause, budget.stride

    def next_check(self, cost: int) -> int:
        """The cost at which to look again."""
        return min(self.limit, cost + self.stride)


def check_budget(activation: Activation) -> None:
    """Called when the cost passed LIMIT: ends the evaluation, or lets others run and goes on."""
    meter: Meter = activation[METER]
    if activation[COST] > meter.limit:
        raise BudgetExceeded
    if meter.pause is not None:
        meter.pause()
    activation[LIMIT] = meter.next_check(activation[COST])


def charge_copies(activation: Activation, amount: int) -> None:
    """Account for copies of lists, which CEL charges nothing for: the next look comes sooner, and there is a bound.

    cel-go shares the parts of a sum of lists; here they are copied, so that a fold that makes sums of long lists
    would fill the memory before its price stopped it. Raises BudgetExceeded.
    """
    if amount > _SMALL:
        meter: Meter = activation[METER]
        meter.copied += amount
        if meter.copied > _MAX_COPIED:
            raise BudgetExceeded
        activation[LIMIT] -= amount // 10
        if activation[COST] > activation[LIMIT]:
            check_budget(activation)
