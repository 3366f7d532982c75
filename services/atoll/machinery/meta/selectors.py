"""Label selectors: parsed once for each request, then matched against each object.

Verb handlers parse query text, controllers and webhooks compile LabelSelector objects; lists, watches and
continue tokens use the result. Two selectors with the same canonical text (`str`) select the same objects,
so the text is the key of caches and cursors. Text and terms are bounded before parsing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from atoll.machinery.meta import labels as syntax
from atoll.machinery.meta.fieldselectors import FieldSelector, parse_field_selector
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.requirements import (
    ABSENT,
    EQUALS,
    EXISTS,
    GREATER,
    IN,
    LESS,
    MAX_TERMS,
    MAX_TEXT_SIZE,
    NOT_EQUALS,
    NOT_IN,
    Requirement,
    SelectorError,
    Test,
    all_of,
    never,
    new_requirement,
    quoted,
    test_of,
    too_large,
)
from atoll.machinery.meta.status import FieldError

__all__ = [
    "FieldSelector",
    "LabelSelector",
    "SelectorError",
    "compile_label_selector",
    "parse_field_selector",
    "parse_label_selector",
    "validate_label_selector",
]


class LabelSelector:
    """A conjunction of requirements; without any it matches every object. Immutable, equal by canonical text."""

    __slots__ = ("_text", "matches", "matches_nothing", "requirements")

    #: Whether an object with these labels is selected.
    matches: Test

    def __init__(self, requirements: Iterable[Requirement] = (), *, matches_nothing: bool = False) -> None:
        self.requirements: tuple[Requirement, ...] = tuple(sorted(set(requirements)))
        self.matches_nothing = matches_nothing
        # No requirement prints a leading space, so no other selector has this text.
        self._text = " nothing" if matches_nothing else ",".join(map(str, self.requirements))
        self.matches = never if matches_nothing else all_of([test_of(each) for each in self.requirements])

    @property
    def matches_everything(self) -> bool:
        return not self.requirements and not self.matches_nothing

    def and_(self, other: LabelSelector) -> LabelSelector:
        """Return the selector of the objects that both select."""
        nothing = self.matches_nothing or other.matches_nothing
        return LabelSelector((*self.requirements, *other.requirements), matches_nothing=nothing)

    def exact(self) -> dict[str, str]:
        """Return the labels that the selector requires with exactly these values."""
        return {each.key: each.values[0] for each in self.requirements if each.operator == EQUALS}

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"LabelSelector({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


# --- LabelSelector objects --------------------------------------------------------------------------------

_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT}


def compile_label_selector(selector: Object | None) -> LabelSelector:
    """Compile a metav1 LabelSelector (matchLabels, matchExpressions).

    None selects nothing and `{}` everything, as in Kubernetes. Raises SelectorError where a requirement is
    not valid, its operator unknown, or there are more than MAX_TERMS of them.
    """
    if selector is None:
        return LabelSelector(matches_nothing=True)
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    if _terms(labels, expressions) > MAX_TERMS:
        raise too_large("label")
    requirements = [new_requirement(key, EQUALS, (value,)) for key, value in labels.items()]
    for expression in expressions:
        operator = _OBJECT_OPERATORS.get(expression["operator"])
        if operator is None:
            raise SelectorError(f"{quoted(expression['operator'])} is not a valid label selector operator")
        values = expression.get("values") or ()
        if operator in (EXISTS, ABSENT) and values:
            shown = "[" + ",".join(map(quoted, values)) + "]"
            text = "values set must be empty for exists and does not exist"
            raise SelectorError(f"values: Invalid value: {shown}: {text}")
        requirements.append(new_requirement(expression["key"], operator, values))
    return LabelSelector(requirements)


def _terms(labels: Mapping[str, str], expressions: Sequence[Object]) -> int:
    terms = len(labels) + len(expressions)
    if terms > MAX_TERMS:
        return terms
    return terms + sum(len(expression.get("values") or ()) for expression in expressions)


def validate_label_selector(selector: Object, field: str) -> list[FieldError]:
    """Validate a metav1 LabelSelector in field `field` of an object."""
    errors = _label_errors(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    expressions = selector.get("matchExpressions") or []
    if _terms(selector.get("matchLabels") or {}, expressions) > MAX_TERMS:
        return [FieldError("FieldValueTooMany", field, f"Too many: must have at most {MAX_TERMS} items")]
    for index, expression in enumerate(expressions):
        errors += _expression_errors(expression, f"{field}.matchExpressions[{index}]")
    return errors


def _label_errors(labels: Mapping[str, str], field: str) -> list[FieldError]:
    errors = []
    for key, value in labels.items():
        found = [(key, text) for text in syntax.label_key_errors(key)]
        found += [(value, text) for text in syntax.label_value_errors(value)]
        errors += [_invalid_value(field, shown, text) for shown, text in found]
    return errors


def _expression_errors(expression: Object, field: str) -> list[FieldError]:
    errors = []
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            text = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(FieldError("FieldValueRequired", f"{field}.values", text))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError("FieldValueForbidden", f"{field}.values", text))
    else:
        errors.append(_invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    key = expression.get("key", "")
    errors += [_invalid_value(f"{field}.key", key, text) for text in syntax.label_key_errors(key)]
    for index, value in enumerate(values):
        texts = syntax.label_value_errors(value)
        errors += [_invalid_value(f"{field}.values[{index}]", value, text) for text in texts]
    return errors


def _invalid_value(field: str, value: str, text: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {quoted(value)}: {text}")


# --- label selectors in query text ------------------------------------------------------------------------

_LABEL_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+")
_SIGNS = {"=": EQUALS, "==": EQUALS, "!=": NOT_EQUALS, ">": GREATER, "<": LESS, "in": IN, "notin": NOT_IN}
_SPECIAL = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">"))
_END = ""


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a `labelSelector` parameter. Raises SelectorError, also for one beyond the bounds."""
    if len(text) > MAX_TEXT_SIZE or text.count(",") >= MAX_TERMS:
        raise too_large("label")
    return LabelSelector(_LabelParser(text).requirements())


