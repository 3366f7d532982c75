from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.schema.openapi import crd_components, crd_definitions
from atoll.machinery.schema.openapi_v2 import native_to_v2, to_v2

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
EITHER = "x-kubernetes-int-or-string"
_ANY_OF = [{"type": "integer"}, {"type": "string"}]


@pytest.mark.parametrize(
    ("source", "published"),
    [
        ({"type": "string", "oneOf": [{"pattern": "a"}], "anyOf": [], "not": {}, "allOf": []}, {"type": "string"}),
        ({"type": "string", "nullable": True, "maxLength": 3}, {"maxLength": 3}),
        ({"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "object", PRESERVE: True, "properties": {"a": {"type": "string"}}}, {PRESERVE: True}),
        ({"type": "array", PRESERVE: True, "items": {"type": "string"}}, {PRESERVE: True}),
        ({"type": "array"}, {}),
        ({EITHER: True, "anyOf": _ANY_OF, "pattern": "a"}, {EITHER: True, "pattern": "a"}),
        ({"type": "array", "items": {"type": "string", "nullable": True}}, {"type": "array", "items": {}}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "nullable": True}, "required": ["a"]},
            {"type": "object", "additionalProperties": {}},
        ),
        ({"type": "object", "additionalProperties": True}, {"type": "object", "additionalProperties": True}),
    ],
)
def test_what_v2_cannot_say_is_left_out(source: dict[str, Any], published: dict[str, Any]) -> None:
    before = copy.deepcopy(source)
    assert to_v2(source) == published
    assert source == before


def test_a_field_that_may_be_null_is_not_required_in_v2() -> None:
    fields = {"a": {"type": "string", "nullable": True}, "b": {"type": "string"}}
    source = {"type": "object", "properties": fields, "required": ["a", "b"]}
    assert to_v2(source)["required"] == ["b"]
    assert "required" not in to_v2({**source, "required": ["a"]})
    assert source["required"] == ["a", "b"]


def test_built_in_components_refer_to_definitions_and_have_no_defaults() -> None:
    source = {
        "type": "object",
        "properties": {
            "one": {"description": "One.", "default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.One"}]},
            "default": {"type": "array", "items": {"$ref": "#/components/schemas/io.k8s.Two"}},
            "size": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        },
    }
    assert native_to_v2(source)["properties"] == {
        "one": {"description": "One.", "$ref": "#/definitions/io.k8s.One"},
        "default": {"type": "array", "items": {"$ref": "#/definitions/io.k8s.Two"}},
        "size": {"type": "string"},
    }


def test_v2_says_nothing_of_a_kind_that_preserves_unknown_fields_at_its_root() -> None:
    source = {"type": "object", PRESERVE: True, "properties": {"a": {"type": "string"}}}
    made = crd_definitions("example.com", "v1", "Open", "OpenList", source)["com.example.v1.Open"]
    gvk = [{"group": "example.com", "version": "v1", "kind": "Open"}]
    assert made == {"type": "object", "x-kubernetes-group-version-kind": gvk}


def test_an_integer_or_string_is_told_in_plain_words_in_v3() -> None:
    fields = {
        "bare": {EITHER: True},
        "said": {EITHER: True, "anyOf": _ANY_OF},
        "nested": {EITHER: True, "allOf": [{"anyOf": _ANY_OF}, {"pattern": "a"}]},
        "more": {EITHER: True, "anyOf": [{"pattern": "a"}]},
    }
    source = {"type": "object", "properties": fields}
    made = crd_components("example.com", "v1", "A", "AList", source)["com.example.v1.A"]["properties"]
    assert made["bare"] == {EITHER: True, "anyOf": _ANY_OF}
    assert made["said"] == fields["said"]
    assert made["nested"] == fields["nested"]
    assert made["more"] == {EITHER: True, "anyOf": [{"pattern": "a"}], "allOf": [{"anyOf": _ANY_OF}]}
    assert fields["bare"] == {EITHER: True}


def test_an_embedded_resource_has_the_fields_of_every_object() -> None:
    fields = {
        "whole": {"type": "object", EMBEDDED: True, "required": ["spec"], "properties": {"spec": {"type": "string"}}},
        "open": {"type": "object", EMBEDDED: True, PRESERVE: True},
    }
    items = {"type": "object", "properties": fields}
    source = {"type": "object", "properties": {"list": {"type": "array", "items": items}}}
    v3 = crd_components("example.com", "v1", "A", "AList", source)["com.example.v1.A"]
    v2 = crd_definitions("example.com", "v1", "A", "AList", source)["com.example.v1.A"]
    both = [each["properties"]["list"]["items"]["properties"] for each in (v3, v2)]
    for published in both:
        assert published["whole"]["required"] == ["spec", "kind", "apiVersion"]
        assert set(published["whole"]["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert both[0]["open"]["required"] == ["kind", "apiVersion"]
    assert both[1]["open"] == {EMBEDDED: True, PRESERVE: True}
    assert both[1]["whole"]["properties"]["metadata"]["$ref"].startswith("#/definitions/")


def test_fields_to_select_by_are_told_of_the_kind_and_of_its_list() -> None:
    made = crd_components("example.com", "v1", "A", "AList", {"type": "object"}, ["spec.colour"])
    assert [each["x-kubernetes-selectable-fields"] for each in made.values()] == [[{"fieldPath": "spec.colour"}]] * 2
