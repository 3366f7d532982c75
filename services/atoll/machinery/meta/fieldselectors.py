"""Field selectors: `metadata.name=x,status.phase!=Active`, parsed once for each request.

Verb handlers parse the query text with the labels that the kind supports, then match each object;
only the fields that the selector names are computed. The canonical text (`str`) is the key of caches and cursors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from atoll.machinery.meta.requirements import MAX_TERMS, MAX_TEXT_SIZE, SelectorError, too_large

NAME = "metadata.name"

_TERM = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile(r"!=|==|=")
_ESCAPE = re.compile(r"[\\,=]")


class Term(msgspec.Struct, frozen=True, order=True):
    """One condition on one field; `equal` False means `!=`. An absent field is the empty text."""

    name: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        value = _ESCAPE.sub(r"\\\g<0>", self.value)
        return f"{self.name}{'=' if self.equal else '!='}{value}"


class FieldSelector:
    """A conjunction of terms; without terms it matches every object. Immutable, equal by canonical text."""

    __slots__ = ("_text", "names", "terms")

    def __init__(self, terms: Collection[Term] = ()) -> None:
        self.terms: tuple[Term, ...] = tuple(sorted(set(terms)))
        #: The fields that `matches` looks at.
        self.names = frozenset(term.name for term in self.terms)
        self._text = ",".join(map(str, self.terms))

    @property
    def matches_everything(self) -> bool:
        return not self.terms

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected."""
        for term in self.terms:  # noqa: SIM110  a generator costs twice as much, and this runs for each object
            if (fields.get(term.name, "") == term.value) is not term.equal:
                return False
        return True

    def pinned(self, name: str) -> str:
        """Return the value that the selector requires of this field, empty if it requires none."""
        return next((term.value for term in self.terms if term.equal and term.name == name), "")

    def pinned_name(self) -> str:
        """Return the only name that can match (`metadata.name=x`), else empty; RBAC treats such a list as a get."""
        return self.pinned(NAME)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"FieldSelector({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSelector) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def parse_field_selector(text: str, names: Collection[str] | None = None) -> FieldSelector:
    """Parse a `fieldSelector` parameter.

    `names` are all field labels that the kind supports; None leaves them to the caller. Raises SelectorError
    for bad syntax, a label not among names, or a selector too large.
    """
    if len(text) > MAX_TEXT_SIZE or text.count(",") >= MAX_TERMS:
        raise too_large("field")
    terms = [_parse_term(part, text) for part in sorted(_TERM.findall(text))]
    unknown = next((term.name for term in terms if names is not None and term.name not in names), None)
    if unknown is not None:
        raise SelectorError(f"field label not supported: {unknown}")
    return FieldSelector(terms)


def _parse_term(part: str, text: str) -> Term:
    operator = _OPERATOR.search(part)
    if operator is None:
        raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
    value = _unescape(part[operator.end() :])
    return Term(part[: operator.start()], value, operator.group() != "!=")


def _unescape(text: str) -> str:
    value, position = [], 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
            char = text[position] if position < len(text) else ""
            if char not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{char}")
        elif char in (",", "="):
            raise SelectorError(f"invalid field selector: unescaped character in value: {char}")
        value.append(char)
        position += 1
    return "".join(value)
