"""JSON of declared objects as CEL values: fields, conversions, absence, names, and constructed objects."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError, EvaluationError
from atoll.machinery.cel.std.times import parse_timestamp
from atoll.machinery.cel.types import DOUBLE, DYN, INT, STRING, TIMESTAMP, Field, ListType, MapType, ObjectType


def _doubles(items: Any) -> list[float]:
    return [float(item) for item in items]


ITEM = ObjectType("item", {"name": Field(STRING), "weight": Field(DOUBLE, float)})
SELF = ObjectType(
    "self",
    {
        "count": Field(INT),
        "ratio": Field(DOUBLE, float),
        "ratios": Field(ListType(DOUBLE), _doubles),
        "when": Field(TIMESTAMP, parse_timestamp),
        "items": Field(ListType(ITEM)),
        "labels": Field(MapType(STRING, STRING)),
        "nested": Field(ITEM),
        "x__dash__y": Field(STRING, name="x-y"),
        "free": Field(DYN),
    },
)
DATA = {
    "count": 3,
    "ratio": 1,
    "ratios": [1, 2],
    "when": "2024-02-29T12:30:15Z",
    "items": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}],
    "labels": {"x-y": "z"},
    "nested": {"weight": 3},
    "x-y": "dash",
    "free": {"a": [1]},
}
ENVIRONMENT = Environment({"self": SELF}, types=(ITEM,))


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.ratio + 0.5", 1.5),
        ("self.ratios[1] / 4.0", 0.5),
        ("self.ratios.map(r, r * 2.0)", [2.0, 4.0]),
        ("self.when.getFullYear()", 2024),
        ("self.items.map(i, i.weight + 0.25)", [1.25, 2.25]),
        ("self.items[0].weight == self.nested.weight - 2.0", True),
        ("self.nested.weight", 3.0),
        ("self.x__dash__y", "dash"),
        ("has(self.x__dash__y)", True),
        ("self.labels['x-y']", "z"),
        ("has(self.nested.name)", False),
        ("self.?nested.?name.orValue('none')", "none"),
        ("self.?nested.weight.orValue(0.0)", 3.0),
        ("self.?x__dash__y.orValue('')", "dash"),
        ("self.free.a[0]", 1),
        ("self.items.exists(i, i.name == 'b' && i.weight > 1.5)", True),
        ("item{name: 'n', weight: 1.0}.name", "n"),
        ("item{name: 'n'} == item{name: 'n'}", True),
    ],
)
def test_a_rule_over_an_object_has_the_value(rule: str, value: Any) -> None:
    found = ENVIRONMENT.compile(rule).evaluate({"self": DATA})
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.nested.name", "no such key: name"),
        ("self.items[5]", "index out of bounds: 5"),
        ("self.labels.missing", "no such key: missing"),
        ("self.free.b", "no such key: b"),
    ],
)
def test_an_absent_field_is_an_error(rule: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        ENVIRONMENT.compile(rule).evaluate({"self": DATA})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("rule", "message"), [("self.count < 4", "no such overload"), ("self.nested.weight > 1.0", "no such key: weight")]
)
def test_a_null_in_place_of_a_value_is_an_error(rule: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        ENVIRONMENT.compile(rule).evaluate({"self": {"count": None, "nested": None}})
    assert str(caught.value) == message


def test_a_null_has_no_fields() -> None:
    assert ENVIRONMENT.compile("has(self.nested.name)").evaluate({"self": {"nested": None}}) is False


def test_an_error_of_a_null_is_absorbed_like_any_other() -> None:
    assert ENVIRONMENT.compile("self.count < 4 || true").evaluate({"self": {"count": None}}) is True


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.nothing", "undefined field 'nothing'"),
        ("self.items[0].nothing", "undefined field 'nothing'"),
        ("self.ratio + 1", "found no matching overload for '_+_' applied to '(double, int)'"),
        ("self.when > '2024'", "found no matching overload for '_>_' applied to '(timestamp, string)'"),
        ("item{nothing: 1}", "undefined field 'nothing'"),
        ("item{name: 1}", "expected type of field 'name' is 'string' but provided type is 'int'"),
        ("nobody{name: 1}", "undeclared reference to 'nobody' (in container '')"),
    ],
)
def test_the_checker_knows_the_fields(rule: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        ENVIRONMENT.compile(rule)
    assert caught.value.issues[0].message == message


def test_evaluation_leaves_the_data_as_it_was() -> None:
    data: dict[str, Any] = {"ratios": [1, 2], "items": [{"name": "a", "weight": 1}]}
    ENVIRONMENT.compile("self.ratios.map(r, r + 1.0) + self.ratios").evaluate({"self": data})
    assert data == {"ratios": [1, 2], "items": [{"name": "a", "weight": 1}]}
    assert type(data["ratios"][0]) is int


def test_a_program_lists_the_variables_it_uses_and_needs_no_others() -> None:
    program = Environment({"a": INT, "b": INT}).compile("a + 1")
    assert program.variables == {"a"}
    assert program.evaluate({"a": 1}) == 2


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"no such attribute\(s\): a"):
        Environment({"a": INT}).compile("a + 1").evaluate({})
