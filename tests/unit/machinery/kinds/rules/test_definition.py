"""Rules in definitions: errors of the compiler, limits of costs, and uses of oldSelf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.data.manifests import real_crds
from harness.oracles.cel_rules import INTEGER, RULES, STRING, complaints, ruled, struct, whole

HINT = (
    " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are"
    " declared)"
)
AT = "s.properties[spec].x-kubernetes-validations[0]"


def labeled(rule: str, **more: Any) -> str:
    fields = {"Message": "", "MessageExpression": "", "Reason": None, "FieldPath": "", "OptionalOldSelf": None, **more}
    parts = [f'"Rule":"{rule}"']
    for key, value in fields.items():
        parts.append(f'"{key}":' + ({None: "null", True: "true"}.get(value) or f'"{value}"'))
    return "Invalid value: {" + ",".join(parts) + "}"


def messages(rule: str | dict[str, Any], **properties: Any) -> list[str]:
    return complaints(whole(ruled(struct(**(properties or {"a": STRING, "n": INTEGER})), rule)))


def test_sound_rules_pass() -> None:
    assert messages("self.a == 'x' && self.n > 1") == []


def test_a_rule_that_does_not_compile_is_told_with_its_place() -> None:
    assert messages("self.b == 1") == [
        f"{AT}.rule: {labeled('self.b == 1')}: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n"
        " | self.b == 1\n | ....^"
    ]


def test_types_are_checked() -> None:
    (text,) = messages("self.a == 1")
    assert "found no matching overload for '_==_' applied to '(string, int)'" in text


def test_a_rule_must_be_a_boolean_and_its_message_a_string() -> None:
    assert messages("self.a") == [f"{AT}.rule: {labeled('self.a')}: cel expression must evaluate to a bool"]
    assert messages({"rule": "true", "messageExpression": "1"}) == [
        f"{AT}.messageExpression: {labeled('true', MessageExpression='1')}: messageExpression must evaluate to a string"
    ]
    (text,) = messages({"rule": "true", "messageExpression": "self.z"})
    assert ": messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'z'" in text


def test_characters_of_html_are_shown_escaped_as_go_does() -> None:
    (text,) = messages("self.n")
    assert "\\u003c" not in text
    (text,) = messages("self.z < 1 && true")
    assert '"Rule":"self.z \\u003c 1 \\u0026\\u0026 true"' in text


@pytest.mark.parametrize("path", [".q", "a", ".a.b"])
def test_a_field_path_must_lead_somewhere(path: str) -> None:
    text = f'{AT}.fieldPath: Invalid value: "{path}": must be a valid path'
    assert messages({"rule": "true", "fieldPath": path}) == [text]


def test_an_optional_old_self_must_be_used_and_be_a_boolean() -> None:
    assert messages({"rule": "true", "optionalOldSelf": True}) == [
        f"{AT}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
    ]
    assert len(messages({"rule": "true", "optionalOldSelf": "yes"})) == 1
    assert messages({"rule": "!oldSelf.hasValue()", "optionalOldSelf": True}) == []
    (text,) = messages("oldSelf.hasValue()")
    assert "compilation failed" in text


@pytest.mark.parametrize("list_type", [None, "atomic", "set"])
def test_old_selves_are_out_of_reach_below_lists_without_keys(list_type: str | None) -> None:
    items = ruled(INTEGER, "self == oldSelf")
    schema: dict[str, Any] = {"type": "array", "items": items, "maxItems": 5}
    if list_type:
        schema["x-kubernetes-list-type"] = list_type
    assert complaints(whole(struct(l=schema))) == [
        "s.properties[spec].properties[l].items.x-kubernetes-validations[0].rule: Invalid value:"
        ' "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within'
        " s.properties[spec].properties[l]"
    ]


def test_old_selves_are_known_below_lists_with_keys_and_maps() -> None:
    item = {**ruled(struct(k={**STRING, "maxLength": 9}), "self.k == oldSelf.k"), "required": ["k"]}
    keyed = {
        "type": "array",
        "items": item,
        "maxItems": 5,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    entries = {"type": "object", "additionalProperties": ruled(INTEGER, "self == oldSelf"), "maxProperties": 5}
    assert complaints(whole(struct(l=keyed, m=entries))) == []


def test_an_expensive_rule_is_refused_and_the_total_names_who_is_to_blame() -> None:
    loop = "self.l.all(x, self.l.all(y, x == y))"
    assert messages(loop, l={"type": "array", "items": INTEGER}) == [
        f"{AT}.rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x{HINT}",
        f"{AT}.rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3"
        " schema",
        "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
        f" by factor of more than 100x{HINT}",
    ]
    assert messages(loop, l={"type": "array", "items": INTEGER, "maxItems": 100}) == []


def test_lists_and_maps_around_a_rule_multiply_its_cost() -> None:
    rule = ruled({**STRING, "maxLength": 1000}, "self.contains('a') && self.contains('b')")

    def cost_of(size: int | None) -> list[str]:
        bound = {} if size is None else {"maxItems": size}
        return complaints(whole(struct(l={"type": "array", "items": rule, **bound})))

    assert cost_of(10) == []
    assert "estimated rule cost exceeds budget by factor of" in cost_of(100_000)[0]
    assert "estimated rule cost exceeds budget by factor of" in cost_of(None)[0]


def test_messages_cost_too() -> None:
    rule = {"rule": "true", "messageExpression": "self.l.all(x, self.l.all(y, x == y)) ? 'a' : 'b'"}
    first, *_ = messages(rule, l={"type": "array", "items": INTEGER})
    assert first.startswith(f"{AT}.messageExpression: Forbidden: estimated messageExpression cost exceeds budget")


def test_rules_of_broken_parts_are_not_judged_and_those_beside_them_are() -> None:
    broken = ruled({**STRING, "x-kubernetes-map-type": "odd"}, "self.z")
    texts = complaints(whole(struct(a=broken, b=ruled(STRING, "self.y"))))
    assert [text.partition(": ")[0] for text in texts] == [
        "s.properties[spec].properties[a].type",
        "s.properties[spec].properties[a].x-kubernetes-map-type",
        "s.properties[spec].properties[b].x-kubernetes-validations[0].rule",
    ]


def test_nothing_is_judged_where_the_schema_is_not_structural() -> None:
    (text,) = complaints(whole(ruled(struct(a={}), "self.z")))
    assert text.startswith("s.properties[spec].properties[a].type: Required value: must not be empty")


def test_a_default_must_keep_the_rules_of_its_part() -> None:
    schema = whole(struct(n={**ruled(INTEGER, {"rule": "self < 5", "message": "m"}), "default": 9}))
    assert complaints(schema) == ["s.properties[spec].properties[n].default: Invalid value: 9: m"]
    schema["properties"]["spec"]["properties"]["n"]["default"] = 4
    assert complaints(schema) == []


def test_rules_on_what_no_rule_can_see_are_refused() -> None:
    hidden = ruled({"x-kubernetes-preserve-unknown-fields": True}, "true")
    (text,) = complaints(whole(struct(a=hidden)))
    assert text == (
        "s.properties[spec].properties[a].x-kubernetes-validations: Internal error: internal error: failed to construct"
        " type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
    )


def test_inner_rules_are_told_before_outer_ones() -> None:
    texts = complaints(whole(ruled(struct(a=ruled(STRING, "self.z")), "self.y")))
    assert [text.count("properties[") for text in texts] == [2, 1]


def test_what_only_newer_servers_know_may_stay_but_not_come() -> None:
    rule = "self.l.includes(1)"
    schema = whole(ruled(struct(l={"type": "array", "items": INTEGER, "maxItems": 3}), rule))
    (text,) = complaints(schema)
    assert "undeclared reference to 'includes'" in text
    assert complaints(schema, stored=lambda: frozenset({rule})) == []


def test_every_rule_of_real_definitions_is_sound(manifests: Path) -> None:
    definitions = real_crds(manifests)
    assert str(definitions).count(RULES) > 80
    schemas = {
        f"{name} {version['name']}": version["schema"]["openAPIV3Schema"]
        for name, obj in definitions.items()
        for version in obj["spec"]["versions"]
    }
    assert {name: found for name, schema in schemas.items() if (found := complaints(schema))} == {}


def test_sound_defaults_are_judged_beside_unsound_ones() -> None:
    wrong = {**INTEGER, "default": "x"}
    rude = {**ruled(INTEGER, {"rule": "self < 5", "message": "m"}), "default": 9}
    texts = complaints(whole(struct(a=wrong, b=rude, c=ruled({**INTEGER, "default": "x"}, "false"))))
    fields = [text.split(": ")[0] for text in texts]
    assert fields == [f"s.properties[spec].properties[{name}].default" for name in "abc"]
    assert texts[1].endswith("Invalid value: 9: m")


def test_of_several_lists_without_keys_the_outermost_is_blamed() -> None:
    inner = {"type": "array", "items": ruled(INTEGER, "self == oldSelf"), "maxItems": 2}
    (text,) = complaints(whole(struct(l={"type": "array", "items": inner, "maxItems": 2})))
    assert text.endswith("within s.properties[spec].properties[l]")
