"""StatusCollectors as values: what they are about, and their compiled expressions.

The summarizer decodes each once; admission decodes it to refuse what does not compile. Invariant: a `Collector` is
wholly valid, as an EdgePlacement is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.types import BOOL, DYN, STRING, Type
from atoll.machinery.edge.associated import MAX_ROW_BYTES, Rule, query_row, rules_of
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import DownsyncTest, UpsyncSet, downsync_test
from atoll.machinery.edge.summaries.expressions import (
    ROW_BUDGET,
    InvalidExpression,
    NoValue,
    compile_expression,
    value_of,
)
from atoll.machinery.meta.objects import Object, encode_json, spec_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

COUNT, SUM, AVG, MIN, MAX = "COUNT", "SUM", "AVG", "MIN", "MAX"
DEFAULT_LIMIT, DEFAULT_BROKEN = 20, 10
#: Called between two pieces of a long compilation.
Pause = Callable[[], None]


class InvalidCollector(Exception):
    """A StatusCollector with errors."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class Column(msgspec.Struct, frozen=True):
    """A named expression."""

    name: str
    program: Program


class Combined(msgspec.Struct, frozen=True):
    """A field of a group of rows: an aggregate of a subject, which COUNT may lack."""

    name: str
    type: str
    program: Program | None = None


class Cells(msgspec.Struct, frozen=True, array_like=True):
    """What a collector takes from one row: the values of its columns, of `group_by` or of `select`, and of subjects."""

    columns: tuple[Any, ...] = ()
    subjects: tuple[Any, ...] = ()


class Collector(msgspec.Struct, frozen=True):
    """A valid StatusCollector, and the spec that it was made of. Without `targets` and `placements` it is about all."""

    name: str
    spec: Object
    targets: tuple[DownsyncTest, ...] = ()
    placements: frozenset[str] = frozenset()
    filter: Program | None = None
    group_by: tuple[Column, ...] = ()
    combined: tuple[Combined, ...] = ()
    select: tuple[Column, ...] = ()
    limit: int = DEFAULT_LIMIT
    broken: Program | None = None
    message: Program | None = None
    max_broken: int = DEFAULT_BROKEN
    associated: tuple[Rule, ...] = ()

    def covers(self, group: str, resource: str) -> bool:
        """Whether it may be about objects of a kind."""
        return not self.targets or any(each.covers(group, resource) for each in self.targets)

    def concerns(self, ref: ObjectRef, labels: Mapping[str, str]) -> bool:
        """Whether it is about an object. Its targets have no selectors of Namespaces."""
        return not self.targets or any(each.matches(ref, labels, {}) for each in self.targets)

    def concerns_set(self, members: UpsyncSet) -> bool:
        """Whether it may be about objects of a set that comes up."""
        return not self.targets or any(each.overlaps(members) for each in self.targets)

    def is_for(self, placement: str) -> bool:
        """Whether it is about a placement."""
        return not self.placements or placement in self.placements

    def has_table(self) -> bool:
        """Whether it makes a table, or is about broken objects alone."""
        return bool(self.combined or self.select)

    def column_names(self) -> list[str]:
        """Return the names of the columns of its table."""
        fields = [each.name for each in self.combined]
        return [*(each.name for each in self.group_by), *fields, *(each.name for each in self.select)]

    def cells(self, row: Mapping[str, Any], errors: dict[str, str]) -> Cells | None:
        """Return what it takes from a row, None if its filter leaves the row out; fields that fail are added."""
        budget = Budget(ROW_BUDGET)
        if self.filter is not None and not self._passes(self.filter, row, budget, errors):
            return None
        columns = [_cell(each.name, each.program, row, budget, errors) for each in (*self.group_by, *self.select)]
        subjects = [
            None if each.program is None else _cell(each.name, each.program, row, budget, errors)
            for each in self.combined
        ]
        return Cells(tuple(columns), tuple(subjects))

    def _passes(self, program: Program, row: Mapping[str, Any], budget: Budget, errors: dict[str, str]) -> bool:
        found = _cell("filter", program, row, budget, errors)
        if found is not None and not isinstance(found, bool):
            errors.setdefault("filter", "the value is not a bool")
        return found is True


def _cell(name: str, program: Program, row: Mapping[str, Any], budget: Budget, errors: dict[str, str]) -> Any:
    try:
        return value_of(program, row, budget)
    except NoValue as error:
        errors.setdefault(name, str(error))
        return None


def collector_of(obj: Object, pause: Pause | None = None) -> Collector:
    """Decode a StatusCollector. Raises InvalidCollector with each error and its field."""
    spec, errors = spec_of(obj), list[FieldError]()
    broken = spec.get("broken") or {}
    texts = _Texts(errors, pause)
    targets = tuple(
        downsync_test(each, f"spec.target[{index}]", errors) for index, each in enumerate(spec.get("target") or ())
    )
    found = Collector(
        obj["metadata"].get("name", ""),
        spec,
        targets,
        frozenset(spec.get("edgePlacements") or ()),
        texts.compiled(spec.get("filter"), "spec.filter", BOOL),
        tuple(texts.columns(spec, "groupBy")),
        tuple(texts.combined(spec)),
        tuple(texts.columns(spec, "select")),
        spec.get("limit") or DEFAULT_LIMIT,
        texts.compiled(broken.get("test"), "spec.broken.test", BOOL),
        texts.compiled(broken.get("message"), "spec.broken.message", STRING),
        broken.get("maxObjects") or DEFAULT_BROKEN,
        rules_of(spec.get("associated") or (), "spec.associated", errors),
    )
    if found.associated and len(encode_json(query_row("", spec))) > MAX_ROW_BYTES:
        text = f"target and associated together must not have more than {MAX_ROW_BYTES} bytes"
        errors.append(FieldError("FieldValueInvalid", "spec.associated", f"Invalid value: {text}"))
    if errors:
        raise InvalidCollector(errors)
    return found


class _Texts:
    """Compiles the texts of one collector, and takes down their errors."""

    def __init__(self, errors: list[FieldError], pause: Pause | None) -> None:
        self._errors, self._pause = errors, pause

    def compiled(self, text: str | None, field: str, wanted: Type = DYN) -> Program | None:
        if text is None:
            return None
        try:
            return compile_expression(text, wanted, self._pause)
        except InvalidExpression as error:
            self._errors.append(invalid(field, text, str(error)))
            return None

    def combined(self, spec: Object) -> Iterator[Combined]:
        for index, each in enumerate(spec.get("combinedFields") or ()):
            subject = self.compiled(each.get("subject"), f"spec.combinedFields[{index}].subject")
            yield Combined(each["name"], each["type"], subject)

    def columns(self, spec: Object, field: str) -> Iterator[Column]:
        for index, each in enumerate(spec.get(field) or ()):
            program = self.compiled(each["def"], f"spec.{field}[{index}].def")
            if program is not None:
                yield Column(each["name"], program)
