"""JSON paths of Customizers: which places of a value a path selects, and the value with these places replaced.

`customization` calls `parse` and `replaced`. Grammar: `$`, then `.name`, `.0`, `.*`, `[1,2]`, `["a",'b']`,
`[from:to:step]`, `[*]`, and `..` for a place and all below it. Invariants: what is not selected stays; arrays never
grow; a map member is made only by a definite path, one that can select no more places than it names; of a place and
one inside it the outer one is replaced. Each place that is visited is a step of a `Budget`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

#: Most selectors of a path.
MAX_SELECTORS = 64
#: Names of members and indices of elements, from the value itself to a place in it.
Place: TypeAlias = "tuple[str | int, ...]"


class BadPath(ValueError):
    """A text that is no path."""


class OverBudget(ValueError):
    """More steps or bytes than a customization may take."""


class Budget:
    """Steps and bytes that are left."""

    def __init__(self, steps: int, size: int) -> None:
        self._steps, self._bytes = steps, size

    def step(self) -> None:
        """Take one step. Raises OverBudget."""
        self._steps -= 1
        if self._steps < 0:
            raise OverBudget("takes too many steps")

    def write(self, size: int) -> None:
        """Write bytes. Raises OverBudget."""
        self._bytes -= size
        if self._bytes < 0:
            raise OverBudget("writes too many bytes")


class Names(msgspec.Struct, frozen=True):
    """Members of a map."""

    names: tuple[str, ...]


class Indices(msgspec.Struct, frozen=True):
    """Elements of an array."""

    indices: tuple[int, ...]


class Range(msgspec.Struct, frozen=True):
    """Elements of an array from one on, to before another one or the end."""

    start: int
    stop: int | None
    stride: int

    @property
    def is_single(self) -> bool:
        """Whether it has one element at most."""
        return self.stop is not None and self.stop - self.start == 1


class Every(msgspec.Struct, frozen=True):
    """All members of a map, all elements of an array."""


class Descend(msgspec.Struct, frozen=True):
    """A value and all below it."""


Selector: TypeAlias = Names | Indices | Range | Every | Descend
Path: TypeAlias = tuple[Selector, ...]

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_TOKEN = re.compile(
    r"(?P<descend>\.\.)(?=\[|\.|$)"
    r"|(?P<deep>\.)?\.(?:(?P<star>\*)|(?P<word>[A-Za-z0-9_$]+))"
    r"|\[\s*(?:(?P<all>\*)|(?P<range>[0-9]*\s*:\s*[0-9]*(?:\s*:\s*[0-9]*)?)|(?P<indices>[0-9]+(?:\s*,\s*[0-9]+)*)"
    rf"|(?P<names>(?:{_QUOTED})(?:\s*,\s*(?:{_QUOTED}))*))\s*\]",
    re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
MISSING = object()


def parse(text: str) -> Path:
    """Return a path. Raises BadPath."""
    if not text.startswith("$"):
        raise BadPath('must begin with "$"')
    found: list[Selector] = []
    at = 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise BadPath(f"is no JSONPath from character {at + 1} on")
        found.extend(each for each in _selectors(token) if not (found and found[-1] == each == Descend()))
        at = token.end()
    if len(found) > MAX_SELECTORS:
        raise BadPath(f"has more than {MAX_SELECTORS} selectors")
    return tuple(found)


def _selectors(token: re.Match[str]) -> Iterator[Selector]:
    parts = token.groupdict()
    if parts["descend"] or parts["deep"]:
        yield Descend()
    if parts["star"] or parts["all"]:
        yield Every()
    elif word := parts["word"]:
        yield Indices((_number(word),)) if word.isdecimal() else Names((word,))
    elif indices := parts["indices"]:
        yield Indices(tuple(_number(each) for each in indices.split(",")))
    elif range_ := parts["range"]:
        start, stop, stride = [*(each.strip() for each in range_.split(":")), ""][:3]
        if stride and not _number(stride):
            raise BadPath("has a range with the step 0")
        yield Range(_number(start or "0"), _number(stop) if stop else None, _number(stride or "1"))
    elif names := parts["names"]:
        yield Names(tuple(_unquoted(each) for each in re.findall(_QUOTED, names, re.DOTALL)))


def _number(text: str) -> int:
    if len(text.strip()) > 9:
        raise BadPath("has a number that is too large")
    return int(text)


def _unquoted(text: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _CONTROL.get(match[3], match[3])

    found = _ESCAPE.sub(unescaped, text[1:-1])
    try:
        # Two escapes may be one character.
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise BadPath("has an escape that is no character") from error


def is_definite(path: Path) -> bool:
    """Whether a path can select no more places than it names."""
    return all(isinstance(each, Names | Indices) or (isinstance(each, Range) and each.is_single) for each in path)


def places(value: Any, path: Path, budget: Budget) -> list[Place]:
    """Return the places that a path selects, with members that a definite one makes. Raises OverBudget."""
    found: dict[Place, None] = {}
    creates = is_definite(path)

    def visit(node: Any, number: int, at: Place) -> None:
        budget.step()
        if number == len(path):
            found[at] = None
            return
        selector = path[number]
        if isinstance(selector, Descend):
            visit(node, number + 1, at)
            for key, child in _children(node):
                visit(child, number, (*at, key))
            return
        for key, child in _selected(node, selector):
            if child is not MISSING or creates:
                visit(child, number + 1, (*at, key))

    visit(value, 0, ())
    return list(found)


def _children(node: Any) -> list[tuple[str | int, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, list) else []


def _selected(node: Any, selector: Selector) -> list[tuple[str | int, Any]]:
    """Return what a selector other than `Descend` selects of a value; members that are not there are MISSING."""
    if isinstance(selector, Every):
        return _children(node)
    if isinstance(selector, Names):
        if node is MISSING:
            return [(name, MISSING) for name in selector.names]
        return [(name, node.get(name, MISSING)) for name in selector.names] if isinstance(node, dict) else []
    if not isinstance(node, list):
        return []
    if isinstance(selector, Indices):
        return [(index, node[index]) for index in selector.indices if index < len(node)]
    if isinstance(selector, Range):
        stop = len(node) if selector.stop is None else min(selector.stop, len(node))
        return [(index, node[index]) for index in range(selector.start, stop, selector.stride)]
    return []


def values(value: Any, path: Path, budget: Budget) -> list[Any]:
    """Return what is at the places of a path, where something is. Raises OverBudget."""
    found = []
    for place in places(value, path, budget):
        node = value
        for key in place:
            node = node.get(key, MISSING) if isinstance(node, dict) else node[key] if node is not MISSING else MISSING
        if node is not MISSING:
            found.append(node)
    return found


def replaced(value: Any, path: Path, make: Callable[[], Any], budget: Budget) -> Any:
    """Return a value, which is changed, with a new value from `make` at each place of a path. Raises OverBudget."""
    done: set[Place] = set()
    for place in sorted(places(value, path, budget), key=len):
        if any(place[:length] in done for length in range(len(place))):
            continue
        done.add(place)
        if not place:
            return make()
        node = value
        for key in place[:-1]:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
        node[place[-1]] = make()
    return value
