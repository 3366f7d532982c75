"""The schema walker against a JSON Schema validator in Rust, on the common subset of both languages.

Intended differences are left out: nullable, formats, list types, and Kubernetes' own keywords; objects keep unknown
fields here, as nothing is pruned. Numbers stay within what both hold exactly.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.structural.structural_schema import compile_schema
from harness.seeds import drawn

KEYS = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.booleans(), st.integers(-5, 10), st.sampled_from([0.5, 2.5]), st.sampled_from(["", "a", "ab", "abcd", "é"])
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3), max_leaves=10
)


def _some(*options: Object) -> st.SearchStrategy[Object]:
    return st.sampled_from([{}, *options])


def _with(*parts: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


STRINGS = _with(
    st.just({"type": "string"}),
    _some({"minLength": 1}, {"maxLength": 2}, {"minLength": 2, "maxLength": 3}),
    _some({"pattern": "^a"}, {"pattern": "b$"}, {"pattern": "[c-e]{1,2}"}),
    _some({"enum": ["a", "ab", "é"]}),
)
NUMBERS = _with(
    st.just({"type": "number"}),
    _some({"minimum": 1}, {"minimum": -2.5}),
    _some({"maximum": 3}, {"maximum": 7.5}),
    _some({"multipleOf": 2}, {"multipleOf": 0.5}),
    _some({"enum": [1, 2, 2.5]}),
)
#: Kubernetes refuses every value of an integer whose bounds are none, which JSON Schema does not.
INTEGERS = _with(
    st.just({"type": "integer"}),
    _some({"minimum": 1}, {"minimum": -2}),
    _some({"maximum": 3}, {"maximum": 7}),
    _some({"multipleOf": 2}),
    _some({"enum": [1, 2]}),
)
LEAVES = st.one_of(STRINGS, NUMBERS, INTEGERS, st.just({"type": "boolean"}))
JUNCTORS = _some(
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"oneOf": [{"required": ["a"]}, {"minProperties": 2}]},
    {"allOf": [{"required": ["b"]}, {"maxProperties": 2}]},
    {"not": {"required": ["c"]}},
    {"anyOf": [{"properties": {"a": {"minimum": 3}}}, {"not": {"required": ["a"]}}]},
)


def _containers(below: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    properties = st.dictionaries(KEYS, below, max_size=3).map(lambda found: {"properties": found})
    counts = _some({"required": ["a"]}, {"minProperties": 1}, {"maxProperties": 2})
    structs = _with(st.just({"type": "object"}), properties, counts, JUNCTORS)
    maps = _with(st.just({"type": "object"}), below.map(lambda each: {"additionalProperties": each}), counts)
    lists = _with(
        st.just({"type": "array"}), below.map(lambda each: {"items": each}), _some({"minItems": 1}, {"maxItems": 2})
    )
    return structs | maps | lists


SCHEMAS = st.recursive(LEAVES, _containers, max_leaves=8)


@settings(max_examples=drawn(300), deadline=None)
@given(SCHEMAS, VALUES)
def test_both_take_and_refuse_the_same_values(source: Object, value: Any) -> None:
    whole: Object = {"type": "object", "properties": {"spec": source}}
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": value}
    ours = compile_schema(whole).validate(obj)
    theirs = jsonschema_rs.Draft4Validator(whole).is_valid(obj)
    assert (not ours) == theirs, ours
