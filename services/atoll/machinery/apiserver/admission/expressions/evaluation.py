"""Evaluation of the expressions of one policy or webhook on one request, within a budget.

`conditions` and `policies` make one Evaluation for a list of expressions. Variables of a policy are evaluated when an
expression first selects them, and once. Costs and their limits are Kubernetes': each evaluation has a limit of its own,
all of them share the budget. Invariant: an evaluation changes nothing, so it may be stopped and run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.machinery.apiserver.admission.expressions.environment import VARIABLES
from atoll.machinery.apiserver.admission.expressions.expression import Expression
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
from atoll.machinery.cel.libraries.base import CALL_LIMIT
from atoll.machinery.process.time_slicing import checkpoint

#: Cost limits of the expressions of a policy with one binding and one parameter, and of match conditions.
POLICY_BUDGET, CONDITIONS_BUDGET = 10_000_000, 2_500_000
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class ExpressionFailed(Exception):
    """An expression has no value, or does not compile; `str()` is Kubernetes' message."""


class OutOfBudget(Exception):
    """The budget is spent; `str()` is Kubernetes' message."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class Overlay(dict[str, Any]):
    """Further variables, or others of the same name, above those of a request, which are made on first use."""

    __slots__ = ("_below",)

    def __init__(self, below: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._below = below

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._below[name]
        return value


class Evaluation:
    """Evaluates expressions in order. `values` are the variables of the request, `variables` those of the policy.

    A variable without a value is unknown (KeyError of `values`): `no such attribute(s)`.
    """

    __slots__ = ("_values", "remaining")

    def __init__(
        self, values: Mapping[str, Any], variables: Mapping[str, Expression] | None = None, budget: int = POLICY_BUDGET
    ) -> None:
        self.remaining = budget
        self._values = values
        if variables is not None:
            self._values = Overlay(values, {VARIABLES: _Variables(self, variables)})

    def value(self, expression: Expression) -> Any:
        """Return the value of an expression. Raises ExpressionFailed, OutOfBudget."""
        if expression.program is None:
            raise ExpressionFailed(f"compilation error: {expression.error}")
        try:
            return self.raw(expression)
        except (EvaluationError, BudgetExceeded) as error:
            raise ExpressionFailed(f"expression '{expression.text}' resulted in error: {error}") from None

    def raw(self, expression: Expression) -> Any:
        """Return the value of an expression that compiles. Raises EvaluationError, BudgetExceeded, OutOfBudget."""
        budget = Budget(None, CALL_LIMIT, checkpoint)
        program = expression.program
        assert program is not None
        try:
            value = program.evaluate(self._values, budget)
        except (EvaluationError, BudgetExceeded):
            self._spend(budget.spent)
            raise
        self._spend(budget.spent)
        return value

    def _spend(self, cost: int) -> None:
        self.remaining -= cost
        if self.remaining < 0:
            raise OutOfBudget


class _Variables(dict[str, Any]):
    """The variables of a policy: a map whose entries are evaluated when they are first read."""

    __slots__ = ("_evaluation", "_expressions", "_failed")

    def __init__(self, evaluation: Evaluation, expressions: Mapping[str, Expression]) -> None:
        super().__init__()
        self._evaluation, self._expressions = evaluation, expressions
        self._failed: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        expression = self._expressions[name]
        if name not in self._failed:
            try:
                value = self[name] = self._evaluate(name, expression)
            except (EvaluationError, BudgetExceeded) as error:
                self._failed[name] = str(error)
            else:
                return value
        raise EvaluationError(self._failed[name])

    def _evaluate(self, name: str, expression: Expression) -> Any:
        if expression.program is None:
            raise EvaluationError(f'composited variable "{name}" fails to compile: {expression.error}')
        try:
            return self._evaluation.raw(expression)
        except (EvaluationError, BudgetExceeded) as error:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {error}') from None

    def __contains__(self, name: object) -> bool:
        """A presence test evaluates the variable, and fails as it does."""
        if name not in self._expressions:
            return False
        self[str(name)]
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._expressions else default

    def __len__(self) -> int:
        return len(self._expressions)
