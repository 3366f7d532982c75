"""Violations, with the texts of Kubernetes' validator."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.structural.structural_schema import StructuralSchema, compile_schema

STRING: Object = {"type": "string"}
INTEGER: Object = {"type": "integer"}
META: Object = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}


def of_field(source: Object) -> StructuralSchema:
    return compile_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": source}}}})


def problems(source: Object, value: Any, old: Any = ...) -> list[str]:
    before = None if old is ... else {**META, "spec": {"a": old}}
    return [str(error) for error in of_field(source).validate({**META, "spec": {"a": value}}, before)]


A = "spec.a in body"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({**STRING, "maxLength": 3}, "abc"),
        ({**STRING, "minLength": 3}, "abc"),
        ({**INTEGER, "maximum": 3}, 3),
        ({**INTEGER, "minimum": 3}, 3),
        ({**INTEGER, "maximum": 3, "exclusiveMaximum": True}, 2),
        ({**INTEGER, "minimum": 3, "exclusiveMinimum": True}, 4),
        ({**INTEGER, "format": "int32"}, 2**31 - 1),
        ({"type": "array", "items": STRING, "minItems": 2, "maxItems": 2}, ["a", "b"]),
        (
            {"type": "object", "minProperties": 2, "maxProperties": 2, "additionalProperties": STRING},
            {"k": "", "l": ""},
        ),
    ],
)
def test_a_bound_itself_is_valid(source: Object, value: Any) -> None:
    assert not problems(source, value)


@pytest.mark.parametrize(
    ("source", "value", "text"),
    [
        (INTEGER, "x", f'spec.a: Invalid value: "string": {A} must be of type integer: "string"'),
        (INTEGER, True, f'spec.a: Invalid value: "boolean": {A} must be of type integer: "boolean"'),
        (STRING, 1, f'spec.a: Invalid value: "integer": {A} must be of type string: "integer"'),
        (STRING, None, f'spec.a: Invalid value: "null": {A} must be of type string: "null"'),
        ({"type": "boolean"}, "true", f'spec.a: Invalid value: "string": {A} must be of type boolean: "string"'),
        ({"type": "object"}, [], f'spec.a: Invalid value: "array": {A} must be of type object: "array"'),
        ({"type": "array", "items": STRING}, {},
         f'spec.a: Invalid value: "object": {A} must be of type array: "object"'),
        ({"x-kubernetes-int-or-string": True}, 1.5,
         f'spec.a: Invalid value: "number": {A} must be of type integer,string: "number"'),
        ({**STRING, "enum": ["a", "b"]}, "c", 'spec.a: Unsupported value: "c": supported values: "a", "b"'),
        ({**INTEGER, "enum": [1, 2]}, 3, 'spec.a: Unsupported value: 3: supported values: "1", "2"'),
        ({**STRING, "nullable": True, "enum": ["a"]}, None, 'spec.a: Unsupported value: null: supported values: "a"'),
        ({**STRING, "maxLength": 3}, "abcd", "spec.a: Too long: may not be more than 3 bytes"),
        ({**STRING, "minLength": 1}, "", f'spec.a: Invalid value: "": {A} should be at least 1 chars long'),
        ({**STRING, "pattern": "^a$"}, "b", f"spec.a: Invalid value: \"b\": {A} should match '^a$'"),
        ({**STRING, "format": "date-time"}, "x", f'spec.a: Invalid value: "x": {A} must be of type date-time: "x"'),
        ({**INTEGER, "maximum": 10}, 11, f"spec.a: Invalid value: 11: {A} should be less than or equal to 10"),
        ({**INTEGER, "maximum": 10, "exclusiveMaximum": True}, 10,
         f"spec.a: Invalid value: 10: {A} should be less than 10"),
        ({**INTEGER, "minimum": 3}, 2, f"spec.a: Invalid value: 2: {A} should be greater than or equal to 3"),
        ({**INTEGER, "minimum": 3, "exclusiveMinimum": True}, 3,
         f"spec.a: Invalid value: 3: {A} should be greater than 3"),
        ({"type": "number", "maximum": 10000000}, 20000000.5,
         f"spec.a: Invalid value: 2.00000005e+07: {A} should be less than or equal to 1e+07"),
        ({**INTEGER, "multipleOf": 3}, 4, f"spec.a: Invalid value: 4: {A} should be a multiple of 3"),
        ({**INTEGER, "format": "int32"}, 2**31,
         '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.a'),
        ({"type": "array", "items": STRING, "minItems": 1}, [],
         f"spec.a: Invalid value: 0: {A} should have at least 1 items"),
        ({"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"],
         "spec.a: Too many: 2: must have at most 1 item"),
        ({"type": "array", "items": INTEGER}, [1, "x"],
         'spec.a[1]: Invalid value: "string": spec.a[1] in body must be of type integer: "string"'),
        ({"type": "object", "minProperties": 2, "additionalProperties": STRING}, {"k": "v"},
         f"spec.a: Invalid value: 1: {A} should have at least 2 properties"),
        ({"type": "object", "maxProperties": 2, "additionalProperties": STRING}, dict.fromkeys("abc", "v"),
         "spec.a: Too many: 3: must have at most 2 items"),
        ({"type": "object", "additionalProperties": INTEGER}, {"k": "v"},
         'spec.a.k: Invalid value: "string": spec.a.k in body must be of type integer: "string"'),
        ({"type": "object", "additionalProperties": False}, {"k": "v"},
         'spec.a: Invalid value: "k": spec.a.k in body is a forbidden property'),
        ({"type": "object", "properties": {"k": STRING}, "required": ["k"]}, {}, "spec.a.k: Required value"),
        ({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, ["a", "b", "a", "a"],
         'spec.a[2]: Duplicate value: "a"'),
    ],
)  # fmt: skip
def test_a_violation_is_told_as_kubernetes_tells_it(source: Object, value: Any, text: str) -> None:
    assert problems(source, value) == [text]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (INTEGER, 1.0), (INTEGER, -(2**63)), ({"type": "number"}, 1), ({**STRING, "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "5"), ({"x-kubernetes-int-or-string": True}, 5),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": None}]), ({**STRING, "maxLength": 2}, "éé"),
        ({**STRING, "pattern": "b"}, "abc"), ({**STRING, "format": "unheard-of"}, "x"),
        ({**INTEGER, "enum": [1]}, 1.0),
        ({"type": "number", "multipleOf": 0.1}, 0.3), ({**INTEGER, "format": "int64"}, 2**62),
        ({"type": "array", "items": {"type": "array", "items": STRING}, "x-kubernetes-list-type": "set"}, [["a"],
         ["b"]]),
        ({**STRING, "nullable": True, "enum": ["a", None]}, None),
    ],
)  # fmt: skip
def test_what_fits_passes(source: Object, value: Any) -> None:
    assert problems(source, value) == []


def test_a_fraction_is_no_integer_and_out_of_its_range() -> None:
    assert problems(INTEGER, 1.5) == [
        f'spec.a: Invalid value: "number": {A} must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.a',
    ]


def test_true_is_not_one() -> None:
    assert (
        problems(
            {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}, "x-kubernetes-list-type": "set"},
            [1, True, "1"],
        )
        == []
    )
    assert problems({"x-kubernetes-preserve-unknown-fields": True, "enum": [1]}, True) != []


def test_cause_types_are_kubernetes() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "required": ["gone"],
            "properties": {
                "t": INTEGER, "e": {**STRING, "enum": ["a"]}, "l": {**STRING, "maxLength": 1}, "p": {**STRING,
                 "pattern": "^a"},
                "m": {"type": "array", "items": STRING, "maxItems": 1}, "s": {"type": "array", "items": STRING,
                 "x-kubernetes-list-type": "set"},
            },
        }
    )  # fmt: skip
    obj = {**META, "t": "x", "e": "b", "l": "bb", "p": "b", "m": ["a", "b"], "s": ["a", "a"]}
    assert [(error.field, error.type) for error in schema.validate(obj)] == [
        ("t", "FieldValueTypeInvalid"), ("e", "FieldValueNotSupported"), ("l", "FieldValueTooLong"),
        ("p", "FieldValueInvalid"), ("m", "FieldValueTooMany"), ("gone", "FieldValueRequired"),
        ("s[1]", "FieldValueDuplicate"),
    ]  # fmt: skip


CHOICE: Object = {"type": "object", "properties": {"x": STRING, "y": INTEGER}}
NONE = '<nil>: Invalid value: "": "spec.a" must'


@pytest.mark.parametrize(
    ("junctors", "value", "texts"),
    [
        ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {},
         [f"{NONE} validate one and only one schema (oneOf). Found none valid", "spec.a.x: Required value"]),
        ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": "", "y": 1},
         [f"{NONE} validate one and only one schema (oneOf). Found 2 valid alternatives"]),
        ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": ""}, []),
        ({"anyOf": [{"required": ["x"]}, {"properties": {"y": {"minimum": 5}}}]}, {"y": 1},
         [f"{NONE} validate at least one schema (anyOf)",
          "spec.a.y: Invalid value: 1: spec.a.y in body should be greater than or equal to 5"]),
        ({"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": "", "y": 1}, []),
        ({"allOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": ""},
         ["spec.a.y: Required value", f"{NONE} validate all the schemas (allOf)"]),
        ({"allOf": [{"required": ["x"]}, {"required": ["y"]}]}, {},
         ["spec.a.x: Required value", "spec.a.y: Required value",
          f"{NONE} validate all the schemas (allOf). None validated"]),
        ({"not": {"required": ["x"]}}, {"x": ""}, [f"{NONE} not validate the schema (not)"]),
        ({"not": {"required": ["x"]}}, {}, []),
    ],
)  # fmt: skip
def test_alternatives_are_told_as_kubernetes_tells_them(junctors: Object, value: Object, texts: list[str]) -> None:
    assert problems({**CHOICE, **junctors}, value) == texts


def test_what_several_alternatives_miss_is_told_once() -> None:
    assert problems({**CHOICE, "allOf": [{"required": ["x"]}, {"required": ["x"]}]}, {}) == [
        "spec.a.x: Required value",
        f"{NONE} validate all the schemas (allOf). None validated",
    ]


LIST_MAP: Object = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"n": STRING, "p": {**INTEGER, "default": 1}, "v": {**INTEGER, "maximum": 5}},
    },
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["n", "p"],
}


def test_items_of_a_map_are_unique_by_all_their_keys() -> None:
    assert problems(LIST_MAP, [{"n": "a", "p": 1}, {"n": "a", "p": 2}]) == []
    assert problems(LIST_MAP, [{"n": "a", "p": 1}, {"n": "a", "p": 1, "v": 2}]) == [
        'spec.a[1]: Duplicate value: {"n":"a","p":1}'
    ]
    assert problems({**LIST_MAP, "x-kubernetes-list-map-keys": ["n"]}, [{}, {}]) == ["spec.a[1]: Duplicate value: {}"]


def test_wrong_metadata_is_told_at_its_field() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"name": {**STRING, "maxLength": 3}}}},
        }
    )
    assert schema.validate({**META, "metadata": {"name": "abc"}}) == []
    assert [error.field for error in schema.validate({**META, "metadata": {"name": "abcd"}})] == ["metadata.name"]
    wrong = {**META, "metadata": {"name": "a", "labels": {"a": 1}, "finalizers": "x"}}
    assert [str(error) for error in schema.validate(wrong)] == [
        'metadata.labels.a: Invalid value: "integer": metadata.labels.a in body must be of type string: "integer"',
        'metadata.finalizers: Invalid value: "string": metadata.finalizers in body must be of type array: "string"',
    ]


def test_an_embedded_resource_needs_type_and_valid_metadata() -> None:
    source = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert problems(source, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1}}) == []
    assert problems(source, {}) == ["spec.a.apiVersion: Required value", "spec.a.kind: Required value"]
    fields = [
        text.partition(": ")[0]
        for text in problems(
            source, {"apiVersion": "a/b/c", "kind": "P_d", "metadata": {"name": "a/b", "labels": {"k": "v v"}}}
        )
    ]
    assert fields == ["spec.a.apiVersion", "spec.a.kind", "spec.a.metadata.name", "spec.a.metadata.labels"]
    assert problems(source, {"apiVersion": "", "kind": 1}) != []


# --- ratcheting ----------------------------------------------------------------------------------------------

BOUNDED: Object = {**INTEGER, "maximum": 5}
PAIR: Object = {"type": "object", "properties": {"x": BOUNDED, "y": BOUNDED}}


def test_what_did_not_change_is_not_judged_again() -> None:
    assert problems(PAIR, {"x": 9, "y": 1}, {"x": 9, "y": 2}) == []
    assert [text.partition(":")[0] for text in problems(PAIR, {"x": 9, "y": 8}, {"x": 9, "y": 2})] == ["spec.a.y"]
    assert [text.partition(":")[0] for text in problems(PAIR, {"x": 9}, {"x": 8})] == ["spec.a.x"]


def test_a_missing_field_is_told_when_its_object_changed() -> None:
    source = {**PAIR, "required": ["x"]}
    assert problems(source, {"y": 1}, {"y": 1}) == []
    assert problems(source, {"y": 2}, {"y": 1}) == ["spec.a.x: Required value"]


def test_items_of_a_map_correlate_by_key_and_those_of_other_lists_do_not() -> None:
    old = [{"n": "a", "p": 1, "v": 9}, {"n": "b", "p": 1, "v": 1}]
    new = [{"n": "c", "p": 1, "v": 1}, {"n": "a", "p": 1, "v": 9}]
    assert problems(LIST_MAP, new, old) == []
    # The invalid item is the second: it is compared with the old item of its keys, not with the first.
    assert problems(LIST_MAP, [*old[1:], *old[:1]], [*old[1:], *old[:1], *new[:1]]) == []
    assert [text.partition(":")[0] for text in problems(LIST_MAP, [old[0], {**old[1], "v": 9}], old)] == ["spec.a[1].v"]
    atomic = {"type": "array", "items": LIST_MAP["items"]}
    assert [text.partition(":")[0] for text in problems(atomic, new, old)] == ["spec.a[1].v"]
    assert problems(atomic, old, old) == []


def test_repeated_items_are_told_only_if_there_were_none_before() -> None:
    source = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
    assert problems(source, ["a", "a"], ["a"]) == ['spec.a[1]: Duplicate value: "a"']
    assert problems(source, ["a", "a"], ["b", "b"]) == []


def test_alternatives_of_a_changed_object_are_told() -> None:
    source = {**CHOICE, "oneOf": [{"required": ["x"]}]}
    assert problems(source, {"y": 1}, {"y": 1}) == []
    assert problems(source, {"y": 2}, {"y": 1}) != []


def test_embedded_metadata_is_always_judged() -> None:
    source = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b"}}
    assert problems(source, value, copy.deepcopy(value)) != []


def test_validation_leaves_the_object_alone() -> None:
    value = {"x": 9, "z": None}
    before = copy.deepcopy(value)
    problems(PAIR, value)
    assert value == before


def test_long_values_are_cut_in_messages() -> None:
    (text,) = problems({**STRING, "pattern": "^a$"}, "b" * 100_000)
    assert len(text) < 2000


def test_a_pattern_runs_in_linear_time_and_one_that_re2_lacks_matches_nothing() -> None:
    assert problems({**STRING, "pattern": "^(a+)+$"}, "a" * 5000 + "b") != []
    assert problems({**STRING, "pattern": "(?=a)"}, "a") != []
