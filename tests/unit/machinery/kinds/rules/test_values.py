"""JSON values as rules see them: times, bytes, numbers, sets, maps in lists, nulls."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.values import SECOND, Duration, Timestamp
from atoll.machinery.kinds.rules import values
from atoll.machinery.kinds.rules.decl_types import declare

STRING = {"type": "string"}


def converted(schema: dict[str, Any], value: Any) -> Any:
    declared = declare(schema)
    assert declared is not None
    return declared.value(value)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1h30m", 5400 * SECOND),
        ("-1.5s", -1_500_000_000),
        ("1h2m3s4ms", 3_723_004_000_000),
        (".5ms", 500_000),
        ("0", 0),
        ("3us", 3000),
        ("10 seconds", 10 * SECOND),
        ("2 days", 172_800 * SECOND),
        ("1 wk", 604_800 * SECOND),
    ],
)
def test_durations_are_read_in_both_forms(text: str, nanos: int) -> None:
    assert values.duration(text) == Duration(nanos)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5z", 1_500_000_000),
        ("1970-01-01t01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("2011-08-18T19:03:37.010000000+01:00", 1_313_690_617_010_000_000),
    ],
)
def test_moments_are_read_with_their_zone(text: str, nanos: int) -> None:
    assert values.date_time(text) == Timestamp(nanos)


def test_dates_are_midnights() -> None:
    assert values.date("1970-01-02") == Timestamp(86_400 * SECOND)


@pytest.mark.parametrize("form", ["duration", "date", "date-time", "byte"])
def test_texts_without_the_form_fail_the_rule_that_asks(form: str) -> None:
    with pytest.raises(EvaluationError, match=r"^Invalid "):
        converted({**STRING, "format": form}, "!?")


def test_numbers_are_doubles_and_bytes_are_decoded() -> None:
    number = converted({"type": "number"}, 3)
    assert (number, type(number)) == (3.0, float)
    assert converted({**STRING, "format": "byte"}, "QUI=") == b"AB"


def test_items_and_entries_are_converted_too() -> None:
    lists = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    assert [[type(each) for each in inner] for inner in converted(lists, [[1], [2]])] == [[float], [float]]
    maps = {"type": "object", "additionalProperties": {**STRING, "format": "byte"}}
    assert converted(maps, {"a": "QQ==", "b": None}) == {"a": b"A", "b": None}


def test_a_null_field_is_absent_and_a_null_entry_is_null() -> None:
    struct = {"type": "object", "properties": {"a": {**STRING, "nullable": True}, "b": STRING}}
    assert converted(struct, {"a": None, "b": "x"}) == {"b": "x"}
    entries = {"type": "object", "additionalProperties": {**STRING, "nullable": True}}
    assert converted(entries, {"a": None}) == {"a": None}


def test_what_needs_no_conversion_is_the_value_itself() -> None:
    value = {"a": ["x"], "b": {"c": 1}}
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": STRING},
            "b": {"type": "object", "properties": {"c": {"type": "integer"}}},
        },
    }
    assert converted(schema, value) is value


def test_a_converted_value_converts_to_itself() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {**STRING, "format": "date-time"}}
    once = converted(schema, ["2026-01-01T00:00:00Z"])
    assert converted(schema, once) is once


def test_sets_are_equal_in_any_order_and_add_up_to_a_union() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": STRING}
    first = converted(schema, ["a", "b"])
    assert first.cel_equals(["b", "a"])
    assert not first.cel_equals(["a", "c"])
    assert not first.cel_equals(["a"])
    assert list(first.__add__(["b", "c"])) == ["a", "b", "c"]
    assert first.__add__(["c"]).cel_equals(["c", "b", "a"])


def test_true_and_one_are_two_members_of_a_set() -> None:
    mixed = values.SetList([True])
    assert not mixed.cel_equals([1])


def test_map_lists_are_equal_by_key_and_add_by_key() -> None:
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": STRING, "v": STRING}},
    }
    first = converted(schema, [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}])
    assert first.cel_equals([{"k": "b", "v": "2"}, {"k": "a", "v": "1"}])
    assert not first.cel_equals([{"k": "b", "v": "2"}, {"k": "a", "v": "9"}])
    assert not first.cel_equals([{"k": "b", "v": "2"}, {"k": "c", "v": "1"}])
    merged = first.__add__([{"k": "c", "v": "3"}, {"k": "a", "v": "9"}])
    assert list(merged) == [{"k": "a", "v": "9"}, {"k": "b", "v": "2"}, {"k": "c", "v": "3"}]
