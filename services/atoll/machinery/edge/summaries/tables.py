"""Tables of rows: what one SQL SELECT over the destinations gives, with sorted rows and a limit.

The summarizer makes one for each collector and object. Invariant: the result depends on the rows alone, not on their
order; a table says how many rows it left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from atoll.machinery.edge.summaries.cells import column, number_of, rank
from atoll.machinery.edge.summaries.collectors import COUNT, MAX, MIN, SUM, Cells, Collector, Combined
from atoll.machinery.edge.summaries.expressions import whole
from atoll.machinery.meta.objects import Object, encode_json


def table(collector: Collector, rows: Iterable[Cells], errors: dict[str, str]) -> Object:
    """Return the result of a collector; combined fields that met what is no number are added to `errors`."""
    found = _combined(collector, rows, errors) if collector.combined else [list(each.columns) for each in rows]
    found.sort(key=lambda row: [rank(cell) for cell in row])
    shown = found[: collector.limit]
    result: Object = {
        "name": collector.name,
        "columnNames": collector.column_names(),
        "rows": [{"columns": [column(cell) for cell in row]} for row in shown],
    }
    if len(found) > len(shown):
        result["truncated"] = len(found) - len(shown)
    return result


def _combined(collector: Collector, rows: Iterable[Cells], errors: dict[str, str]) -> list[list[Any]]:
    """Return a row for each group: its columns, then the combined fields. Without columns all rows are one group."""
    groups: dict[bytes, tuple[Sequence[Any], list[Cells]]] = {}
    if not collector.group_by:
        groups[_key(())] = (), []
    for row in rows:
        groups.setdefault(_key(row.columns), (row.columns, []))[1].append(row)
    return [[*columns, *_fields(collector, members, errors)] for columns, members in groups.values()]


def _fields(collector: Collector, members: list[Cells], errors: dict[str, str]) -> Iterator[int | float | None]:
    for index, field in enumerate(collector.combined):
        yield _field(field, [row.subjects[index] for row in members], errors)


def _key(columns: Sequence[Any]) -> bytes:
    return encode_json(columns)


def _field(field: Combined, subjects: list[Any], errors: dict[str, str]) -> int | float | None:
    if field.type == COUNT:
        return len(subjects) if field.program is None else sum(each is not None for each in subjects)
    present = [each for each in subjects if each is not None]
    numbers = [number for each in present if (number := number_of(each)) is not None]
    if len(numbers) < len(present):
        errors.setdefault(field.name, f"{field.type} of a value that is not a number")
    if not numbers:
        return None
    found = _aggregate(field.type, numbers)
    return whole(found) if math.isfinite(found) else None


def _aggregate(kind: str, numbers: list[int | float]) -> int | float:
    if kind in (MIN, MAX):
        return min(numbers) if kind == MIN else max(numbers)
    try:
        total = math.fsum(numbers) if any(isinstance(each, float) for each in numbers) else sum(numbers)
    except OverflowError:
        return math.inf
    return total if kind == SUM else total / len(numbers)