class _LabelParser:
    """Recursive descent over Kubernetes' grammar of label selectors, with its error texts."""

    def __init__(self, text: str) -> None:
        self._tokens = _LABEL_TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (token := self._peek()) != _END:
            if token != "!" and token in _SPECIAL:
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error.message}") from None
            if (token := self._next()) == _END:
                break
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
            token = self._peek()
            if token == _END or (token != "!" and token in _SPECIAL):
                raise SelectorError(f"found '{token}', expected: identifier after ','")
        return found

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!" and self._next() == "!"
        key = self._next()
        if key in _SPECIAL or key == _END:
            raise SelectorError(f"found '{key}', expected: identifier")
        if errors := syntax.label_key_errors(key):
            raise SelectorError(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(errors)}")
        # `!key` ends its requirement, as `key` alone does; the caller checks the next token.
        if absent or self._peek() in (_END, ","):
            return Requirement(key, ABSENT if absent else EXISTS)
        sign = self._next()
        operator = _SIGNS.get(sign)
        if operator is None:
            raise SelectorError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._value_list() if operator in (IN, NOT_IN) else {self._exact_value()}
        return new_requirement(key, operator, values)

    def _exact_value(self) -> str:
        if self._peek() in (_END, ","):
            return ""
        token = self._next()
        if token in _SPECIAL:
            raise SelectorError(f"found '{token}', expected: identifier")
        return token

    def _value_list(self) -> set[str]:
        """Parse `(a,b)`; a missing value before, between or after commas is the empty one."""
        if (token := self._next()) != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        values: set[str] = set()
        if self._peek() == ")":
            self._next()
            return values
        while True:
            values.add("" if self._peek() in (",", ")") else self._list_value())
            if (token := self._next()) == ")":
                return values
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or ')'")

    def _list_value(self) -> str:
        token = self._next()
        if token in _SPECIAL or token == _END:
            raise SelectorError(f"found '{token}', expected: ',', or identifier")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token
