"""Match conditions of webhooks and policies: whether all hold for a request.

Called before a webhook is asked and before a policy is evaluated. Invariant: a condition that is false excludes the
request, whatever errors the others have; errors alone are left to the failure policy of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.machinery.apiserver.admission.expressions.evaluation import (
    CONDITIONS_BUDGET,
    Evaluation,
    ExpressionFailed,
    OutOfBudget,
    Overlay,
)
from atoll.machinery.apiserver.admission.expressions.expression import Expression


class ConditionsFailed(Exception):
    """No condition is false and at least one has no value; `str()` is Kubernetes' message."""


def conditions_match(
    conditions: Sequence[Expression], values: Mapping[str, Any], variables: Mapping[str, Expression] | None = None
) -> bool:
    """Report whether all conditions are true. Raises ConditionsFailed."""
    # As in Kubernetes, conditions do not see the namespace.
    evaluation = Evaluation(Overlay(values, {"namespaceObject": None}), variables, CONDITIONS_BUDGET)
    matches, errors = True, list[str]()
    for condition in conditions:
        try:
            matches = evaluation.value(condition) is not False and matches
        except ExpressionFailed as error:
            errors.append(str(error))
        except OutOfBudget as error:
            raise ConditionsFailed(str(error)) from None
    if matches and errors:
        raise ConditionsFailed(_aggregate(errors))
    return matches


def _aggregate(errors: Sequence[str]) -> str:
    """Return several errors as Go prints an aggregate of them, each once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
