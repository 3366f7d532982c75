"""Rules against objects: which rules run, their variables, their messages, and their budgets."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kinds.rules.evaluation import rules_of
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.schema.structural.structural_schema import compile_schema, schema_for
from harness.oracles.cel_rules import INTEGER, STRING, refusals, ruled, struct, thing, validation_result, whole

LOW = ruled(struct(n=INTEGER), {"rule": "self.n < 5", "message": "too big"})


def test_an_object_that_keeps_its_rules_is_left_alone() -> None:
    assert refusals(LOW, {"n": 4}) == []


def test_a_broken_rule_refuses_with_its_message_at_its_part() -> None:
    assert refusals(LOW, {"n": 5}) == ["spec: Invalid value: too big"]


def test_without_a_message_the_rule_itself_is_told() -> None:
    assert refusals(ruled(struct(n=INTEGER), "self.n < 5"), {"n": 5}) == [
        "spec: Invalid value: failed rule: self.n < 5"
    ]


def test_a_scalar_is_shown_beside_the_message() -> None:
    spec = struct(n=ruled(INTEGER, "self < 5"), s=ruled(STRING, {"rule": "self != 'x'", "message": " no "}))
    assert refusals(spec, {"n": 7, "s": "x"}) == [
        "spec.n: Invalid value: 7: failed rule: self < 5",
        'spec.s: Invalid value: "x": no',
    ]


@pytest.mark.parametrize(
    ("reason", "type", "text"),
    [
        (None, "FieldValueInvalid", "Invalid value: m"),
        ("FieldValueInvalid", "FieldValueInvalid", "Invalid value: m"),
        ("FieldValueForbidden", "FieldValueForbidden", "Forbidden: m"),
        ("FieldValueRequired", "FieldValueRequired", "Required value: m"),
        ("FieldValueDuplicate", "FieldValueDuplicate", "Duplicate value"),
    ],
)
def test_the_reason_chooses_the_kind_of_error(reason: str | None, type: str, text: str) -> None:
    schema = ruled(struct(n=INTEGER), {"rule": "false", "message": "m", "reason": reason})
    (error,) = validation_result(whole(schema), thing({})).errors
    assert (error.type, error.field, error.detail) == (type, "spec", text)


def test_a_duplicate_scalar_is_shown() -> None:
    schema = struct(s=ruled(STRING, {"rule": "false", "reason": "FieldValueDuplicate"}))
    assert refusals(schema, {"s": "x"}) == ['spec.s: Duplicate value: "x"']


def test_a_field_path_moves_the_blame_below() -> None:
    inner = struct(b=STRING)
    schema = ruled(
        struct(a=inner, m={"type": "object", "additionalProperties": inner}),
        {"rule": "false", "fieldPath": ".a.b"},
        {"rule": "false", "fieldPath": ".m['k'].b"},
    )
    assert [text.partition(":")[0] for text in refusals(schema, {})] == ["spec.a.b", "spec.m[k].b"]
    at_root = ruled(whole(STRING), {"rule": "false", "fieldPath": ".spec"})
    assert [error.field for error in validation_result(at_root, thing("x")).errors] == ["spec"]


def test_an_error_of_the_whole_object_has_no_field() -> None:
    (error,) = validation_result(ruled(whole(STRING), "self.metadata.name != 'a'"), thing("x")).errors
    assert error.field == "<nil>"


def test_paths_name_fields_items_and_keys() -> None:
    no = ruled(STRING, "false")
    schema = struct(l={"type": "array", "items": no}, m={"type": "object", "additionalProperties": no}, f=no)
    fields = [text.partition(":")[0] for text in refusals(schema, {"l": ["a", "b"], "m": {"k.x": "a"}, "f": "c"})]
    assert fields == ["spec.l[0]", "spec.l[1]", "spec.m[k.x]", "spec.f"]


def test_nulls_and_absent_fields_are_judged_by_the_rules_around_them() -> None:
    schema = ruled(struct(s={**ruled(STRING, "false"), "nullable": True}), "!has(self.s)")
    assert refusals(schema, {"s": None}) == []
    assert refusals(schema, {}) == []


def test_escaped_names_reach_their_fields() -> None:
    schema = ruled(struct(**{"a-b": INTEGER, "namespace": STRING}), "self.a__dash__b == 1 && self.namespace == 'n'")
    assert refusals(schema, {"a-b": 1, "namespace": "n"}) == []
    assert len(refusals(schema, {"a-b": 2, "namespace": "n"})) == 1


def test_embedded_objects_show_their_names() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    schema = struct(e=ruled(embedded, "self.metadata.name == 'x' && self.kind == 'K'"))
    good = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "more": 1}
    assert refusals(schema, {"e": good}) == []
    assert len(refusals(schema, {"e": {**good, "kind": "L"}})) == 1


def test_int_or_string_is_dynamic() -> None:
    schema = struct(p=ruled({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 10 : self == 'x'"))
    assert refusals(schema, {"p": 1}) == []
    assert refusals(schema, {"p": "x"}) == []
    assert refusals(schema, {"p": 10}) != []
    schema = struct(p=ruled({"x-kubernetes-int-or-string": True}, "self < 10"))
    assert refusals(schema, {"p": "x"}) == [
        "spec.p: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function"
        " or macro signature for rule: self < 10"
    ]


def test_dates_numbers_and_bytes_are_values_of_their_own() -> None:
    schema = ruled(
        struct(
            d={**STRING, "format": "date-time"},
            n={"type": "number"},
            b={**STRING, "format": "byte"},
            t={**STRING, "format": "duration"},
        ),
        "self.d > timestamp('2020-01-01T00:00:00Z') && self.n / 2.0 == 1.5",
        "self.b == b'AB' && self.t == duration('1h')",
    )
    assert refusals(schema, {"d": "2026-01-01T00:00:00Z", "n": 3, "b": "QUI=", "t": "60m"}) == []


def test_sets_compare_in_any_order() -> None:
    items = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
    schema = ruled(struct(s=items), "self.s == oldSelf.s")
    assert refusals(schema, {"s": ["a", "b"]}, {"s": ["b", "a"]}) == []
    assert len(refusals(schema, {"s": ["a", "b"]}, {"s": ["b", "c"]})) == 1


def test_sets_deep_in_a_struct_compare_in_any_order() -> None:
    items = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
    schema = ruled(struct(o=struct(s=items)), "self.o == oldSelf.o", "self == oldSelf")
    assert refusals(schema, {"o": {"s": ["a", "b"]}}, {"o": {"s": ["b", "a"]}}) == []
    assert len(refusals(schema, {"o": {"s": ["a", "b"]}}, {"o": {"s": ["b", "c"]}})) == 2


def test_an_error_of_evaluation_is_told_with_the_rule() -> None:
    schema = ruled(struct(l={"type": "array", "items": INTEGER}, n=INTEGER), "self.l[3] == 1", "self.n == 1")
    assert refusals(schema, {"l": [1]}) == [
        'spec: Invalid value: "object": index out of bounds: 3 evaluating rule: self.l[3] == 1',
        'spec: Invalid value: "object": no such key: n evaluating rule: self.n == 1',
    ]


# --- transition rules ---

STAYS = ruled(struct(n=INTEGER), {"rule": "self.n == oldSelf.n", "message": "stays"})


def test_transition_rules_run_on_updates_alone() -> None:
    assert refusals(STAYS, {"n": 1}) == []
    assert refusals(STAYS, {"n": 1}, {"n": 1}) == []
    assert refusals(STAYS, {"n": 2}, {"n": 1}) == ["spec: Invalid value: stays"]


def test_items_of_a_map_list_meet_their_old_selves_by_key() -> None:
    item = ruled(struct(k=STRING, v=INTEGER), "self.v >= oldSelf.v")
    schema = struct(
        l={"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    )
    old = {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}
    assert refusals(schema, {"l": [{"k": "b", "v": 2}, {"k": "c", "v": 0}, {"k": "a", "v": 5}]}, old) == []
    assert refusals(schema, {"l": [{"k": "b", "v": 0}]}, old) == [
        "spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v"
    ]


def test_entries_of_a_map_meet_their_old_selves_by_key() -> None:
    schema = struct(m={"type": "object", "additionalProperties": ruled(INTEGER, "self >= oldSelf")})
    assert refusals(schema, {"m": {"a": 1, "b": 0}}, {"m": {"a": 1}}) == []
    assert len(refusals(schema, {"m": {"a": 0}}, {"m": {"a": 1}})) == 1


def test_a_transition_rule_with_an_optional_old_self_also_runs_without_one() -> None:
    rule = {"rule": "!oldSelf.hasValue() || oldSelf.value() < self", "optionalOldSelf": True, "message": "m"}
    schema = struct(n=ruled(INTEGER, rule))
    assert refusals(schema, {"n": 1}) == []
    assert refusals(schema, {"n": 2}, {"n": 1}) == []
    assert refusals(schema, {"n": 1}, {"n": 1}) == ["spec.n: Invalid value: 1: m"]
    assert refusals(schema, {"n": 1}, {}) == []


# --- messages ---


def said(expression: str, **more: Any) -> list[str]:
    rule = {"rule": "false", "messageExpression": expression, "message": "plain", **more}
    return refusals(ruled(struct(n=INTEGER, s=STRING), rule), {"n": 7, "s": "x"})


def test_a_message_expression_words_the_refusal() -> None:
    assert said("'n is ' + string(self.n)") == ["spec: Invalid value: n is 7"]


LONG = "y" * 5121


@pytest.mark.parametrize("expression", ["''", "' '", "'a\\nb'", "string(self.n / 0)", f"self.s + '{LONG}'"])
def test_an_expression_without_a_fit_message_gives_way_to_the_plain_one(expression: str) -> None:
    assert said(expression) == ["spec: Invalid value: plain"]


def test_a_message_expression_of_a_transition_rule_sees_the_old_self() -> None:
    rule = {"rule": "self == oldSelf", "messageExpression": "'was ' + string(oldSelf)"}
    schema = struct(n=ruled(INTEGER, rule))
    assert refusals(schema, {"n": 2}, {"n": 1}) == ["spec.n: Invalid value: 2: was 1"]


# --- ratcheting ---


def test_unchanged_parts_are_only_warned_of() -> None:
    schema = whole(struct(a=ruled(struct(n=INTEGER), "self.n < 5"), b=STRING))
    found = validation_result(schema, thing({"a": {"n": 9}, "b": "new"}), thing({"a": {"n": 9}, "b": "old"}))
    assert found.errors == []
    assert found.warnings == ["spec.a: Invalid value: failed rule: self.n < 5"]
    changed = validation_result(schema, thing({"a": {"n": 8}}), thing({"a": {"n": 9}}))
    assert [str(error) for error in changed.errors] == found.warnings


def test_transition_rules_are_never_let_pass() -> None:
    schema = whole(struct(a=ruled(struct(n=INTEGER), "self.n < oldSelf.n")))
    assert len(validation_result(schema, thing({"a": {"n": 1}}), thing({"a": {"n": 1}})).errors) == 1


def test_errors_of_evaluation_are_never_let_pass() -> None:
    schema = whole(struct(a=ruled(struct(n=INTEGER), "self.n == 1")))
    assert len(validation_result(schema, thing({"a": {}}), thing({"a": {}})).errors) == 1


# --- conditions that keep rules from running ---


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (struct(s=STRING), {"s": 1}),
        ({**struct(s=STRING), "required": ["s"]}, {}),
        (struct(s={**STRING, "maxLength": 1}), {"s": "ab"}),
        (struct(s={**STRING, "enum": ["a"]}), {"s": "b"}),
        (struct(s={"type": "array", "items": STRING, "maxItems": 1}), {"s": ["a", "b"]}),
    ],
)
def test_rules_do_not_run_on_what_the_schema_refuses_for_its_form(spec: dict[str, Any], value: Any) -> None:
    texts = refusals(ruled(spec, "false"), value)
    assert texts[1:] == [
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the"
        " existing errors to complete validation"
    ]


def test_rules_run_on_what_the_schema_refuses_for_its_value() -> None:
    texts = refusals(ruled(struct(n={**INTEGER, "maximum": 1}), "false"), {"n": 2})
    assert [text.partition(":")[0] for text in texts] == ["spec.n", "spec"]


def test_without_rules_nothing_is_said_of_what_was_not_checked() -> None:
    assert len(refusals(struct(s=STRING), {"s": 1})) == 1


# --- budgets ---

LIST = {"type": "array", "items": INTEGER}
SQUARE = "self.l.all(x, self.l.all(y, x == y))"


def test_one_evaluation_may_not_cost_more_than_a_million() -> None:
    (text,) = refusals(ruled(struct(l=LIST), SQUARE, "false"), {"l": [1] * 1000})
    assert text == (
        "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation"
        f" rules will be run due to call cost exceeds limit for rule: {SQUARE}"
    )


def test_all_evaluations_may_not_cost_more_than_ten_million() -> None:
    rules = ["self.l.all(x, self.l.all(y, x == y))"] * 12
    texts = refusals(ruled(struct(l=LIST), *rules), {"l": [1] * 400})
    assert texts == [
        'spec: Invalid value: "object": validation failed due to running out of cost budget, no further validation'
        " rules will be run"
    ]


def test_a_pause_may_end_a_judgement() -> None:
    class Enough(Exception):
        pass

    def pause() -> None:
        raise Enough

    compiled = compile_schema(whole(ruled(struct(l=LIST), SQUARE)))
    with pytest.raises(Enough):
        rules_of(compiled)(thing({"l": [1] * 400}), None, [], pause)


# --- sharing ---


def test_rules_are_compiled_once_for_each_content_of_a_schema() -> None:
    source = encode_json(whole(ruled(struct(n=INTEGER), "self.n < 77")))
    first = schema_for(source)
    rules_of(first)(thing({"n": 1}), None, [], lambda: None)
    tree = first.attachment
    rules_of(schema_for(bytes(bytearray(source))))(thing({"n": 1}), None, [], lambda: None)
    assert schema_for(source).attachment is tree
    assert tree.properties["spec"].rules is tree.properties["spec"].rules


def test_what_an_older_schema_let_in_can_still_be_compared() -> None:
    schema = whole(ruled(struct(a=struct(t={**STRING, "format": "duration"}), b=STRING), "self.a == oldSelf.a"))
    old, new = thing({"a": {"t": "x"}, "b": "1"}), thing({"a": {"t": "x"}, "b": "2"})
    assert validation_result(schema, new, old).errors == []
