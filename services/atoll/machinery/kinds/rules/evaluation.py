"""Evaluation of rules on an object: errors, and warnings for unchanged parts.

`kinds.custom` passes it to the write path, which calls it after validation by the schema. One traversal covers object
and rules; each rule sees its part as `self` and the correlated part of the old object, if there is one, as `oldSelf`.
Invariant: the result depends only on object, old object and rules.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
from atoll.machinery.cel.values import NONE, Optional_
from atoll.machinery.kinds.kind import DeferredValidator, ValidationResult
from atoll.machinery.kinds.rules.correlation import CorrelatedValue, Correlation, OldItems
from atoll.machinery.kinds.rules.rule import OLD_SELF, SELF, Expression, Rule
from atoll.machinery.kinds.rules.tree import RuleNode, tree_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import NO_FIELD, duplicate, forbidden, invalid, quote, required
from atoll.machinery.schema.structural.structural_schema import StructuralSchema

if TYPE_CHECKING:
    from atoll.machinery.cel.program import Program

#: Kubernetes' cost limits of one evaluation and of all evaluations of an object, in units of the cost model.
CALL_LIMIT, OBJECT_LIMIT = 1_000_000, 10_000_000
MAX_MESSAGE_SIZE = 5 * 1024
#: Errors after which rules are not evaluated, because rules may rely on types, sizes and presence.
_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_OVERLOAD = "call arguments did not match a supported operator, function or macro signature for rule"
_LINE_END = re.compile("\n")

Pause = Callable[[], None]


def rules_of(schema: StructuralSchema) -> DeferredValidator:
    """Return the validator of objects of a schema; for a schema without rules every result is empty."""

    def check(obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Pause) -> ValidationResult:
        tree = tree_of(schema)
        return ValidationResult([], []) if tree is None else validate_rules(tree, obj, old, errors, pause)

    return check


def validate_rules(
    tree: RuleNode, obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Pause
) -> ValidationResult:
    """Return the result of all rules on an object; `errors` are those of earlier checks.

    `pause` is called from inside long evaluations, and ends them by raising.
    """
    if any(error.type in _BLOCKING for error in errors):
        return ValidationResult([invalid(NO_FIELD, None, _UNCHECKED)], [])
    budget = Budget(OBJECT_LIMIT, CALL_LIMIT, pause)
    correlation = Correlation(CorrelatedValue(tree.schema, obj, old) if old is not None else None)
    return walk(tree, obj, old, "", correlation, budget)


def walk(tree: RuleNode, value: Any, old: Any, path: str, correlation: Correlation, budget: Budget) -> ValidationResult:
    """Return the result for a part of an object at a path. Evaluation ends when the budget is spent."""
    evaluation = _Evaluation(budget)
    with contextlib.suppress(_BudgetSpent):
        evaluation.walk(tree, value, old, path, correlation)
    return ValidationResult(evaluation.errors, evaluation.warnings)


class _BudgetSpent(Exception):
    """The budget is spent; the error is recorded."""


class _Evaluation:
    """The evaluation of all rules on one object."""

    def __init__(self, budget: Budget) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self._budget = budget

    def walk(self, node: RuleNode, value: Any, old: Any, path: str, correlation: Correlation) -> None:
        """Evaluate the rules of a part and of its children. Rules of a null part are skipped."""
        if value is None:
            return
        if node.entries:
            _PartEvaluation(self, node, path, correlation).evaluate(value, old)
        if type(value) is list and node.items is not None:
            self._walk_items(node, node.items, value, old, path, correlation)
        elif type(value) is dict and (node.properties or node.additional is not None):
            self._walk_fields(node, value, old if type(old) is dict else {}, path, correlation)

    def _walk_items(
        self, node: RuleNode, items: RuleNode, value: list[Any], old: Any, path: str, correlation: Correlation
    ) -> None:
        before = OldItems(node.schema, old)
        for index, item in enumerate(value):
            old_item = before.find(item)
            self.walk(items, item, old_item, f"{path}[{index}]", correlation.item(item, old_item))

    def _walk_fields(
        self, node: RuleNode, value: dict[str, Any], old: dict[str, Any], path: str, correlation: Correlation
    ) -> None:
        if node.additional is not None:
            for key, item in value.items():
                self.walk(node.additional, item, old.get(key), f"{path}[{key}]", correlation.key(key))
        for key, child in node.properties.items():
            if key in value:
                at = f"{path}.{key}" if path else key
                self.walk(child, value[key], old.get(key), at, correlation.key(key))

    def evaluate(self, program: Program, bindings: dict[str, Any]) -> Any:
        """Return the value of a program, charged to the object's budget. Raises as `Program.evaluate`."""
        return program.evaluate(bindings, self._budget)

    def pause(self) -> None:
        """Yield to other work, or end the evaluation by raising."""
        if self._budget.pause is not None:
            self._budget.pause()

    @property
    def is_spent(self) -> bool:
        """Whether the object's budget is spent."""
        return self._budget.spent >= OBJECT_LIMIT

    @property
    def is_overdrawn(self) -> bool:
        """Whether the last evaluation exceeded the rest of the budget."""
        return self._budget.spent > OBJECT_LIMIT


