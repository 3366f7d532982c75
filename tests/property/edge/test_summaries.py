"""A table of a StatusCollector is what SQLite answers to the SELECT that it stands for, on the same rows."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.summaries.cells import rank
from atoll.machinery.edge.summaries.collectors import Collector, collector_of
from atoll.machinery.edge.summaries.tables import table
from atoll.machinery.meta.objects import Object
from harness.seeds import drawn

FIELDS = ("a", "b", "c")
VALUES = st.one_of(
    st.none(), st.integers(-9, 9), st.integers(-9, 9).map(lambda each: each / 4), st.integers(-9, 9).map(str)
)
ROWS = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, VALUES)), max_size=12)
NAMES = st.sampled_from(FIELDS)
COMBINED = st.lists(st.tuples(st.sampled_from(("COUNT", "SUM", "AVG", "MIN", "MAX")), NAMES), min_size=1, max_size=3)
FILTERS = st.one_of(st.none(), st.tuples(NAMES, st.integers(-3, 3)))


def value(field: str) -> str:
    return f"returned.status.{field}"


def number(field: str) -> str:
    """Of an SQLite column: a text that is a number counts as one, as in a collector."""
    return f"CAST({field} AS NUMERIC)"


def collected(spec: Object, rows: list[Object]) -> list[list[Any]]:
    collector = collector_of({"metadata": {"name": "c"}, "spec": {"limit": 100, **spec}})
    errors: dict[str, str] = {}
    cells = [collector.cells(as_row(each), errors) for each in rows]
    assert errors == {}
    found = table(collector, [each for each in cells if each is not None], errors)
    assert errors == {}
    return [[read(cell) for cell in row["columns"]] for row in found["rows"]]


def as_row(fields: Object) -> Object:
    return {"inventory": {}, "obj": {}, "sent": {}, "returned": {"status": fields}, "propagation": {}}


def read(cell: Object) -> Any:
    if cell["type"] == "Null":
        return None
    if cell["type"] == "Number":
        return float(cell["float"])
    return cell["string"]


def selected(columns: str, rows: list[Object], where: tuple[str, int] | None, group: str = "") -> list[list[Any]]:
    base = sqlite3.connect(":memory:")
    base.execute(f"CREATE TABLE t ({', '.join(FIELDS)})")
    for row in rows:
        base.execute("INSERT INTO t VALUES (?, ?, ?)", [row.get(field) for field in FIELDS])
    # An expression has no value for a text; SQLite has one.
    condition = f"WHERE typeof({where[0]}) IN ('integer', 'real') AND {where[0]} > {where[1]}" if where else ""
    found = base.execute(f"SELECT {columns} FROM t {condition} {group}").fetchall()
    base.close()
    as_floats = [[float(each) if isinstance(each, int) else each for each in row] for row in found]
    return sorted(as_floats, key=lambda row: [rank(each) for each in row])


def filtered(where: tuple[str, int] | None) -> Object:
    if where is None:
        return {}
    field, least = where
    is_number = f"(type({value(field)}) == int || type({value(field)}) == double)"
    return {"filter": f"has({value(field)}) && {is_number} && {value(field)} > {least}"}


@settings(max_examples=drawn(200), deadline=None)
@given(ROWS, st.lists(NAMES, min_size=1, max_size=3), FILTERS)
def test_a_selection_is_sqlites(rows: list[Object], fields: list[str], where: tuple[str, int] | None) -> None:
    select = [{"name": f"{index}", "def": value(field)} for index, field in enumerate(fields)]
    assert collected({"select": select, **filtered(where)}, rows) == selected(", ".join(fields), rows, where)


@settings(max_examples=drawn(300), deadline=None)
@given(ROWS, st.lists(NAMES, max_size=2, unique=True), COMBINED, FILTERS)
def test_groups_and_aggregates_are_sqlites(
    rows: list[Object], groups: list[str], combined: list[tuple[str, str]], where: tuple[str, int] | None
) -> None:
    spec = {
        "groupBy": [{"name": f"g{field}", "def": value(field)} for field in groups],
        "combinedFields": [
            {"name": f"{index}", "type": kind, "subject": value(field)} for index, (kind, field) in enumerate(combined)
        ],
        **filtered(where),
    }
    fields = [f"{kind}({field if kind == 'COUNT' else number(field)})" for kind, field in combined]
    group = f"GROUP BY {', '.join(groups)}" if groups else ""
    assert collected(spec, rows) == selected(", ".join([*groups, *fields]), rows, where, group)


@settings(max_examples=drawn(100), deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_order_of_rows_changes_nothing_and_what_is_left_out_is_counted(
    rows: list[Object], chance: Any, limit: int
) -> None:
    spec = {"select": [{"name": "a", "def": value("a")}, {"name": "b", "def": value("b")}], "limit": limit}
    collector: Collector = collector_of({"metadata": {"name": "c"}, "spec": spec})
    mixed = list(rows)
    chance.shuffle(mixed)
    first, second = (
        table(collector, [each for row in order if (each := collector.cells(as_row(row), {})) is not None], {})
        for order in (rows, mixed)
    )
    assert first == second
    assert len(first["rows"]) + first.get("truncated", 0) == len(rows)
