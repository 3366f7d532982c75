"""Schemas as rules see them: types, visible parts, and the bounds of the cost model."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel import types
from atoll.machinery.kinds.rules.decl_types import MAX_REQUEST_SIZE, DeclType, Sizes, declare

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
LONGEST = MAX_REQUEST_SIZE - 2


def declared(schema: dict[str, Any], *, is_root: bool = False) -> DeclType:
    found = declare(schema, is_root=is_root)
    assert found is not None
    return found


def fields(schema: dict[str, Any], *, is_root: bool = False) -> dict[str, DeclType]:
    found = declared(schema, is_root=is_root).fields
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (STRING, "string"),
        ({**STRING, "format": "byte"}, "bytes"),
        ({**STRING, "format": "duration"}, "duration"),
        ({**STRING, "format": "date"}, "timestamp"),
        ({**STRING, "format": "date-time"}, "timestamp"),
        ({**STRING, "format": "ipv4"}, "string"),
        (INTEGER, "int"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "bool"),
        ({"x-kubernetes-int-or-string": True}, "dyn"),
        ({"type": "array", "items": STRING}, "list(string)"),
        ({"type": "object", "additionalProperties": INTEGER}, "map(string, int)"),
        ({"type": "array", "items": {"type": "object"}}, "list(t.@idx)"),
        ({"type": "object", "additionalProperties": {"type": "object"}}, "map(string, t.@elem)"),
        ({"type": "object", "properties": {"a": STRING}}, "t"),
    ],
)
def test_each_type_of_schema_has_its_cel_type(schema: dict[str, Any], text: str) -> None:
    assert str(declared(schema).cel_type("t")) == text


def test_objects_are_named_after_their_place() -> None:
    inner = {"type": "object", "properties": {"c": {"type": "array", "items": {"type": "object"}}}}
    found = declared({"type": "object", "properties": {"a-b": inner}}).cel_type("t")
    assert isinstance(found, types.ObjectType)
    field = found.fields["a__dash__b"]
    assert (str(field.type), field.name) == ("t.a__dash__b", "a-b")
    assert isinstance(field.type, types.ObjectType)
    assert str(field.type.fields["c"].type) == "list(t.a__dash__b.c.@idx)"


def test_a_reserved_word_is_a_field_with_and_without_its_escape() -> None:
    found = declared({"type": "object", "properties": {"namespace": STRING}}).cel_type("t")
    assert isinstance(found, types.ObjectType)
    assert found.fields["namespace"].name is None
    assert found.fields["__namespace__"].name == "namespace"
    assert "if" not in found.fields


@pytest.mark.parametrize(
    "hidden",
    [
        PRESERVE,
        {"type": "array", "items": PRESERVE},
        {"type": "object", "additionalProperties": {"type": "array", "items": PRESERVE}},
        {"type": "array"},
    ],
)
def test_parts_of_unknown_form_are_invisible(hidden: dict[str, Any]) -> None:
    assert declare(hidden) is None
    assert fields({"type": "object", "properties": {"a": hidden, "b": STRING}}).keys() == {"b"}


def test_an_object_that_keeps_unknown_fields_shows_the_known_ones() -> None:
    assert fields({"type": "object", **PRESERVE, "properties": {"a": STRING}}).keys() == {"a"}
    assert fields({"type": "object", **PRESERVE}) == {}


def test_names_out_of_reach_are_invisible_but_weigh() -> None:
    found = declared({"type": "object", "required": ["a b"], "properties": {"a b": STRING}})
    assert found.fields == {}
    assert found.least == 2 + 3 + 2 + 4


def test_whole_objects_show_kind_and_version_and_names_and_nothing_else_of_metadata() -> None:
    schema = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}}}
    found = fields(schema, is_root=True)
    assert found.keys() == {"apiVersion", "kind", "metadata", "spec"}
    metadata = found["metadata"].fields
    assert metadata is not None
    assert {name: each.size for name, each in metadata.items()} == {"name": 253 * 4, "generateName": 252 * 4}
    assert fields(schema)["metadata"].fields == {}


def test_embedded_objects_are_whole_objects() -> None:
    embedded = {"type": "object", **PRESERVE, "x-kubernetes-embedded-resource": True}
    assert fields({"type": "object", "properties": {"a": embedded}})["a"].fields is not None
    assert "metadata" in (fields({"type": "object", "properties": {"a": embedded}})["a"].fields or {})


@pytest.mark.parametrize(
    ("schema", "size", "least"),
    [
        (STRING, LONGEST, 2),
        ({**STRING, "maxLength": 10}, 40, 2),
        ({**STRING, "maxLength": -1}, 0, 2),
        ({**STRING, "enum": ["a", "abc"]}, 3, 2),
        ({**STRING, "format": "byte", "maxLength": 10}, 10, 2),
        ({**STRING, "format": "duration", "maxLength": 10}, 32, 3),
        ({**STRING, "format": "date"}, 12, 12),
        ({**STRING, "format": "date-time"}, 32, 21),
        ({"x-kubernetes-int-or-string": True}, LONGEST, 1),
        ({"x-kubernetes-int-or-string": True, "maxLength": 5}, 20, 1),
        ({"type": "boolean"}, 0, 4),
        (INTEGER, 0, 1),
        ({"type": "array", "items": INTEGER}, LONGEST // 2, 2),
        ({"type": "array", "items": INTEGER, "maxItems": 7}, 7, 2),
        ({"type": "object", "additionalProperties": INTEGER}, LONGEST // 7, 2),
        ({"type": "object", "additionalProperties": INTEGER, "maxProperties": 7}, 7, 2),
        ({"type": "object", "required": ["abc"], "properties": {"abc": INTEGER}}, 0, 2 + 3 + 1 + 4),
        ({"type": "object", "required": ["abc"], "properties": {"abc": {**INTEGER, "default": 1}}}, 0, 2),
    ],
)
def test_sizes_are_what_kubernetes_counts_with(schema: dict[str, Any], size: int, least: int) -> None:
    found = declared(schema)
    assert (found.size, found.least) == (size, least)


def test_sizes_are_found_along_paths() -> None:
    entry = {"type": "object", "properties": {"b": {**STRING, "maxLength": 5}}}
    sizes = Sizes(
        declared(
            {
                "type": "object",
                "properties": {
                    "list": {"type": "array", "maxItems": 3, "items": entry},
                    "map": {"type": "object", "additionalProperties": {**STRING, "maxLength": 2}},
                },
            }
        )
    )
    assert sizes.most(("self", "list")) == 3
    assert sizes.most(("oldSelf", "list", "@items", "b")) == 20
    assert sizes.most(("self", "map", "@values")) == 8
    assert sizes.most(("self", "map", "@keys")) == 0
    assert sizes.most(("self", "list", "@keys")) is None
    assert sizes.most(("self", "nothing")) is None
    assert sizes.most(()) is None
