"""Cells of custom kinds in tables, as Kubernetes' converter makes them."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.catalog.printer_columns import cell
from atoll.machinery.kinds.kind import Column

NOW_S = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def of(type_: str, value: Any, path: str = ".spec.x") -> object:
    return cell(Column("X", type_, json_path=path), {"spec": {"x": value}}, NOW_S)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("string", "a", "a"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", 2.5, "2.5"),
        ("string", 1_000_000.0, "1e+06"),
        ("string", 123456789.0, "1.23456789e+08"),
        ("string", 100000.0, "100000"),
        ("string", {"b": 1, "a": ["x", "<&>"]}, '{"a":["x","\\u003c\\u0026\\u003e"],"b":1}'),
        ("string", ["a", "b"], '["a","b"]'),
        ("string", "", ""),
        ("integer", 3, 3),
        ("integer", 3.9, 3),
        ("integer", "3", None),
        ("integer", True, None),
        ("number", 3, 3),
        ("number", 3.5, 3.5),
        ("number", "3", None),
        ("boolean", True, True),
        ("boolean", False, False),
        ("boolean", "true", None),
        ("boolean", 1, None),
        ("date", "2023-11-14T22:11:20Z", "2m"),
        ("date", "2023-11-13T22:13:20Z", "24h"),
        ("date", "soon", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", 3, None),
        ("date", "2023-11-14T22:14:20Z", "<invalid>"),
    ],
)
def test_a_cell_has_the_type_of_its_column_or_is_empty(type_: str, value: Any, expected: object) -> None:
    assert of(type_, value) == expected
    assert type(of(type_, value)) is type(expected)


def test_what_is_not_there_is_empty() -> None:
    for path in (".spec.y", ".spec.x.y.z", ".status", ".spec.x[9]", ".spec.x[?(@.a=='b')].c", ".spec.x["):
        assert of("string", [{"a": "c"}], path) is None
        assert of("date", [{"a": "c"}], path) is None


def test_a_filter_finds_the_first_that_fits() -> None:
    conditions = [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]
    assert of("string", conditions, '.spec.x[?(@.type=="Ready")].status') == "True"
    assert of("string", conditions, ".spec.x[0].status") == "False"
    assert of("string", conditions, ".spec.x[*].status") == "False"
