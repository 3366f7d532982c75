"""Field paths of rules: which are valid, and how errors write them."""

from __future__ import annotations

import pytest

from atoll.machinery.schema.definitions.rule_field_path import resolve_field_path

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}, "x.y": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"d": {}}}},
        "it's": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (".a", "a"),
        (".a.b", "a.b"),
        ("['a'].b", "a.b"),
        (".a['x.y']", "a.x.y"),
        (".labels['k'].c", "labels[k].c"),
        (".labels.k", "labels[k]"),
        (".list", "list"),
        (r"['it\'s']", "it's"),
    ],
)
def test_paths_through_fields_and_keys_are_written_as_errors_write_them(path: str, field: str) -> None:
    assert resolve_field_path(path, SCHEMA) == field


@pytest.mark.parametrize(
    "path", ["", "a", ".", ".b", ".a.b.c", ".list[0]", ".a[b]", ".a['b'", ".a['b'].", "['a", r"['a\z']", ".a..b", "]"]
)
def test_paths_that_lead_nowhere_are_none(path: str) -> None:
    assert resolve_field_path(path, SCHEMA) is None
