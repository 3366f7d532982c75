"""JSONPath as kubectl and printer columns write it, compiled once and kept in a bounded cache.

Tables read cells with `first`, field selectors of custom resources and label selector paths of scale do so too,
and validation of definitions calls `compile_path` to check a path. Supported are fields
(`.a`, `['a.b']`, `.a\\.b`), indexes and slices (`[0]`, `[-1]`, `[1:3]`), `[*]` and `.*`, `..a`, unions (`[0,2]`)
and filters (`[?(@.type=="Ready")]`). Invariant: reading never raises; missing values are skipped.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

CACHE_SIZE = 4096
#: Longer paths, and filters nested deeper, are errors.
MAX_SIZE, MAX_FILTERS = 4096, 8

Step = Callable[[list[Any]], list[Any]]


class JsonPathError(ValueError):
    """The path is malformed or unsupported; the text says where."""


class Path:
    """A compiled path."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str, steps: list[Step]) -> None:
        self.text = text
        self._steps = steps

    def find(self, obj: Any) -> list[Any]:
        """Return every value at the path, in document order; empty if there is none."""
        found = [obj]
        for step in self._steps:
            found = step(found)
            if not found:
                break
        return found


@lru_cache(maxsize=CACHE_SIZE)
def compile_path(text: str) -> Path:
    """Compile a path, with or without braces and leading `$`. Raises JsonPathError."""
    if len(text) > MAX_SIZE:
        raise JsonPathError(f"path is longer than {MAX_SIZE} characters")
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1].strip()
    return Path(text, _Parser(body.removeprefix("$")).steps())


def first(text: str, obj: Any) -> Any:
    """Return the first value at a path; None if there is none, or if the path is invalid."""
    try:
        path = compile_path(text)
    except JsonPathError:
        return None
    found = path.find(obj)
    return found[0] if found else None


# --- steps ---------------------------------------------------------------------------------------------------


def _field(name: str) -> Step:
    return lambda found: [value[name] for value in found if type(value) is dict and name in value]


def _every() -> Step:
    return lambda found: [child for value in found for child in _children(value)]


def _children(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _slice(part: slice) -> Step:
    return lambda found: [child for value in found if type(value) is list for child in value[part]]


def _index(index: int) -> Step:
    # A slice of one item, because an index out of range has no result.
    return _slice(slice(index, index + 1 if index != -1 else None))


def _descend(name: str) -> Step:
    return lambda found: [child for value in found for child in _below(value, name)]


def _below(value: Any, name: str) -> Iterator[Any]:
    todo = [value]
    while todo:
        item = todo.pop()
        if type(item) is dict and (name == "*" or name in item):
            yield from item.values() if name == "*" else [item[name]]
        todo.extend(reversed(_children(item)))


def _union(steps: list[Step]) -> Step:
    return lambda found: [child for value in found for step in steps for child in step([value])]


def _filter(test: Callable[[Any], bool]) -> Step:
    return lambda found: [child for value in found for child in _children(value) if test(child)]


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def _compared(left: Path | Any, name: str, right: Path | Any) -> Callable[[Any], bool]:
    compare = _COMPARISONS[name]

    def test(item: Any) -> bool:
        operands = [_operand(each, item) for each in (left, right)]
        if not all(operands):
            return False
        one, other = operands[0][0], operands[1][0]
        if isinstance(one, bool) != isinstance(other, bool):
            return name == "!="
        try:
            return compare(one, other)
        except TypeError:
            return False

    return test


def _operand(each: Path | Any, item: Any) -> list[Any]:
    return each.find(item) if isinstance(each, Path) else [each]


# --- parser --------------------------------------------------------------------------------------------------

_NAME = re.compile(r"(?:[^.,\[\]\\{}()'\"\s=!<>]|\\.)+")
_INTEGER = re.compile(r"[-+]?[0-9]{1,10}")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_COMPARISON = re.compile(r"==|!=|<=|>=|<|>")
_ESCAPE = re.compile(r"\\(.)")


class _Parser:
    """Parses one path from left to right; every method advances the position past its input."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.filters = 0

    def steps(self) -> list[Step]:
        """The steps up to the end of the text."""
        steps = self._path()
        if self.at < len(self.text):
            raise self._error("unexpected text")
        return steps

    def _path(self) -> list[Step]:
        steps: list[Step] = []
        if self.at == 0 and self._peek() not in (".", "[", ""):
            steps.append(_field(self._name()))
        while self._peek() in (".", "["):
            steps.append(self._bracket() if self._take("[") else self._dotted())
        return steps

    def _dotted(self) -> Step:
        self._expect(".")
        if self._take("."):
            return _descend("*" if self._take("*") else self._name())
        if self._take("*"):
            return _every()
        if self._peek() in ("", "["):
            # `.` alone is the object itself, and `.[0]` its first item.
            return lambda found: found
        return _field(self._name())

    def _bracket(self) -> Step:
        if self._take("?"):
            return self._filter()
        steps = [self._selector()]
        while self._take(","):
            steps.append(self._selector())
        self._expect("]")
        return steps[0] if len(steps) == 1 else _union(steps)

    def _filter(self) -> Step:
        self.filters += 1
        if self.filters > MAX_FILTERS:
            raise self._error("filters are nested too deep")
        self._expect("(")
        test = self._test()
        self._expect(")")
        self._expect("]")
        self.filters -= 1
        return _filter(test)

    def _selector(self) -> Step:
        if self._take("*"):
            return _every()
        if (quoted := self._match(_QUOTED)) is not None:
            return _field(_unquoted(quoted))
        start = self._match(_INTEGER)
        if self._take(":"):
            return _slice(self._slice(start))
        if start is not None:
            return _index(int(start[0]))
        return _field(self._name())

    def _slice(self, start: re.Match[str] | None) -> slice:
        bounds = [None if start is None else int(start[0])]
        stop = self._match(_INTEGER)
        bounds.append(None if stop is None else int(stop[0]))
        if self._take(":") and (step := self._match(_INTEGER)) is not None:
            if int(step[0]) <= 0:
                raise self._error("step must be > 0")
            bounds.append(int(step[0]))
        return slice(*bounds)

    def _test(self) -> Callable[[Any], bool]:
        left = self._operand()
        comparison = self._match(_COMPARISON)
        if comparison is not None:
            return _compared(left, comparison[0], self._operand())
        if not isinstance(left, Path):
            raise self._error("a filter needs a path")
        return lambda item: bool(left.find(item))

    def _operand(self) -> Path | Any:
        if self._take("@"):
            start = self.at
            return Path(self.text[start : self.at], self._path())
        if (quoted := self._match(_QUOTED)) is not None:
            return _unquoted(quoted)
        if (number := self._match(_NUMBER)) is not None:
            return float(number[0]) if "." in number[0] else int(number[0])
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self._take(word):
                return value
        raise self._error("expected @, a string, a number, true or false")

    def _name(self) -> str:
        match = self._match(_NAME)
        if match is None:
            raise self._error("expected a name")
        return _ESCAPE.sub(r"\1", match[0])

    def _skip_space(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def _peek(self) -> str:
        self._skip_space()
        return self.text[self.at : self.at + 1]

    def _take(self, text: str) -> bool:
        self._skip_space()
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._error(f"expected {text}")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip_space()
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def _error(self, problem: str) -> JsonPathError:
        return JsonPathError(f"{problem} at character {self.at} of {self.text!r}")


def _unquoted(match: re.Match[str]) -> str:
    return _ESCAPE.sub(r"\1", match[1] if match[1] is not None else match[2])
