"""Conversion by the rules of an APIConversion, as pure functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.machinery.kinds.apiconversion import ConversionError, Converter, Rules

Object = dict[str, Any]
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
KEY = "preserve.conversion.apis.kcp.io/"


def schema(**spec: Object) -> Object:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}


SCHEMAS = {
    "v1": schema(
        name=TEXT,
        size=NUMBER,
        at={"type": "string", "format": "date-time"},
        tags={"type": "array", "items": TEXT},
        bag={"type": "object", "additionalProperties": TEXT},
        data={"type": "string", "format": "byte"},
        any={"x-kubernetes-preserve-unknown-fields": True},
    ),
    "v2": schema(name=TEXT, title=TEXT, size={"type": "object", "properties": {"width": NUMBER}}),
    "v3": schema(label=TEXT, extra=TEXT),
}


def go_on() -> None:
    return None


def rule(field: str, destination: str, transformation: str = "") -> Object:
    found = {"field": field, "destination": destination}
    return {**found, "transformation": transformation} if transformation else found


def direction(source: str, target: str, *rules: Object, preserve: tuple[str, ...] = ()) -> Object:
    return {"from": source, "to": target, "rules": list(rules), "preserve": list(preserve)}


def obj(version: str = "v1", annotations: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": "a", "uid": "u"}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": metadata, "spec": spec}


def converted(given: Object, version: str, *directions: Object, storage: str = "v1") -> Object:
    converter = Converter({"conversions": list(directions)}, SCHEMAS, storage)
    before = json.dumps(given)
    made = converter.convert(given, f"example.com/{version}", go_on)
    assert json.dumps(given) == before, "the input stays as it was"
    assert made["apiVersion"] == f"example.com/{version}"
    return made


def test_values_are_copied_to_where_they_belong() -> None:
    made = converted(obj(size=3), "v2", direction("v1", "v2", rule(".spec.size", ".spec.size.width")))
    # The new value replaces the old version's value at the same path.
    assert made["spec"] == {"size": {"width": 3}}


def test_a_destination_below_something_else_is_an_error() -> None:
    with pytest.raises(ConversionError, match=r'destination field "spec\.name\.first"'):
        converted(obj(name="x"), "v2", direction("v1", "v2", rule("spec.name", "spec.name.first")))


@pytest.mark.parametrize(
    ("value", "field", "transformation", "result"),
    [
        ("a", "name", "self.upperAscii()", "A"),
        (3, "size", "self * 2", 6),
        (3, "size", "string(self) + 'x'", "3x"),
        (3, "size", "self > 2", True),
        (3, "size", "double(self) / 2.0", 1.5),
        (["a", "b"], "tags", "self.join('-')", "a-b"),
        (["a", "b"], "tags", "self.map(each, each + '!')", ["a!", "b!"]),
        ({"a": "b"}, "bag", "self['a']", "b"),
        ({"a": "b"}, "bag", "{'x': self['a'], 'y': 'z'}", {"x": "b", "y": "z"}),
        ("2026-01-02T03:04:05Z", "at", "self.getFullYear()", 2026),
        ("2026-01-02T03:04:05Z", "at", "self", "2026-01-02T03:04:05Z"),
        ("aGk=", "data", "self", "aGk="),
        ("aGk=", "data", "size(self)", 2),
        ("3s", "name", "duration(self)", "3s"),
        ({"x": [1]}, "any", "self.x[0]", 1),
    ],
)
def test_transformations_give_json(value: Any, field: str, transformation: str, result: Any) -> None:
    rules = direction("v1", "v2", rule(f".spec.{field}", ".spec.title", transformation))
    assert converted(obj(**{field: value}), "v2", rules)["spec"]["title"] == result


@pytest.mark.parametrize("given", [{}, {"name": None}, {"name": 7}, {"name": ["a"]}], ids=str)
def test_what_is_not_there_or_of_a_wrong_type_is_not_transformed(given: Object) -> None:
    rules = direction("v1", "v2", rule("spec.name", "spec.title", "self.upperAscii()"))
    assert "title" not in converted(obj(**given), "v2", rules)["spec"]


def test_a_copy_shares_nothing_with_the_object_it_was_made_of() -> None:
    given = obj(tags=["a"])
    made = converted(given, "v2", direction("v1", "v2", rule("spec.tags", "spec.title")))
    made["spec"]["title"].append("b")
    made["spec"]["tags"].append("c")
    assert given["spec"]["tags"] == ["a"]


def test_a_failing_transformation_says_which_field_it_was() -> None:
    rules = direction("v1", "v2", rule("spec.name", "spec.title", "string(int(self))"))
    with pytest.raises(ConversionError, match=r"error converting: spec\.name: .*"):
        converted(obj(name="seven"), "v2", rules)


def test_types_that_json_has_not_are_no_result() -> None:
    with pytest.raises(ConversionError, match="cannot result in a typevalue"):
        converted(obj(size=1), "v2", direction("v1", "v2", rule("spec.size", "spec.title", "type(self)")))


def test_preserved_fields_go_into_the_annotation_and_come_back() -> None:
    there = direction("v1", "v2", preserve=(".spec.tags", "spec.bag"))
    made = converted(obj(tags=["a"], bag={"b": "c"}, size=1), "v2", there)
    assert json.loads(made["metadata"]["annotations"][f"{KEY}v1"]) == {"spec.tags": ["a"], "spec.bag": {"b": "c"}}
    kept = {**made, "spec": {"name": "n"}}
    back = converted(kept, "v1", there)
    assert back["spec"] == {"name": "n", "tags": ["a"], "bag": {"b": "c"}}
    assert back["metadata"] == {"name": "a", "uid": "u"}


def test_other_annotations_stay() -> None:
    there = direction("v1", "v2", preserve=("spec.tags",))
    made = converted(obj(annotations={"mine": "x"}, tags=["a"]), "v2", there)
    assert set(made["metadata"]["annotations"]) == {"mine", f"{KEY}v1"}
    assert converted(made, "v1", there)["metadata"]["annotations"] == {"mine": "x"}


@pytest.mark.parametrize("note", ["no JSON", "[1]", "{}", '{"metadata.name": "b", "spec.size": 9}'])
def test_nothing_but_preserved_fields_comes_out_of_an_annotation(note: str) -> None:
    there = direction("v1", "v2", preserve=("spec.tags",))
    back = converted(obj("v2", annotations={f"{KEY}v1": note}), "v1", there)
    assert back == {**obj("v1"), "apiVersion": "example.com/v1"}


def test_versions_without_rules_of_their_own_meet_in_the_stored_one() -> None:
    steps = (
        direction("v3", "v1", rule("spec.label", "spec.name", "self + '1'"), preserve=("spec.extra",)),
        direction("v1", "v2", rule("spec.name", "spec.title", "self + '2'")),
    )
    made = converted(obj("v3", label="x", extra="e"), "v2", *steps)
    assert made["spec"]["title"] == "x12"
    assert json.loads(made["metadata"]["annotations"][f"{KEY}v3"]) == {"spec.extra": "e"}
    direct = direction("v3", "v2", rule("spec.label", "spec.title"))
    assert converted(obj("v3", label="x"), "v2", *steps, direct)["spec"]["title"] == "x"


def test_without_rules_only_the_version_changes() -> None:
    assert converted(obj(size=3), "v3") == {**obj(size=3), "apiVersion": "example.com/v3"}


def test_rules_that_no_longer_fit_are_told_when_they_are_needed() -> None:
    with pytest.raises(ConversionError, match=r"error compiling conversion rules: .*doesn't exist"):
        converted(obj(), "v2", direction("v1", "v2", rule("spec.gone", "spec.title")))
    # Other conversions still work.
    converted(obj("v2"), "v1", direction("v1", "v2", rule("spec.gone", "spec.title")))


BAD: dict[str, tuple[Object, str]] = {
    "field": (direction("v1", "v2", rule("spec.no", "spec.title")), 'field "spec.no" doesn\'t exist'),
    "below a string": (direction("v1", "v2", rule("spec.name.x", "spec.title")), "to be an object"),
    "source": (direction("v9", "v2"), "conversions[0].from"),
    "target": (direction("v1", "v9"), "conversions[0].to"),
    "text": (direction("v1", "v2", rule("spec.name", "spec.title", "(")), "error compiling CEL program"),
    "type": (direction("v1", "v2", rule("spec.size", "spec.title", "self.size()")), "no matching overload"),
    "variable": (direction("v1", "v2", rule("spec.size", "spec.title", "oldSelf")), "undeclared reference"),
    "long": (direction("v1", "v2", rule("spec.size", "spec.title", "1+" * 9000 + "1")), "at most 16384 characters"),
    "many": (direction("v1", "v2", *[rule("spec.size", f"spec.x{n}") for n in range(1001)]), "at most 1000 items"),
    "metadata": (direction("v1", "v2", rule("spec.name", "metadata.uid")), "only fields outside of metadata"),
    "kind": (direction("v1", "v2", rule("spec.name", ".kind")), "only fields outside of metadata"),
    "empty": (direction("v1", "v2", rule("spec.name", "spec..x")), "only fields outside of metadata"),
    "preserve": (direction("v1", "v2", preserve=("metadata.name",)), "only fields outside of metadata"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rules_are_told_all_together(case: str) -> None:
    given, text = BAD[case]
    other = direction("v3", "v2", rule("spec.nothing", "spec.title"))
    found = "; ".join(map(str, Rules({"conversions": [given, other]}, SCHEMAS).errors(go_on)))
    assert text in found and "conversions[1].rules[0].field" in found


def test_good_rules_have_no_errors_and_may_be_paused() -> None:
    called = []
    given = direction("v1", "v2", *[rule("spec.name", f"spec.x{n}", "self" + " + 'x'" * 40) for n in range(40)])
    assert Rules({"conversions": [given]}, SCHEMAS).errors(lambda: called.append(1)) == []
    assert called
