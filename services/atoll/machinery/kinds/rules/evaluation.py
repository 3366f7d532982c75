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
from atoll.machinery.kinds.rules.correlation import Lineage, Link, OldItems
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
    lineage = Lineage(Link(tree.schema, obj, old) if old is not None else None)
    return walk(tree, obj, old, "", lineage, budget)


def walk(tree: RuleNode, value: Any, old: Any, path: str, lineage: Lineage, budget: Budget) -> Verdict:
    """The verdict on a part of an object at a path. Nothing more is judged once the budget is spent."""
    judging = _Judging(budget)
    with contextlib.suppress(_Spent):
        judging.walk(tree, value, old, path, lineage)
    return Verdict(judging.errors, judging.warnings)


class _Spent(Exception):
    """The budget is used up; the error that says so was told."""


class _Judging:
    """One object under judgement."""

    def __init__(self, budget: Budget) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self._budget = budget

    def walk(self, node: RuleNode, value: Any, old: Any, path: str, lineage: Lineage) -> None:
        """Judge a part and what is in it. A null is judged by the rules around it."""
        if value is None:
            return
        if node.entries:
            _Part(self, node, path, lineage).judge(value, old)
        if type(value) is list and node.items is not None:
            self._walk_items(node, node.items, value, old, path, lineage)
        elif type(value) is dict and (node.properties or node.additional is not None):
            self._walk_fields(node, value, old if type(old) is dict else {}, path, lineage)

    def _walk_items(
        self, node: RuleNode, items: RuleNode, value: list[Any], old: Any, path: str, lineage: Lineage
    ) -> None:
        before = OldItems(node.schema, old)
        for index, item in enumerate(value):
            known = before.find(item)
            self.walk(items, item, known, f"{path}[{index}]", lineage.item(item, known))

    def _walk_fields(
        self, node: RuleNode, value: dict[str, Any], old: dict[str, Any], path: str, lineage: Lineage
    ) -> None:
        if node.additional is not None:
            for key, item in value.items():
                self.walk(node.additional, item, old.get(key), f"{path}[{key}]", lineage.key(key))
        for key, child in node.properties.items():
            if key in value:
                at = f"{path}.{key}" if path else key
                self.walk(child, value[key], old.get(key), at, lineage.key(key))

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


class _Part:
    """The rules of one part of an object."""

    def __init__(self, judging: _Judging, node: RuleNode, path: str, lineage: Lineage) -> None:
        self._judging, self._node = judging, node
        self._path, self._lineage = path or NO_FIELD, lineage
        self._base = path

    def judge(self, value: Any, old: Any) -> None:
        """Ask every rule that applies: transition rules need an old value, unless theirs is optional."""
        if self._judging.is_spent:
            self._stop(_OUT_OF_BUDGET)
        bindings = _Bindings(self._node, value, old)
        for rule in self._node.compile(self._judging.pause):
            expression = rule.expression
            if expression is None or (old is None and rule.uses_old and not rule.optional_old):
                continue
            if expression.program is None:
                self._tell(f"rule compile error: {expression.error}")
            else:
                self._ask(rule, expression, bindings, value)

    def _ask(self, rule: Rule, expression: Expression, bindings: _Bindings, value: Any) -> None:
        program = expression.program
        assert program is not None
        try:
            holds = self._judging.evaluate(program, bindings.of(rule, expression))
        except BudgetExceeded as error:
            if self._judging.is_overdrawn:
                self._stop(_OUT_OF_BUDGET)
            text = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule"
            self._stop(f"{text}: {rule.shown}")
        except EvaluationError as error:
            text = str(error)
            overload = text.startswith("no such overload")
            self._tell(f"'{text}': {_OVERLOAD}: {rule.shown}" if overload else f"{text} evaluating rule: {rule.shown}")
            return
        if holds is not True:
            self._refuse(rule, bindings, value)

    def _tell(self, text: str) -> None:
        self._judging.errors.append(invalid(self._path, self._node.type_name, text))

    def _stop(self, text: str) -> NoReturn:
        self._tell(text)
        raise _Spent

    def _refuse(self, rule: Rule, bindings: _Bindings, value: Any) -> None:
        message = self._message(rule, bindings) or rule.refusal
        self._add(rule, _failure(self._field(rule), self._node.type_name, value, message, rule))

    def _field(self, rule: Rule) -> str:
        return ".".join(filter(None, (self._base, rule.field))) or NO_FIELD

    def _add(self, rule: Rule, error: FieldError) -> None:
        """Tell an error, or only warn of it where nothing changed; a change is what transition rules judge."""
        if not rule.uses_old and self._lineage.is_same():
            self._judging.warnings.append(str(error))
        else:
            self._judging.errors.append(error)

    def _message(self, rule: Rule, bindings: _Bindings) -> str:
        """What the message expression gives, or nothing where it gives nothing fit to show."""
        message = rule.message
        if message is None or message.program is None:
            return ""
        try:
            text = self._judging.evaluate(message.program, bindings.of(rule, message))
        except BudgetExceeded:
            self._stop_message(rule)
        except EvaluationError:
            return ""
        text = text.strip() if isinstance(text, str) else ""
        return "" if len(text.encode()) > MAX_MESSAGE_SIZE or _LINE_END.search(text) else text

    def _stop_message(self, rule: Rule) -> NoReturn:
        if self._judging.is_overdrawn:
            text = "messageExpression evaluation failed due to running out of cost budget, "
            text += "no further validation rules will be run"
        else:
            text = "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
            text += quote(rule.entry["messageExpression"])
        self._add(rule, invalid(self._field(rule), self._node.type_name, text))
        raise _Spent


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
        convert = declared.whole if whole else declared.value
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
