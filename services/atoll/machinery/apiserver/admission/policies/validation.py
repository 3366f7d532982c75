"""Evaluation of a ValidatingAdmissionPolicy on one request with one parameter: decisions and audit annotations.

`dispatch` calls it for each binding and parameter that matches, and acts on the decisions. Pure. Invariant: an error
denies under failurePolicy Fail and is ignored under Ignore; a false validation denies under both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from atoll.machinery.apiserver.admission.expressions.conditions import ConditionsFailed, conditions_match
from atoll.machinery.apiserver.admission.expressions.evaluation import Evaluation, ExpressionFailed, OutOfBudget
from atoll.machinery.apiserver.admission.expressions.expression import Expression
from atoll.machinery.apiserver.admission.policies.program import ValidatingProgram

#: Bytes of an evaluated message; a longer one is replaced by the fixed message.
MAX_MESSAGE_BYTES = 5 * 1024


class Decision(NamedTuple):
    """What one validation says against a request, or an error. `position` is that of the validation.

    An error without `denies` is ignored. `reason` is empty for errors.
    """

    position: int
    denies: bool
    is_error: bool
    message: str
    reason: str = ""
    elapsed_s: float = 0.0


class Annotation(NamedTuple):
    """The value of an audit annotation; `error` instead for one that denies the request."""

    key: str
    value: str
    error: str = ""
    elapsed_s: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """The decisions other than "admit", in order, and the audit annotations that have a value or an error."""

    decisions: Sequence[Decision] = ()
    annotations: Sequence[Annotation] = ()


_ADMITTED = Outcome()


def validate(program: ValidatingProgram, values: Mapping[str, Any], *, fails: bool) -> Outcome:
    """Evaluate a policy with the variables of a request. `fails`: errors deny the request."""
    try:
        if program.conditions and not conditions_match(program.conditions, values, program.scope):
            return _ADMITTED
    except ConditionsFailed as error:
        # Under Ignore a policy whose conditions fail does not match.
        return Outcome([_error(0, str(error), denies=True)]) if fails else _ADMITTED
    try:
        decisions = _decisions(program, values, fails=fails)
    except OutOfBudget as error:
        return Outcome([_error(0, str(error), denies=fails)])
    if not program.annotations:
        return Outcome(decisions) if decisions else _ADMITTED
    try:
        return Outcome(decisions, _annotations(program, values, fails=fails))
    except OutOfBudget as error:
        return Outcome([_error(0, str(error), denies=fails)])


def _error(index: int, message: str, *, denies: bool, elapsed_s: float = 0.0) -> Decision:
    return Decision(index, denies, True, message, "", elapsed_s)


def _decisions(program: ValidatingProgram, values: Mapping[str, Any], *, fails: bool) -> list[Decision]:
    """Return the decisions of the validations. Raises OutOfBudget."""
    evaluation = Evaluation(values, program.scope)
    found = list[Decision]()
    for index, validation in enumerate(program.validations):
        start_s = time.perf_counter()
        try:
            if evaluation.value(validation.expression) is True:
                continue
        except ExpressionFailed as error:
            found.append(_error(index, str(error), denies=fails, elapsed_s=time.perf_counter() - start_s))
            continue
        elapsed_s = time.perf_counter() - start_s
        found.append(Decision(index, True, False, validation.text, validation.reason, elapsed_s))
    if not program.has_messages:
        return found
    return _with_messages(program, found, Evaluation(values, program.scope, evaluation.remaining), fails=fails)


def _with_messages(
    program: ValidatingProgram, decisions: list[Decision], evaluation: Evaluation, *, fails: bool
) -> list[Decision]:
    """Return the decisions with the values of message expressions.

    They are evaluated for validations that hold as well: if they exceed the budget, every validation that has no error
    of its own fails.
    """
    messages = {}
    try:
        for index, validation in enumerate(program.validations):
            if validation.message is not None:
                messages[index] = _message(validation.message, evaluation)
    except OutOfBudget as error:
        errors = {decision.position: decision for decision in decisions if decision.is_error}
        text = f"failed messageExpression: {error}"
        every = range(len(program.validations))
        return [errors.get(index) or _error(index, text, denies=fails) for index in every]
    return [
        decision
        if decision.is_error
        else decision._replace(message=messages.get(decision.position) or decision.message)
        for decision in decisions
    ]


def _message(expression: Expression, evaluation: Evaluation) -> str:
    """Return an evaluated message; empty for one that fails, is too long or has line breaks. Raises OutOfBudget."""
    try:
        value = evaluation.value(expression)
    except ExpressionFailed:
        return ""
    message = value.strip() if isinstance(value, str) else ""
    return "" if "\n" in message or len(message.encode()) > MAX_MESSAGE_BYTES else message


def _annotations(program: ValidatingProgram, values: Mapping[str, Any], *, fails: bool) -> list[Annotation]:
    """Return the audit annotations, which have a budget of their own. Raises OutOfBudget."""
    evaluation = Evaluation(values, program.scope)
    found = list[Annotation]()
    for annotation in program.annotations:
        start_s = time.perf_counter()
        try:
            value = evaluation.value(annotation.expression)
        except ExpressionFailed as error:
            if fails:
                found.append(Annotation(annotation.key, "", str(error), time.perf_counter() - start_s))
            continue
        text = value.strip() if isinstance(value, str) else ""
        if text:
            found.append(Annotation(annotation.key, text))
    return found
