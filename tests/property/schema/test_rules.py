"""Rules on generated schemas and values: validation never raises, and its results are consistent."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.kinds.rules.correlation import unchanged
from atoll.machinery.kinds.rules.decl_types import declare
from atoll.machinery.kinds.rules.escaping import escape
from atoll.machinery.kinds.rules.values import MapList, SetList
from harness.oracles.cel_rules import ruled, thing, validation_result, whole

Object = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "a-b", "namespace", "x.y", "a__b"])
SCALARS: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "byte"},
        {"type": "string", "format": "duration"},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"x-kubernetes-int-or-string": True},
        {"type": "string", "nullable": True},
    ]
)
VALUES = {
    "date-time": st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00"]),
    "byte": st.sampled_from(["QUI=", "QQ=="]),
    "duration": st.sampled_from(["1h", "60m", "3s"]),
}


def _larger(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    keyed = st.fixed_dictionaries({"k": st.just({"type": "string"})}, optional={"v": inner})
    return st.one_of(
        st.builds(lambda fields: {"type": "object", "properties": fields}, st.dictionaries(NAMES, inner, max_size=3)),
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner),
        st.just({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        st.builds(
            lambda fields: {
                "type": "array",
                "items": {"type": "object", "properties": fields, "required": ["k"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            },
            keyed,
        ),
    )


SCHEMAS = st.recursive(SCALARS, _larger, max_leaves=6)


@st.composite
def fitting(draw: st.DrawFn, schema: Object) -> Any:
    """A value that is valid under a schema."""
    if schema.get("nullable") and draw(st.booleans()):
        return None
    if schema.get("x-kubernetes-int-or-string"):
        return draw(st.one_of(st.integers(-5, 5), st.sampled_from(["x", "1%"])))
    kind = schema["type"]
    if kind == "array":
        return _listed(draw, schema)
    if kind == "object" and "additionalProperties" in schema:
        return draw(st.dictionaries(NAMES, fitting(schema["additionalProperties"]), max_size=2))
    if kind == "object":
        fields = schema.get("properties", {})
        present = [name for name in fields if name in schema.get("required", ()) or draw(st.booleans())]
        return {name: draw(fitting(fields[name])) for name in present}
    simple: dict[str, st.SearchStrategy[Any]] = {
        "string": VALUES.get(schema.get("format", ""), st.sampled_from(["", "a", "ä"])),
        "integer": st.integers(-5, 5),
        "number": st.one_of(st.integers(-5, 5), st.sampled_from([0.5, 2.0])),
        "boolean": st.booleans(),
    }
    return draw(simple[kind])


def _listed(draw: st.DrawFn, schema: Object) -> Any:
    if schema.get("x-kubernetes-list-type") == "set":
        return draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
    unique_by = (lambda item: item["k"]) if schema.get("x-kubernetes-list-type") == "map" else None
    return draw(st.lists(fitting(schema["items"]), max_size=3, unique_by=unique_by))


def schema_and_value(data: st.DataObject) -> tuple[Object, Any]:
    schema: Object = data.draw(SCHEMAS)
    return schema, data.draw(fitting(schema))


@given(st.data())
def test_a_value_equals_itself_under_every_schema(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    found = validation_result(
        whole(ruled(schema, "self == self", "self == oldSelf")), thing(value), thing(copy.deepcopy(value))
    )
    assert (found.errors, found.warnings) == ([], [])


@given(st.data())
def test_a_refusal_of_what_did_not_change_is_a_warning_where_the_schema_knows_all(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    schema = whole(ruled(schema, "false"))
    found = validation_result(schema, thing(value), thing(copy.deepcopy(value)))
    assert found.errors == []
    assert len(found.warnings) == (value is not None)
    assert len(validation_result(schema, thing(value)).errors) == (value is not None)


@given(st.data())
def test_judging_changes_nothing(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    obj, old = thing(value), thing(copy.deepcopy(value))
    before = copy.deepcopy(obj)
    validation_result(whole(ruled(schema, "self != oldSelf")), obj, old)
    assert obj == old == before


@given(st.data())
def test_a_conversion_is_done_once(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    declared = declare(schema)
    if declared is None or value is None:
        return
    once = declared.value(value)
    assert declared.value(once) == once


@given(st.data())
def test_what_is_equal_is_unchanged(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    assert unchanged(schema, value, copy.deepcopy(value))


@given(NAMES, NAMES)
def test_two_names_never_share_an_identifier(first: str, second: str) -> None:
    assert (escape(first) == escape(second)) == (first == second)


@given(st.text("ab_.-/", min_size=1), st.text("ab_.-/", min_size=1))
def test_escaping_keeps_names_apart(first: str, second: str) -> None:
    if first != second and escape(first) == escape(second):
        # Kubernetes' escapes are words of the alphabet they escape to; only names made of them can collide.
        assert "__" in first + second


@given(st.lists(st.integers(0, 4), unique=True), st.lists(st.integers(0, 4), unique=True))
def test_unions_of_sets_hold_what_either_holds(first: list[int], second: list[int]) -> None:
    assert (SetList(first) + second).cel_equals(list(set(first) | set(second)))
    assert SetList(first).cel_equals(second) == (set(first) == set(second))


@given(st.lists(st.integers(0, 4), unique=True), st.lists(st.integers(0, 4), unique=True))
def test_a_sum_of_map_lists_has_each_key_once_and_the_later_value(first: list[int], second: list[int]) -> None:
    left = MapList([{"k": key, "v": 1} for key in first], ("k",))
    right = [{"k": key, "v": 2} for key in second]
    expected = {**dict.fromkeys(first, 1), **dict.fromkeys(second, 2)}
    assert {item["k"]: item["v"] for item in left + right} == expected
    assert len(left + right) == len(expected)


@given(st.data())
def test_without_rules_nothing_is_said(data: st.DataObject) -> None:
    schema, value = schema_and_value(data)
    assert validation_result(whole(schema), thing(value)) == ValidationResult([])
