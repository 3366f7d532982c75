"""What counts as broken at an edge cluster: the default tests of kinds, and rows for what was never tested there.

The tests are `schemas/edge/broken.yaml`. Invariant: a test that fails to evaluate says nothing, so an object is broken
only if a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import yaml

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.types import BOOL, STRING
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.summaries.collectors import Collector
from atoll.machinery.edge.summaries.expressions import ROW_BUDGET, NoValue, compile_expression, value_of
from atoll.machinery.process.resources import schema_path

MAX_MESSAGE = 256
#: Kinds that the table does not name.
_OTHERS = "*"


class Breakage(msgspec.Struct, frozen=True, array_like=True):
    """Why an object is broken at one destination. It counts once it held for `after_s` seconds."""

    reason: str
    message: str = ""
    after_s: float = 0.0


class _Row(msgspec.Struct, frozen=True):
    """A test as the table has it."""

    test: str
    reason: str
    message: str = ""
    after_s: float = 0.0


class _Test(msgspec.Struct, frozen=True):
    test: Program
    message: Program | None
    row: _Row


@cache
def _table() -> Mapping[str, tuple[_Test, ...]]:
    with schema_path("edge", "broken.yaml").open("rb") as file:
        kinds = msgspec.convert(yaml.load(file, yaml.CSafeLoader), dict[str, list[_Row]])
    return {kind: tuple(map(_compiled, rows)) for kind, rows in kinds.items()}


def _compiled(row: _Row) -> _Test:
    message = compile_expression(row.message, STRING) if row.message else None
    return _Test(compile_expression(row.test, BOOL), message, row)


def default_breakage(ref: ObjectRef, row: Mapping[str, Any]) -> Breakage | None:
    """Return what the default tests of a kind say of a row, None if it is sound; the first that holds counts."""
    name = f"{ref.resource}.{ref.group}" if ref.group else ref.resource
    budget = Budget(ROW_BUDGET)
    for each in _table().get(name, _table()[_OTHERS]):
        if _evaluated(each.test, row, budget) is True:
            message = _evaluated(each.message, row, budget) if each.message is not None else ""
            return Breakage(each.row.reason, _text(message), each.row.after_s)
    return None


def collected_breakage(collector: Collector, row: Mapping[str, Any], errors: dict[str, str]) -> Breakage | None:
    """Return what the test of a collector says of a row; fields that fail are added to `errors`."""
    assert collector.broken is not None, "a collector with a test"
    budget, found = Budget(ROW_BUDGET), dict[str, Any]()
    for name, program in (("broken.test", collector.broken), ("broken.message", collector.message)):
        try:
            found[name] = value_of(program, row, budget) if program is not None else None
        except NoValue as error:
            errors.setdefault(name, str(error))
        if found.get("broken.test") is not True:
            return None
    return Breakage("Collected", _text(found.get("broken.message")))


def _evaluated(program: Program, row: Mapping[str, Any], budget: Budget) -> Any:
    try:
        return value_of(program, row, budget)
    except NoValue:
        return None


def _text(value: Any) -> str:
    return value[:MAX_MESSAGE] if isinstance(value, str) else ""
