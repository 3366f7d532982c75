"""Which rows of a parametrized test the default run has; the long tier has all others."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import pytest

#: What `pytest.param` makes.
ROW = type(pytest.param())


def every(step: int, rows: Iterable[object]) -> list[object]:
    """The first of each `step` rows belongs to the default run."""
    return [row if number % step == 0 else _long(row) for number, row in enumerate(rows)]


def only(chosen: Container[object] | Callable[[object], bool], rows: Iterable[object]) -> list[object]:
    """The chosen rows belong to the default run."""
    is_chosen = chosen if callable(chosen) else chosen.__contains__
    return [row if is_chosen(row) else _long(row) for row in rows]


def _long(row: object) -> object:
    if isinstance(row, ROW):
        return pytest.param(*row.values, id=row.id, marks=[*row.marks, pytest.mark.long])
    values = row if type(row) is tuple else (row,)
    return pytest.param(*values, marks=pytest.mark.long)
