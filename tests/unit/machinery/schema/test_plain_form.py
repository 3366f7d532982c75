"""Plain forms: ordinary objects are taken without a walk, any other is left to the walks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kinds import registry
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.schema.structural.structural_schema import StructuralSchema, compile_schema

NOW = "2026-01-02T03:04:05Z"
METADATA: Object = {
    "name": "a",
    "namespace": "default",
    "uid": "u",
    "generation": 1,
    "creationTimestamp": NOW,
    "labels": {"a": "b"},
    "finalizers": ["x/y"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "v", "controller": True}],
    "managedFields": [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1"}
        | {"fieldsV1": {"f:data": {".": {}, "f:x": {}}}}
    ],
}
#: Deeper than a form looks.
DEEP: Any = None
for _ in range(14):
    DEEP = {"f:a": DEEP}
SPEC: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 4},
        "size": {"type": "integer", "format": "int32", "default": 1},
        "level": {"type": "integer", "minimum": 0, "maximum": 9},
        "odd": {"type": "integer", "minimum": 0.5},
        "above": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "on": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
        "few": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "one": {"type": "object", "properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}]},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
}
PLAIN: Object = {
    "name": "ab",
    "size": 2,
    "level": 0,
    "above": 1,
    "colour": "red",
    "code": "abc",
    "on": True,
    "words": ["a"],
    "few": ["a", "a"],
    "tags": {"a": "b"},
    "any": {"deep": [{"x": 1.5}]},
    "port": "http",
    "maybe": "x",
    "one": {"x": "a"},
    "set": ["a", "b"],
}


def lamp(spec: Any, **metadata: Any) -> Object:
    named = copy.deepcopy({**METADATA, **metadata})
    return {"apiVersion": "a.io/v1", "kind": "Lamp", "metadata": named, "spec": copy.deepcopy(spec)}


LAMP = compile_schema({"type": "object", "properties": {"spec": SPEC}})


def is_plain(schema: StructuralSchema, obj: Object) -> bool:
    """Whether a form takes an object."""
    return schema.complete(copy.deepcopy(obj))


def test_an_ordinary_object_of_a_definition_and_of_a_built_in_kind_is_plain() -> None:
    assert is_plain(LAMP, lamp(PLAIN))
    kind = next(kind for kind in registry.NATIVE if kind.kind == "ConfigMap")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b"}, "immutable": True}
    assert is_plain(kind.schema._compiled, obj)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"other": 1},
        {"name": None},
        {"name": "a"},
        {"name": "abcde"},
        {"size": 2**31},
        {"size": 1.0},
        {"level": -1},
        {"level": 10},
        {"odd": 1},
        {"above": 0},
        {"size": True},
        {"colour": "green"},
        {"code": "A"},
        {"on": "true"},
        {"words": ["a", None]},
        {"words": "a"},
        {"few": []},
        {"few": ["a", "b", "c"]},
        {"tags": {"a": None}},
        {"any": {"deep": [None]}},
        {"port": 1.5},
        {"maybe": None},
        {"one": {}},
        {"one": {"x": "a", "other": 1}},
        {"set": ["a", "a"]},
    ],
)
def test_a_value_that_is_wrong_or_that_a_write_changes_is_not_plain(change: Object) -> None:
    assert not is_plain(LAMP, lamp({**PLAIN, **change}))


def test_an_object_without_a_required_field_is_not_plain_and_one_without_a_default_gets_it() -> None:
    nameless, sizeless = ({name: value for name, value in PLAIN.items() if name != left} for left in ("name", "size"))
    assert not is_plain(LAMP, lamp(nameless))
    obj = lamp(sizeless)
    assert LAMP.complete(obj)
    assert obj["spec"] == {**sizeless, "size": 1}


def test_an_object_that_is_not_plain_is_left_as_it_is() -> None:
    obj = lamp({"name": "ab", "other": 1})
    assert not LAMP.complete(obj)
    assert obj == lamp({"name": "ab", "other": 1})


def test_a_place_that_is_walked_has_its_defaults_to_be_plain() -> None:
    part = {"type": "object", "properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}]}
    part["properties"] = {**part["properties"], "size": {"type": "integer", "default": 1}}  # type: ignore[dict-item]
    schema = compile_schema({"type": "object", "properties": {"spec": part}})
    assert is_plain(schema, lamp({"x": "a", "size": 1}))
    assert not is_plain(schema, lamp({"x": "a"}))


@pytest.mark.parametrize(
    "metadata",
    [
        {"other": "x"},
        {"labels": {"a": None}},
        {"creationTimestamp": "yesterday"},
        {"generation": "1"},
        {"managedFields": [{"fieldsV1": {"f:a": None}}]},
        {"managedFields": [{"fieldsV1": {"f:a": 1}}]},
        {"managedFields": [{"fieldsV1": DEEP}]},
        {"ownerReferences": [{"other": "x"}]},
    ],
)
def test_metadata_is_looked_at_as_any_field(metadata: Object) -> None:
    assert not is_plain(LAMP, lamp(PLAIN, **metadata))


@pytest.mark.parametrize(
    ("declared", "name", "is_taken"),
    [
        ({}, "a", True),
        ({"properties": {"name": {"type": "string", "enum": ["a"]}}}, "a", True),
        ({"properties": {"name": {"type": "string", "enum": ["a"]}}}, "b", False),
        ({"properties": {"name": {"type": "string", "default": "a"}}}, "a", False),
        ({"default": {}}, "a", False),
    ],
)
def test_what_a_definition_says_of_metadata_is_held_beside_the_form(
    declared: Object, name: str, is_taken: bool
) -> None:
    source = {"type": "object", "properties": {"metadata": {"type": "object", **declared}, "spec": SPEC}}
    assert is_plain(compile_schema(source), lamp(PLAIN, name=name)) is is_taken


def test_logical_clusters_are_plain_by_the_one_name_that_they_may_have() -> None:
    schema = next(kind.schema for kind in system_kinds() if kind.kind == "LogicalCluster")
    assert schema is not None
    stored: Object = {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": {"name": "cluster"}}
    stored |= {"spec": {}, "status": {"phase": "Ready"}}
    assert schema.is_plain(stored)
    assert not schema.is_plain({**stored, "metadata": {"name": "other"}})


def test_definitions_that_a_form_cannot_express_take_nothing_and_still_work() -> None:
    closed = {"type": "object", "properties": {'a"b': {"type": "string"}, "metadata": {"type": "object"}}}
    for source in (closed, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {}):
        schema = compile_schema(source)
        obj: Object = {"apiVersion": "a.io/v1", "kind": "Lamp", "metadata": {"name": "a"}}
        assert not is_plain(schema, obj)
        assert schema.validate(obj) == []


def test_a_schema_that_refers_to_itself_and_one_of_many_objects_have_forms() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/definitions/Tree"}, "name": {"type": "string"}}}
    root = {"type": "object", "properties": {"tree": {"$ref": "#/definitions/Tree"}}}
    recursive = compile_schema(root, {"Tree": tree})
    named: Object = {"apiVersion": "a.io/v1", "kind": "Tree", "metadata": {"name": "a"}}
    assert is_plain(recursive, {**named, "tree": {"next": {"next": {"name": "x"}}}})
    assert not is_plain(recursive, {**named, "tree": {"next": {"next": {"other": "x"}}}})
    part = {"type": "object", "properties": {"x": {"type": "string"}}}
    wide = compile_schema({"type": "object", "properties": {f"p{at}": part for at in range(40)}})
    assert is_plain(wide, {**named, "p0": {"x": "a"}, "p39": {"x": "a"}})
    assert not is_plain(wide, {**named, "p39": {"x": 1}})


async def test_an_object_that_is_walked_in_slices_is_left_to_the_walks() -> None:
    def work(pause: object) -> bool:
        return is_plain(LAMP, lamp(PLAIN))

    assert not await run_sliced(work, 30.0, is_long=True)
