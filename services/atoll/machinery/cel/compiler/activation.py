"""The state of one evaluation, and the checks of its budget.

Compiled closures take an activation: a list, because indexing a list by a constant is the fastest mutable access in
Python. Slot COST holds the cost so far, LIMIT the cost at which to call `check_budget`, METER the bounds, the other
slots variables. Invariant: only `check_budget` and `charge_copies` end an evaluation early.
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

#: Errors that && and || absorb. TypeError and AttributeError arise from values that are not of their declared type (a
#: null in a typed field), which CEL reports as "no such overload".
ABSORBED: Final = (EvaluationError, TypeError, AttributeError)

_UNLIMITED: Final = 1 << 62
#: Copies of lists up to this length are not counted.
_SMALL: Final = 100
#: Limit of copied list items in one evaluation: 160 MB if all are retained.
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
        """Return the cost at which to check again."""
        return min(self.limit, cost + self.stride)


def check_budget(activation: Activation) -> None:
    """Pause and set the next check. Called when the cost exceeds LIMIT. Raises BudgetExceeded."""
    meter: Meter = activation[METER]
    if activation[COST] > meter.limit:
        raise BudgetExceeded
    if meter.pause is not None:
        meter.pause()
    activation[LIMIT] = meter.next_check(activation[COST])


def charge_copies(activation: Activation, amount: int) -> None:
    """Account for copied lists, for which CEL charges nothing: the next check comes sooner, and their sum is bounded.

    cel-go shares the parts of a sum of lists; here they are copied, so a loop over sums of long lists would fill the
    memory before its price stops it. Raises BudgetExceeded.
    """
    if amount > _SMALL:
        meter: Meter = activation[METER]
        meter.copied += amount
        if meter.copied > _MAX_COPIED:
            raise BudgetExceeded
        activation[LIMIT] -= amount // 10
        if activation[COST] > activation[LIMIT]:
            check_budget(activation)
