"""The objects that mutations construct: their types, values, selections, equality, costs and JSON."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError, EvaluationError
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.libraries.jsonpatch import LIBRARY, Unconvertible, constructed, operations
from atoll.machinery.cel.types import DYN

ENVIRONMENT = Environment({"object": DYN}, (*base_libraries(None), LIBRARY))
OBJECT = {"object": {"spec": {"n": 1, "l": [{"a": 1}]}}}

VALUES: list[tuple[str, Any, int]] = [
    ("Object{a: 1}.a", 1, 42),
    ("Object{}.a", None, 42),
    ("has(Object{a: 1}.a)", True, 41),
    ("has(Object{}.a)", False, 41),
    ("Object{a: Object.a{b: 2}}.a.b", 2, 83),
    ("Object{?a: optional.none()} == Object{}", True, 82),
    ("Object{a: 1} == Object{a: 1}", True, 81),
    ("Object{a: 1} == Object{a: dyn(1.0)}", False, 81),
    ("dyn(Object{}) == Object.a{}", False, 82),
    ("type(Object.a{}) == Object.a", True, 42),
    ("optional.ofNonZeroValue(Object{}).hasValue()", False, 42),
    ('JSONPatch{op: "add"}.op', "add", 42),
    ("JSONPatch{}.path", "", 42),
    ("has(JSONPatch{}.value)", False, 41),
    ('has(JSONPatch{op: ""}.op)', False, 41),
    ('dyn(JSONPatch{op: "add"}).op', "add", 43),
    ("JSONPatch{value: 1} == JSONPatch{value: 1}", True, 81),
    ("JSONPatch{value: 1} == JSONPatch{}", False, 81),
    ('jsonpatch.escapeKey("a/b~c")', "a~1b~0c", 1),
]


@pytest.mark.parametrize(("text", "value", "cost"), VALUES, ids=[text for text, _, _ in VALUES])
def test_a_structure_has_the_value_and_the_cost_that_it_has_in_kubernetes(text: str, value: Any, cost: int) -> None:
    budget = Budget()
    found = ENVIRONMENT.compile(text).evaluate(OBJECT, budget)
    assert found == value
    assert type(found) is type(value)
    assert budget.spent == cost


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("Object{}", "Object"),
        ("Object.spec.template{}", "Object.spec.template"),
        ("[JSONPatch{}]", "list(JSONPatch)"),
        ("object.a ? [JSONPatch{}] : []", "list(JSONPatch)"),
        ("[]", "list(dyn)"),
        ("dyn(Object{})", "dyn"),
        ("Object{}.a", "dyn"),
    ],
)
def test_a_part_has_the_type_of_its_name(text: str, of: str) -> None:
    assert str(ENVIRONMENT.compile(text).type) == of


@pytest.mark.parametrize(
    "text", ["Objects{}", "JSONPatch{op: 1}", "JSONPatch{other: 1}", "[Object{}, JSONPatch{}]", "Object{}[0]"]
)
def test_what_is_no_structure_does_not_compile(text: str) -> None:
    with pytest.raises(CompileError):
        ENVIRONMENT.compile(text)


def test_the_types_are_unknown_outside_of_mutations() -> None:
    with pytest.raises(CompileError, match="undeclared reference to 'Object'"):
        Environment({}, base_libraries(None)).compile("Object{}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("JSONPatch{op: dyn(1)}", "unexpected type int64 for JSONPatchType 'op' field"),
        ("dyn(Object{a: 1}).a", "no such key: a"),
    ],
)
def test_a_structure_fails_with_the_words_of_kubernetes(text: str, error: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        ENVIRONMENT.compile(text).evaluate(OBJECT)
    assert str(caught.value) == error


def _value(text: str) -> Any:
    return ENVIRONMENT.compile(text).evaluate(OBJECT)


def test_an_object_becomes_json_with_its_parts_lists_and_maps() -> None:
    text = 'Object{spec: Object.spec{n: object.spec.n, m: {"x": 1u}, l: [Object.spec.l{a: 2}], o: object.spec.l}}'
    assert constructed(_value(text)) == {"spec": {"n": 1, "m": {"x": 1}, "l": [{"a": 2}], "o": [{"a": 1}]}}


def test_a_part_in_the_place_of_another_is_told_with_both_names() -> None:
    where = "which matches field name path from root Object type"
    for text, expected in (
        ("Object{spec: Object.other{}}", "Object.spec"),
        ("Object{spec: [Object.other{}]}", "Object.spec"),
        ('Object{spec: {"a": Object.other{}}}', "Object.spec"),
    ):
        with pytest.raises(Unconvertible) as caught:
            constructed(_value(text))
        assert (
            str(caught.value) == f'type mismatch: unexpected type name "Object.other", expected "{expected}", {where}'
        )


def test_operations_have_values_as_kubernetes_encodes_them() -> None:
    values = {
        "1": 1,
        "9007199254740993": "9007199254740993",
        "1.0": 1,
        "1.5": 1.5,
        "b'ab'": "YWI=",
        "null": None,
        "duration('90s')": "90s",
        "timestamp('2026-01-02T03:04:05Z')": "2026-01-02T03:04:05Z",
        "Object.spec{a: [1]}": {"a": [1]},
        "optional.of(1)": 1,
        "{'a': {'b': 1u}}": {"a": {"b": 1}},
    }
    for text, value in values.items():
        found = operations(_value(f'[JSONPatch{{op: "add", path: "/a", value: {text}}}]'))
        assert found == [{"op": "add", "path": "/a", "value": value}], text
        assert type(found[0]["value"]) is type(value)


def test_an_operation_without_a_value_has_none_and_empty_texts_are_left_out() -> None:
    assert operations(_value('[JSONPatch{op: "remove", path: "/a", from: ""}]')) == [{"op": "remove", "path": "/a"}]


@pytest.mark.parametrize("text", ["type(1)", "{1: 2}", "Object{a: timestamp('2026-01-02T03:04:05Z')}", "double('inf')"])
def test_a_value_that_json_has_not_is_told(text: str) -> None:
    with pytest.raises(Unconvertible, match="evaluated to a type that could not marshal to JSON"):
        operations(_value(f'[JSONPatch{{op: "add", path: "/a", value: {text}}}]'))
