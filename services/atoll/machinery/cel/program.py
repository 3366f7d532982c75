"""A compiled expression: its type, its static cost estimate, and its value for given variables.

Made by `Environment.compile`, held by rules. Invariant: a program has no state, so tasks and threads may share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.machinery.cel.bounds import replace_pause
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.checker.scope import Tables
from atoll.machinery.cel.checker.structure_comparisons import compares_structures
from atoll.machinery.cel.compiler.activation import ABSORBED, COST, FIRST, Activation, Meter
from atoll.machinery.cel.compiler.code import Code
from atoll.machinery.cel.cost.estimate import estimate
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import SizeEstimator
from atoll.machinery.cel.recursion_limit import deep_stack, is_shallow
from atoll.machinery.cel.sizes import CostEstimate
from atoll.machinery.cel.types import Type

_BASE_BYTES, _NODE_BYTES = 6144, 600


class Program:
    """`text` is the source, `type` the checked type of the result, `variables` the variables that it uses."""

    __slots__ = ("_checked", "_code", "_is_shallow", "_names", "_slots", "_tables", "text", "type", "variables")

    def __init__(
        self, text: str, checked: CheckedExpr, tables: Tables, code: Code, variables: Mapping[str, int], slots: int
    ) -> None:
        self.text = text
        self.type: Type = checked.types[checked.tree.id]
        self.variables = frozenset(variables)
        self._checked = checked
        self._tables = tables
        self._code = code
        self._is_shallow = is_shallow(checked.tree)
        self._names = tuple(variables)
        self._slots = [None] * (slots - FIRST - len(variables))

    @property
    def size_bytes(self) -> int:
        """What it takes in memory at most, by the nodes of its tree and its text: measured."""
        return _BASE_BYTES + _NODE_BYTES * len(self._checked.types) + 4 * len(self.text)

    @property
    def compares_structures(self) -> bool:
        """Whether the expression may compare whole objects, or lists or maps of them."""
        return compares_structures(self._checked)

    def estimate(self, sizes: SizeEstimator | None = None) -> CostEstimate:
        """Return cel-go's static estimate, with the sizes of data from `sizes`."""
        with deep_stack():
            return estimate(self._checked, self._tables, sizes)

    def evaluate(self, bindings: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value for these variables. The cost is added to the budget even if the evaluation fails.

        Raises EvaluationError, BudgetExceeded, or the exception that the pause of the budget raises.
        """
        code = self._code
        meter = Meter(budget)
        activation: Activation = [code.cost, meter.next_check(code.cost), meter]
        try:
            activation += [bindings[name] for name in self._names]
        except KeyError as error:
            raise EvaluationError(f"no such attribute(s): {error.args[0]}") from None
        activation += self._slots
        try:
            value = self._run(activation, meter)
        except ABSORBED as error:
            if activation[COST] > meter.limit:
                raise BudgetExceeded from None
            if isinstance(error, EvaluationError):
                raise
            # A value is not of its declared type: null in a field that is not nullable.
            raise NoSuchOverload from None
        except RecursionError:
            raise EvaluationError("expression is nested too deeply for its data") from None
        finally:
            if budget is not None:
                budget.spent += min(activation[COST], meter.limit + 1)
        if activation[COST] > meter.limit:
            raise BudgetExceeded
        return value

    def _run(self, activation: Activation, meter: Meter) -> Any:
        if meter.pause is None:
            return self._run_deep(activation)
        before = replace_pause(meter.pause)
        try:
            return self._run_deep(activation)
        finally:
            replace_pause(before)

    def _run_deep(self, activation: Activation) -> Any:
        if self._is_shallow:
            return self._code.run(activation)
        with deep_stack():
            return self._code.run(activation)

    def cost(self, bindings: Mapping[str, Any]) -> int:
        """Return the cost of one evaluation without a limit. Raises as `evaluate`."""
        budget = Budget()
        self.evaluate(bindings, budget)
        return budget.spent
