"""Merge types that schemas declare for their parts."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.structuredmerge.topology import ATOMIC, KEYED, MAP, OPEN, SET, Type, TypeSchema

STRING: Object = {"type": "string"}


def compiled(source: Object, **definitions: Object) -> Type:
    root = TypeSchema({"type": "object", "properties": {"f": source}}, definitions).root
    found = root.field("f")
    assert found is not None
    return found


MERGES: list[tuple[Any, int]] = [
    (STRING, ATOMIC),
    ({"type": "integer"}, ATOMIC),
    ({"x-kubernetes-int-or-string": True}, ATOMIC),
    ({"format": "int-or-string", "oneOf": [{"type": "integer"}, STRING]}, ATOMIC),
    ({"type": "array", "items": STRING}, ATOMIC),
    ({"type": "array", "items": STRING, "x-kubernetes-list-type": "atomic"}, ATOMIC),
    ({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, SET),
    (
        {
            "type": "array",
            "items": {"type": "object"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        KEYED,
    ),
    ({"type": "array", "items": STRING, "x-kubernetes-patch-strategy": "merge"}, SET),
    (
        {
            "type": "array",
            "items": {},
            "x-kubernetes-patch-strategy": "merge,retainKeys",
            "x-kubernetes-patch-merge-key": "name",
        },
        KEYED,
    ),
    (
        {
            "type": "array",
            "items": {},
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-patch-merge-key": "name",
        },
        ATOMIC,
    ),
    ({"type": "array", "items": {}, "x-kubernetes-patch-strategy": "replace"}, ATOMIC),
    ({"type": "object", "properties": {"a": STRING}}, MAP),
    ({"type": "object", "additionalProperties": STRING}, MAP),
    ({"type": "object", "properties": {"a": STRING}, "x-kubernetes-map-type": "atomic"}, ATOMIC),
    ({"type": "object", "additionalProperties": STRING, "x-kubernetes-map-type": "granular"}, MAP),
    ({"type": "object"}, OPEN),
    ({"type": "object", "additionalProperties": True}, OPEN),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, OPEN),
    ({"description": "anything"}, OPEN),
    ({"$ref": "#/components/schemas/nowhere"}, OPEN),
]


@pytest.mark.parametrize(("source", "merge"), MERGES)
def test_a_schema_says_how_its_values_merge(source: Object, merge: int) -> None:
    assert compiled(source).merge == merge


def test_strategic_markers_of_a_reference_are_those_beside_it() -> None:
    named = {"type": "object", "properties": {"x": STRING}}
    wrapped = {
        "default": {},
        "allOf": [{"$ref": "#/components/schemas/S"}],
        "x-kubernetes-patch-strategy": "replace",
        "x-kubernetes-map-type": "atomic",
    }
    found = compiled(wrapped, S=named)
    assert found.patch_replaces and found.merge == ATOMIC and found.declares("x")
    assert compiled({"$ref": "#/components/schemas/S"}, S=named).merge == MAP


def test_keys_take_their_defaults_through_references() -> None:
    item = {"type": "object", "properties": {"port": {}, "protocol": {**STRING, "default": "TCP"}}}
    source = {
        "type": "array",
        "items": {"allOf": [{"$ref": "#/components/schemas/Port"}]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
    }
    found = compiled(source, Port=item)
    assert (found.keys, found.defaults) == (("port", "protocol"), {"protocol": "TCP"})


def test_undeclared_fields_have_a_type_only_where_the_schema_leaves_room() -> None:
    assert compiled({"type": "object", "properties": {"a": STRING}}).field("b") is None
    assert compiled({"type": "object", "properties": {"a": STRING}, "additionalProperties": False}).field("b") is None
    found = compiled({"type": "object", "additionalProperties": {"type": "integer"}}).field("b")
    assert found is not None and found.scalar == "integer"
    closed = {"type": "object", "properties": {"a": STRING}}
    preserving = compiled(
        {"type": "object", "properties": {"in": closed}, "x-kubernetes-preserve-unknown-fields": True}
    )
    inner = preserving.field("in")
    assert inner is not None and inner.field("b") is not None


def test_every_object_has_its_type_fields_and_the_metadata_of_kubernetes() -> None:
    root = TypeSchema({"type": "object", "properties": {"metadata": {"type": "object"}}}, {}).root
    metadata = root.field("metadata")
    assert metadata is not None and root.declares("apiVersion") and root.declares("kind")
    references, finalizers = metadata.field("ownerReferences"), metadata.field("finalizers")
    assert references is not None and references.keys == ("uid",)
    assert finalizers is not None and finalizers.merge == SET
    embedded = compiled({"type": "object", "x-kubernetes-embedded-resource": True})
    inner = embedded.field("metadata")
    assert inner is not None and inner.declares("labels")


def test_recursive_and_circular_references_end() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/components/schemas/T"}}}
    found: Any = compiled({"$ref": "#/components/schemas/T"}, T=tree)
    assert found.field("child") is found.field("child").field("child")
    assert compiled({"$ref": "#/components/schemas/A"}, A={"$ref": "#/components/schemas/A"}).merge == OPEN
