"""Plain forms: ordinary objects are taken without a walk, any other is left to the walks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.kinds import registry
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.schema.structural.structural_schema import compile_schema

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
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "on": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
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
    "colour": "red",
    "code": "abc",
    "on": True,
    "words": ["a"],
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


def test_an_ordinary_object_of_a_definition_and_of_a_built_in_kind_is_plain() -> None:
    assert LAMP.is_plain(lamp(PLAIN))
    kind = next(kind for kind in registry.NATIVE if kind.kind == "ConfigMap")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b"}, "immutable": True}
    assert kind.schema._compiled.is_plain(obj)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"other": 1},
        {"name": None},
        {"name": "a"},
        {"name": "abcde"},
        {"size": 2**31},
        {"size": 1.0},
        {"size": True},
        {"colour": "green"},
        {"code": "A"},
        {"on": "true"},
        {"words": ["a", None]},
        {"words": "a"},
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
    assert not LAMP.is_plain(lamp({**PLAIN, **change}))


@pytest.mark.parametrize("missing", ["name", "size"])
def test_an_object_without_a_required_field_or_a_default_is_not_plain(missing: str) -> None:
    assert not LAMP.is_plain(lamp({name: value for name, value in PLAIN.items() if name != missing}))


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
    assert not LAMP.is_plain(lamp(PLAIN, **metadata))


def test_definitions_that_a_form_cannot_express_take_nothing_and_still_work() -> None:
    closed = {"type": "object", "properties": {'a"b': {"type": "string"}, "metadata": {"type": "object"}}}
    for source in (closed, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {}):
        schema = compile_schema(source)
        obj: Object = {"apiVersion": "a.io/v1", "kind": "Lamp", "metadata": {"name": "a"}}
        assert not schema.is_plain(obj)
        assert schema.validate(obj) == []


def test_a_schema_that_refers_to_itself_and_one_of_many_objects_have_forms() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/definitions/Tree"}, "name": {"type": "string"}}}
    root = {"type": "object", "properties": {"tree": {"$ref": "#/definitions/Tree"}}}
    recursive = compile_schema(root, {"Tree": tree})
    named: Object = {"apiVersion": "a.io/v1", "kind": "Tree", "metadata": {"name": "a"}}
    assert recursive.is_plain({**named, "tree": {"next": {"next": {"name": "x"}}}})
    assert not recursive.is_plain({**named, "tree": {"next": {"next": {"other": "x"}}}})
    part = {"type": "object", "properties": {"x": {"type": "string"}}}
    wide = compile_schema({"type": "object", "properties": {f"p{at}": part for at in range(40)}})
    assert wide.is_plain({**named, "p0": {"x": "a"}, "p39": {"x": "a"}})
    assert not wide.is_plain({**named, "p39": {"x": 1}})


async def test_an_object_that_is_walked_in_slices_is_left_to_the_walks() -> None:
    def work(pause: object) -> bool:
        return LAMP.is_plain(lamp(PLAIN))

    assert not await run_sliced(work, 30.0, is_long=True)
