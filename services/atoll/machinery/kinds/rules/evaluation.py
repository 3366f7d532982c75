"""Rules against an object: what they refuse, what they only warn of.

`kinds.custom` hands this to the write path, which asks after the schema accepted the object. One walk goes over object
and rules together; each rule sees its part as `self` and, where the part comes from one of the old object, that as
`oldSelf`. Invariant: the same object, old object and rules give the same verdict, whoever else shares the rules.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
from atoll.machinery.cel.values import NONE, Optional_
from atoll.machinery.kinds.kind import Judge, Verdict
from atoll.machinery.kinds.rules.correlation import CorrelatedValue, Correlation, OldItems
from atoll.machinery.kinds.rules.rule import OLD_SELF, SELF, Expression, Rule
from atoll.machinery.kinds.rules.tree import RuleNode, tree_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import NO_FIELD, duplicate, forbidden, invalid, quote, required
from atoll.machinery.schema.structural.structural_schema import StructuralSchema

if TYPE_CHECKING:
    from atoll.machinery.cel.program import Program

#: What one evaluation and all evaluations of an object may cost, in units of the cost model, as in Kubernetes.
CALL_LIMIT, OBJECT_LIMIT = 1_000_000, 10_000_000
MAX_MESSAGE_SIZE = 5 * 1024
#: Errors after which rules are not asked: they may rely on types, sizes and presence.
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


def rules_of(schema: StructuralSchema) -> Judge:
    """The judge of objects of a schema: without rules in it, every verdict is empty."""

    def ask(obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Pause) -> Verdict:
        tree = tree_of(schema)
        return Verdict([], []) if tree is None else judge(tree, obj, old, errors, pause)

    return ask


def judge(tree: RuleNode, obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Pause) -> Verdict:
    """The verdict of all rules on an object; `errors` are those found before.

    `pause` is called from inside long evaluations, and ends them by raising.
    """
    if any(error.type in _BLOCKING for error in errors):
        return Verdict([invalid(NO_FIELD, None, _UNCHECKED)], [])
    budget = Budget(OBJECT_LIMIT, CALL_LIMIT, pause)
    correlation = Correlation(CorrelatedValue(tree.schema, obj, old) if old is not None else None)
    return walk(tree, obj, old, "", correlation, budget)


def walk(tree: RuleNode, value: Any, old: Any, path: str, correlation: Correlation, budget: Budget) -> Verdict:
    """The verdict on a part of an object at a path. Nothing more is judged once the budget is spent."""
    evaluation = _Evaluation(budget)
    with contextlib.suppress(_BudgetSpent):
        evaluation.walk(tree, value, old, path, correlation)
    return Verdict(evaluation.errors, evaluation.warnings)


class _BudgetSpent(Exception):
    """The budget is used up; the error that says so was told."""


class _Evaluation:
    """One object under judgement."""

    def __init__(self, budget: Budget) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self._budget = budget

    def walk(self, node: RuleNode, value: Any, old: Any, path: str, correlation: Correlation) -> None:
        """Judge a part and what is in it. A null is judged by the rules around it."""
        if value is None:
            return
        if node.entries:
            _PartEvaluation(self, node, path, correlation).judge(value, old)
        if type(value) is list and node.items is not None:
            self._walk_items(node, node.items, value, old, path, correlation)
        elif type(value) is dict and (node.properties or node.additional is not None):
            self._walk_fields(node, value, old if type(old) is dict else {}, path, correlation)

    def _walk_items(
        self, node: RuleNode, items: RuleNode, value: list[Any], old: Any, path: str, correlation: Correlation
    ) -> None:
        before = OldItems(node.schema, old)
        for index, item in enumerate(value):
            known = before.find(item)
            self.walk(items, item, known, f"{path}[{index}]", correlation.item(item, known))

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
        """The value of a program, paid from the object's budget. Raises what `Program.evaluate` raises."""
        return program.evaluate(bindings, self._budget)

    def pause(self) -> None:
        """Let others go on, or end the judging by raising."""
        if self._budget.pause is not None:
            self._budget.pause()

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left of the object's budget."""
        return self._budget.spent >= OBJECT_LIMIT

    @property
    def is_overdrawn(self) -> bool:
        """Whether the last evaluation cost more than was left."""
        return self._budget.spent > OBJECT_LIMIT


class _PartEvaluation:
    """The rules of one part of an object."""

    def __init__(self, evaluation: _Evaluation, node: RuleNode, path: str, correlation: Correlation) -> None:
        self._evaluation, self._node = evaluation, node
        self._path, self._correlation = path or NO_FIELD, correlation
        self._base = path

    def judge(self, value: Any, old: Any) -> None:
        """Ask every rule that applies: transition rules need an old value, unless theirs is optional."""
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
            self._stop(f"{text}: {rule.shown}")
        except EvaluationError as error:
            text = str(error)
            overload = text.startswith("no such overload")
            self._add_error(
                f"'{text}': {_OVERLOAD}: {rule.shown}" if overload else f"{text} evaluating rule: {rule.shown}"
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
        """Tell an error, or only warn of it where nothing changed; a change is what transition rules judge."""
        if not rule.uses_old and self._correlation.is_same():
            self._evaluation.warnings.append(str(error))
        else:
            self._evaluation.errors.append(error)

    def _message(self, rule: Rule, bindings: _Bindings) -> str:
        """What the message expression gives, or nothing where it gives nothing fit to show."""
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
    """The variables of one part's rules, made CEL values when the first rule asks."""

    __slots__ = ("_made", "_node", "_old", "_value")

    def __init__(self, node: RuleNode, value: Any, old: Any) -> None:
        self._node, self._value, self._old = node, value, old
        self._made: dict[tuple[bool, bool], dict[str, Any]] = {}

    def of(self, rule: Rule, expression: Expression) -> dict[str, Any]:
        """Variables for an expression of a rule. Raises EvaluationError where a value has no CEL form."""
        form = rule.optional_old, expression.converts_whole
        known = self._made.get(form)
        if known is None:
            known = self._made[form] = self._make(*form)
        return known

    def _make(self, optional: bool, whole: bool) -> dict[str, Any]:
        declared = self._node.declared
        assert declared is not None
        convert = declared.deep_value if whole else declared.value
        made = {SELF: convert(self._value)}
        if self._old is not None:
            before = convert(self._old)
            made[OLD_SELF] = Optional_(before) if optional else before
        elif optional:
            made[OLD_SELF] = NONE
        return made


def _failure(field: str, type_name: str, value: Any, message: str, rule: Rule) -> FieldError:
    """The error of a failed rule by its reason. Objects and lists are not shown; duplicates have no message."""
    shown = type_name not in ("object", "array")
    reason = rule.entry.get("reason")
    if reason == "FieldValueForbidden":
        return forbidden(field, message)
    if reason == "FieldValueRequired":
        return required(field, message)
    if reason == "FieldValueDuplicate":
        return duplicate(field, value) if shown else FieldError("FieldValueDuplicate", field, "Duplicate value")
    if shown:
        return invalid(field, value, message)
    return FieldError("FieldValueInvalid", field, f"Invalid value: {message}")
