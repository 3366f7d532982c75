"""One requirement of a label selector: checked, normalized, and turned into a test on labels.

`selectors` builds these from query text and from LabelSelector objects. Errors carry Kubernetes' texts; the
bounds on selectors are here because they apply to every form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from atoll.machinery.meta import labels as syntax
from atoll.machinery.meta.status import BadRequest

#: Kubernetes has no such bounds; here they limit the work, since a selector is matched against every object of a list.
MAX_TEXT_SIZE = 65_536
MAX_TERMS = 1_024

EQUALS, NOT_EQUALS, IN, NOT_IN = "=", "!=", "in", "notin"
EXISTS, ABSENT, GREATER, LESS = "exists", "!", "gt", "lt"

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")


#: Whether an object with these labels is selected.
Test = Callable[[Mapping[str, str]], bool]


class SelectorError(BadRequest):
    """An invalid selector: 400 with the text of Kubernetes."""


class Requirement(msgspec.Struct, frozen=True, order=True):
    """One condition on one label. Values are sorted; `in` with one value is held as `=`, `notin` as `!=`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == ABSENT:
            return "!" + self.key
        if self.operator in (IN, NOT_IN):
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        sign = {GREATER: ">", LESS: "<"}.get(self.operator, self.operator)
        return f"{self.key}{sign}{self.values[0]}"


def new_requirement(key: str, operator: str, values: Collection[str] = ()) -> Requirement:
    """Check and normalize one requirement. Raises SelectorError with Kubernetes' text."""
    problems = [*_count_problems(operator, values)]
    if errors := syntax.label_key_errors(key):
        problems.insert(0, f"key: Invalid value: {quoted(key)}: {'; '.join(errors)}")
    for index, value in enumerate(sorted(set(values))):
        if errors := syntax.label_value_errors(value):
            problems.append(f"values[{index}][{key}]: Invalid value: {quoted(value)}: {'; '.join(errors)}")
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    distinct = tuple(sorted(set(values)))
    if len(distinct) == 1:
        operator = {IN: EQUALS, NOT_IN: NOT_EQUALS}.get(operator, operator)
    return Requirement(key, operator, distinct)


def too_large(what: str) -> SelectorError:
    """Return the error of a selector beyond the bounds; `what` is `label` or `field`."""
    return SelectorError(f"{what} selector is too large: limit is {MAX_TERMS} terms and {MAX_TEXT_SIZE} bytes")


def _count_problems(operator: str, values: Collection[str]) -> Iterable[str]:
    shown = "[" + ",".join(quoted(value) for value in values) + "]"
    if operator in (IN, NOT_IN):
        if not values:
            yield f"values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"
    elif operator in (GREATER, LESS):
        if len(values) != 1:
            yield f"values: Invalid value: {shown}: for 'Gt', 'Lt' operators, exactly one value is required"
        for index, value in enumerate(values):
            if _integer(value) is None:
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                yield f"values[{index}]: Invalid value: {quoted(value)}: {text}"


def quoted(value: str) -> str:
    """The text as JSON, as Kubernetes prints wrong values."""
    return msgspec.json.encode(value).decode()


def _integer(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


def never(labels: Mapping[str, str]) -> bool:
    """Match no object."""
    return False


def _always(labels: Mapping[str, str]) -> bool:
    return True


def all_of(tests: Sequence[Test]) -> Test:
    """Combine tests: match objects that all of them match; without tests every object."""
    if not tests:
        return _always
    if len(tests) == 1:
        return tests[0]

    def every(labels: Mapping[str, str]) -> bool:
        for test in tests:  # noqa: SIM110  a generator costs twice as much, and this runs for each object
            if not test(labels):
                return False
        return True

    return every


def test_of(requirement: Requirement) -> Test:
    """The requirement as a function of labels."""
    key, operator = requirement.key, requirement.operator
    if operator == EXISTS:
        return lambda labels: key in labels
    if operator == ABSENT:
        return lambda labels: key not in labels
    first, values = requirement.values[0], frozenset(requirement.values)
    if operator == EQUALS:
        return lambda labels: labels.get(key) == first
    if operator == NOT_EQUALS:
        return lambda labels: labels.get(key) != first
    if operator == IN:
        return lambda labels: labels.get(key) in values
    if operator == NOT_IN:
        return lambda labels: labels.get(key) not in values
    return _comparison(key, operator, int(first))


def _comparison(key: str, operator: str, bound: int) -> Test:
    def compare(labels: Mapping[str, str]) -> bool:
        number = _integer(labels.get(key, ""))
        if number is None:
            return False
        return number > bound if operator == GREATER else number < bound

    return compare
