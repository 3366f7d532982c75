"""Pruning, defaulting, unknown fields."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.structural.compiler import compile_root
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.structural_schema import CACHE_SIZE, StructuralSchema, compile_schema, schema_for

STRING: Object = {"type": "string"}
META: Object = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}


def of_spec(**properties: Any) -> StructuralSchema:
    return compile_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def trimmed(schema: StructuralSchema, **spec: Any) -> Any:
    obj = copy.deepcopy({**META, "spec": spec})
    schema.prune(obj)
    schema.default(obj)
    return obj["spec"]


def unknown(schema: StructuralSchema, **spec: Any) -> list[str]:
    return schema.unknown_fields({**META, "spec": spec})


def test_undeclared_fields_go_and_are_told_in_document_order() -> None:
    schema = of_spec(
        a=STRING,
        o={"type": "object", "properties": {"x": STRING}},
        l={"type": "array", "items": {"type": "object", "properties": {"x": STRING}}},
    )
    spec = {"zip": 1, "l": [{"x": "1"}, {"y": 2, "x": "1", "b": {"c": 1}}], "a": "1", "o": {"q": 1}}
    assert unknown(schema, **spec) == ["spec.zip", "spec.l[1].y", "spec.l[1].b", "spec.o.q"]
    assert trimmed(schema, **spec) == {"l": [{"x": "1"}, {"x": "1"}], "a": "1", "o": {}}


def test_metadata_is_known_and_trimmed_whatever_the_schema_says() -> None:
    schema = compile_schema({"type": "object"})
    obj = {
        "apiVersion": "v1",
        "kind": "K",
        "status": {},
        "metadata": {
            "name": "a",
            "foo": 1,
            "labels": {"a": "b"},
            "ownerReferences": [{"uid": "u", "bar": 1}],
            "creationTimestamp": None,
            "managedFields": [{"fieldsV1": {"f:a": {}}, "zip": 1}],
        },
    }
    assert schema.unknown_fields(obj) == [
        "status",
        "metadata.foo",
        "metadata.ownerReferences[0].bar",
        "metadata.managedFields[0].zip",
    ]
    schema.prune(obj)
    assert obj == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {
            "name": "a",
            "labels": {"a": "b"},
            "ownerReferences": [{"uid": "u"}],
            "managedFields": [{"fieldsV1": {"f:a": {}}}],
        },
    }


def test_nothing_is_unknown_where_unknown_fields_are_preserved_but_below_declared_ones() -> None:
    inner = {"type": "object", "properties": {"x": STRING}}
    schema = of_spec(p={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"k": inner}})
    spec = {"p": {"any": {"thing": [1, None]}, "k": {"x": "1", "y": 2}}}
    assert unknown(schema, **spec) == ["spec.p.k.y"]
    assert trimmed(schema, **spec) == {"p": {"any": {"thing": [1, None]}, "k": {"x": "1"}}}


def test_additional_properties_keep_keys_and_trim_values() -> None:
    schema = of_spec(m={"type": "object", "additionalProperties": {"type": "object", "properties": {"x": STRING}}})
    assert trimmed(schema, m={"k": {"x": "1", "y": 2}}) == {"m": {"k": {"x": "1"}}}
    anything = of_spec(m={"type": "object", "additionalProperties": True})
    # As in Kubernetes, the keys stay, and no field is declared below them.
    assert trimmed(anything, m={"k": {"x": "1"}, "l": [{"y": 1}], "s": 1}) == {"m": {"k": {}, "l": [{}], "s": 1}}


def test_an_embedded_resource_keeps_its_metadata_and_loses_unknown_parts_of_it() -> None:
    schema = of_spec(
        t={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    )
    spec = {
        "t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "zip": 1}, "spec": {"q": 1}, "status": {}}
    }
    assert unknown(schema, **spec) == ["spec.t.metadata.zip", "spec.t.spec.q", "spec.t.status"]
    assert trimmed(schema, **spec) == {"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}}


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        (STRING, None, {}),
        ({**STRING, "nullable": True}, None, {"a": None}),
        ({**STRING, "default": "d"}, None, {"a": "d"}),
        ({**STRING, "default": "d", "nullable": True}, None, {"a": None}),
        ({"type": "array", "items": STRING}, [None], {"a": [None]}),
        ({"type": "array", "items": {**STRING, "default": "d"}}, [None, "x"], {"a": ["d", "x"]}),
        ({"type": "object", "additionalProperties": STRING}, {"k": None}, {"a": {}}),
        ({"type": "object", "additionalProperties": {**STRING, "default": "d"}}, {"k": None}, {"a": {"k": "d"}}),
        ({"type": "object", "additionalProperties": {**STRING, "nullable": True}}, {"k": None}, {"a": {"k": None}}),
    ],
)
def test_nulls_are_dropped_defaulted_or_kept(source: Object, value: Any, expected: Object) -> None:
    assert trimmed(of_spec(a=source), a=value) == expected


def test_defaults_fill_missing_fields_from_the_top_down() -> None:
    inner = {
        "type": "object",
        "default": {"x": "1"},
        "properties": {"x": STRING, "y": {"type": "integer", "default": 2}},
    }
    schema = of_spec(
        o={"type": "object", "properties": {"i": inner}},
        l={"type": "array", "items": inner},
        m={"type": "object", "additionalProperties": inner},
    )
    assert trimmed(schema) == {}
    assert trimmed(schema, o={}, l=[{}], m={"k": {}}) == {
        "o": {"i": {"x": "1", "y": 2}},
        "l": [{"y": 2}],
        "m": {"k": {"y": 2}},
    }
    assert trimmed(schema, o={"i": {"y": 0}}) == {"o": {"i": {"y": 0}}}


def test_defaults_are_never_shared_between_objects() -> None:
    schema = of_spec(l={"type": "array", "items": STRING, "default": ["a"]})
    first = trimmed(schema)
    first["l"].append("b")
    assert trimmed(schema) == {"l": ["a"]}


DEFINITIONS: dict[str, Object] = {
    "x.Tree": {
        "type": "object",
        "properties": {
            "name": STRING,
            "left": {"description": "Below.", "allOf": [{"$ref": "#/components/schemas/x.Tree"}]},
            "all": {"type": "array", "items": {"default": {}, "allOf": [{"$ref": "#/components/schemas/x.Tree"}]}},
            "size": {"type": "integer", "default": 1},
            "either": {"anyOf": [{"$ref": "#/components/schemas/x.Tree"}, {"type": "boolean"}]},
        },
    },
    "x.Any": {"description": "Any value."},
}


def tree() -> StructuralSchema:
    root = {
        "type": "object",
        "properties": {
            "metadata": {"default": {}, "allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]},
            "tree": {"default": {}, "allOf": [{"$ref": "#/components/schemas/x.Tree"}]},
            "any": {"$ref": "#/definitions/x.Any"},
            "gone": {"$ref": "#/definitions/x.Gone"},
            "raw": {"type": "object"},
            "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
        },
    }
    return compile_schema(root, DEFINITIONS)


def test_references_are_followed_also_to_themselves() -> None:
    schema = tree()
    obj = {**META, "tree": {"left": {"left": {"name": 1, "zip": 2}}, "all": [{"x": 1}]}}
    assert schema.unknown_fields(obj) == ["tree.left.left.zip", "tree.all[0].x"]
    schema.prune(obj)
    schema.default(obj)
    assert obj["tree"] == {"left": {"left": {"name": 1, "size": 1}, "size": 1}, "all": [{"size": 1}], "size": 1}
    assert [error.field for error in schema.validate(obj)] == ["tree.left.left.name"]


def test_a_built_in_kinds_untyped_values_are_open() -> None:
    schema = tree()
    obj = {**META, "any": {"a": None}, "gone": [{"b": 1}], "raw": {"c": 1}, "data": {"k": ""}}
    assert schema.unknown_fields(obj) == []
    schema.prune(obj)
    schema.default(obj)
    assert obj["any"] == {"a": None}
    assert obj["raw"] == {"c": 1}
    assert obj["tree"] == {"size": 1}
    assert schema.validate(obj) == []


def test_a_schema_among_alternatives_gives_the_structure() -> None:
    schema = tree()
    obj = {**META, "tree": {"either": {"name": "a", "zip": 1}}}
    assert schema.unknown_fields(obj) == ["tree.either.zip"]
    schema.prune(obj)
    assert obj["tree"] == {"either": {"name": "a"}}
    assert schema.validate({**META, "tree": {"either": True}}) == []
    assert schema.validate({**META, "tree": {"either": "x"}}) != []


def test_a_deep_value_of_a_recursive_schema_is_walked_without_overflow() -> None:
    value: Object = {"name": 1}
    for _ in range(180):
        value = {"left": value}
    obj = {**META, "tree": value}
    schema = tree()
    assert schema.unknown_fields(obj) == []
    schema.prune(obj)
    schema.default(obj)
    assert len(schema.validate(obj)) == 1


class Interrupted(dict[str, Object]):
    """Definitions of which one cannot be read the first time."""

    is_read = False

    def get(self, name: str, default: Any = None) -> Any:
        if name == "x.Any" and not self.is_read:
            self.is_read = True
            raise TimeoutError
        return super().get(name, default)


def test_schemas_share_the_nodes_of_references_once_they_are_complete() -> None:
    """A compilation may be stopped at any reference: what it began is no other's."""
    definitions, referenced = Interrupted(DEFINITIONS), dict[tuple[str, bytes], Node]()
    place = {"tree": {"$ref": "#/definitions/x.Tree"}}
    source = {"type": "object", "properties": {**place, "any": {"$ref": "#/definitions/x.Any"}}}
    with pytest.raises(TimeoutError):
        compile_root(source, definitions, referenced)
    assert not referenced
    first = compile_root(source, definitions, referenced)
    second = compile_root({"type": "object", "properties": place}, definitions, referenced)
    assert second.properties["tree"] is first.properties["tree"] is referenced["x.Tree", b"{}"]
    assert second.has_defaults_below


def test_equal_sources_share_one_compiled_schema_and_the_cache_is_bounded() -> None:
    source = encode_json({"type": "object", "description": "shared"})
    first = schema_for(source)
    assert schema_for(bytes(bytearray(source))) is first
    for index in range(CACHE_SIZE):
        schema_for(encode_json({"type": "object", "description": f"number {index}"}))
    assert schema_for(source) is not first