class _PartEvaluation:
    """The evaluation of the rules of one part of an object."""

    def __init__(self, evaluation: _Evaluation, node: RuleNode, path: str, correlation: Correlation) -> None:
        self._evaluation, self._node = evaluation, node
        self._path, self._correlation = path or NO_FIELD, correlation
        self._base = path

    def evaluate(self, value: Any, old: Any) -> None:
        """Evaluate all rules that apply: transition rules need an old value, unless oldSelf is optional."""
        if self._evaluation.is_spent:
            self._stop(_OUT_OF_BUDGET)
        bindings = _Bindings(self._node, value, old)
        for rule in self._node.compile(self._evaluation.pause):
            expression = rule.expression
            if expression is None or (old is None and rule.uses_old and not rule.optional_old):
                continue
            if expression.program is None:
                self._add_error(f"rule compile error: {expression.error}")
            else:
                self._evaluate(rule, expression, bindings, value)

    def _evaluate(self, rule: Rule, expression: Expression, bindings: _Bindings, value: Any) -> None:
        program = expression.program
        assert program is not None
        try:
            holds = self._evaluation.evaluate(program, bindings.of(rule, expression))
        except BudgetExceeded as error:
            if self._evaluation.is_overdrawn:
                self._stop(_OUT_OF_BUDGET)
            text = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule"
            self._stop(f"{text}: {rule.label}")
        except EvaluationError as error:
            text = str(error)
            overload = text.startswith("no such overload")
            self._add_error(
                f"'{text}': {_OVERLOAD}: {rule.label}" if overload else f"{text} evaluating rule: {rule.label}"
            )
            return
        if holds is not True:
            self._add_failure(rule, bindings, value)

    def _add_error(self, text: str) -> None:
        self._evaluation.errors.append(invalid(self._path, self._node.type_name, text))

    def _stop(self, text: str) -> NoReturn:
        self._add_error(text)
        raise _BudgetSpent

    def _add_failure(self, rule: Rule, bindings: _Bindings, value: Any) -> None:
        message = self._message(rule, bindings) or rule.refusal
        self._add(rule, _failure(self._field(rule), self._node.type_name, value, message, rule))

    def _field(self, rule: Rule) -> str:
        return ".".join(filter(None, (self._base, rule.field))) or NO_FIELD

    def _add(self, rule: Rule, error: FieldError) -> None:
        """Record a failure: a warning if the part is unchanged, otherwise an error.

        Failures of transition rules are errors.
        """
        if not rule.uses_old and self._correlation.is_same():
            self._evaluation.warnings.append(str(error))
        else:
            self._evaluation.errors.append(error)

    def _message(self, rule: Rule, bindings: _Bindings) -> str:
        """Return the value of the message expression; empty if it fails or is not printable."""
        message = rule.message
        if message is None or message.program is None:
            return ""
        try:
            text = self._evaluation.evaluate(message.program, bindings.of(rule, message))
        except BudgetExceeded:
            self._stop_message(rule)
        except EvaluationError:
            return ""
        text = text.strip() if isinstance(text, str) else ""
        return "" if len(text.encode()) > MAX_MESSAGE_SIZE or _LINE_END.search(text) else text

    def _stop_message(self, rule: Rule) -> NoReturn:
        if self._evaluation.is_overdrawn:
            text = "messageExpression evaluation failed due to running out of cost budget, "
            text += "no further validation rules will be run"
        else:
            text = "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
            text += quote(rule.entry["messageExpression"])
        self._add(rule, invalid(self._field(rule), self._node.type_name, text))
        raise _BudgetSpent


class _Bindings:
    """The variables of the rules of one part, converted to CEL values on first use."""

    __slots__ = ("_by_form", "_node", "_old", "_value")

    def __init__(self, node: RuleNode, value: Any, old: Any) -> None:
        self._node, self._value, self._old = node, value, old
        self._by_form: dict[tuple[bool, bool], dict[str, Any]] = {}

    def of(self, rule: Rule, expression: Expression) -> dict[str, Any]:
        """Return the variables for an expression of a rule. Raises EvaluationError if a value has no CEL form."""
        form = rule.optional_old, expression.converts_whole
        variables = self._by_form.get(form)
        if variables is None:
            variables = self._by_form[form] = self._make(*form)
        return variables

    def _make(self, optional: bool, whole: bool) -> dict[str, Any]:
        declared = self._node.declared
        assert declared is not None
        convert = declared.deep_value if whole else declared.value
        variables = {SELF: convert(self._value)}
        if self._old is not None:
            before = convert(self._old)
            variables[OLD_SELF] = Optional_(before) if optional else before
        elif optional:
            variables[OLD_SELF] = NONE
        return variables


def _failure(field: str, type_name: str, value: Any, message: str, rule: Rule) -> FieldError:
    """Return the error of a failed rule by its reason.

    Objects and lists are not printed; duplicates have no message.
    """
    label = type_name not in ("object", "array")
    reason = rule.entry.get("reason")
    if reason == "FieldValueForbidden":
        return forbidden(field, message)
    if reason == "FieldValueRequired":
        return required(field, message)
    if reason == "FieldValueDuplicate":
        return duplicate(field, value) if label else FieldError("FieldValueDuplicate", field, "Duplicate value")
    if label:
        return invalid(field, value, message)
    return FieldError("FieldValueInvalid", field, f"Invalid value: {message}")
