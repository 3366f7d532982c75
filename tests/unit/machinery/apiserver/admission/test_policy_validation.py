"""Evaluation of ValidatingAdmissionPolicies: decisions, messages, budgets, variables, match conditions, annotations."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.admission.expressions.conditions import ConditionsFailed, conditions_match
from atoll.machinery.apiserver.admission.expressions.evaluation import OUT_OF_BUDGET, Overlay
from atoll.machinery.apiserver.admission.expressions.expression import CONDITION, Compiler
from atoll.machinery.apiserver.admission.policies.program import compile_validating
from atoll.machinery.apiserver.admission.policies.validation import Outcome, validate
from atoll.machinery.meta.objects import Object

#: 700,000 units, below the limit of one expression, for `_LONG`: a search costs by the product of both texts.
_EXPENSIVE = "!object.spec.text.contains(object.spec.sought)"
_LONG = {"spec": {"text": "a" * 100_000, "sought": "b" * 700}}


def _spec(*validations: str | Object, **fields: Any) -> Object:
    entries = [{"expression": each} if isinstance(each, str) else each for each in validations]
    return {"validations": entries, **fields}


def _variables(**expressions: str) -> list[Object]:
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def _outcome(spec: Object, obj: Object | None = None, *, fails: bool = True, **values: Any) -> Outcome:
    found = {"object": obj or {"spec": {"replicas": 3}}, "oldObject": None, "namespaceObject": None, **values}
    return validate(compile_validating(spec), found, fails=fails)


def _messages(outcome: Outcome) -> list[str]:
    return [decision.message for decision in outcome.decisions]


def test_an_object_that_satisfies_all_validations_has_no_decisions() -> None:
    assert _outcome(_spec("object.spec.replicas < 5", "true")) == Outcome()


def test_a_failure_says_the_message_or_else_the_expression() -> None:
    spec = _spec({"expression": "false", "message": " too many ", "reason": "Forbidden"}, " false ")
    first, second = _outcome(spec).decisions
    assert (first.position, first.message, first.reason, first.is_error) == (0, "too many", "Forbidden", False)
    assert (second.position, second.message, second.reason) == (1, "failed expression: false", "Invalid")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'found ' + string(object.spec.replicas)", "found 3"),
        ("'  padded  '", "padded"),
        ("'two\\nlines'", "fixed"),
        ("' \\t '", "fixed"),
        ("string(object.spec.absent)", "fixed"),
        (repr("x" * 5120), "x" * 5120),
        (repr("x" * 5121), "fixed"),
        (repr("\u00e4" * 2561), "fixed"),
    ],
)
def test_a_message_expression_replaces_the_message_unless_it_has_no_usable_value(expression: str, message: str) -> None:
    spec = _spec({"expression": "false", "message": "fixed", "messageExpression": expression})
    assert _messages(_outcome(spec)) == [message]


def test_a_message_expression_has_no_authorizer_of_its_own() -> None:
    text = "authorizer.path('/x').check('get').allowed() ? 'a' : 'b'"
    spec = _spec({"expression": "false", "messageExpression": text, "message": "fixed"})
    assert _messages(_outcome(spec)) == ["fixed"]


def test_an_error_denies_under_fail_and_is_ignored_under_ignore() -> None:
    spec = _spec("object.spec.absent == 1")
    text = "expression 'object.spec.absent == 1' resulted in error: no such key: absent"
    for fails in (True, False):
        (decision,) = _outcome(spec, fails=fails).decisions
        assert (decision.message, decision.denies, decision.is_error, decision.reason) == (text, fails, True, "")


def test_a_denial_is_one_under_ignore_as_well() -> None:
    (decision,) = _outcome(_spec("false"), fails=False).decisions
    assert decision.denies


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("object.spec.enabled", "must evaluate to bool but got dyn"),
        ("'text'", "must evaluate to bool but got string"),
        ("[timestamp('2020-01-01T00:00:00Z')]", "must evaluate to bool but got list(google.protobuf.Timestamp)"),
        ("null", "must evaluate to bool but got null_type"),
    ],
)
def test_an_expression_of_another_type_is_an_error_of_compilation(expression: str, error: str) -> None:
    assert _messages(_outcome(_spec(expression))) == [f"compilation error: {error}"]


def test_an_annotation_is_a_string_or_null() -> None:
    spec: Object = {"auditAnnotations": [{"key": "a", "valueExpression": "object.spec"}]}
    (annotation,) = _outcome(spec).annotations
    assert annotation.error == "compilation error: must evaluate to one of [string null_type] but got dyn"


def test_annotations_without_text_are_left_out_and_errors_are_ignored_under_ignore() -> None:
    values = {"a": "' text '", "b": "''", "c": "null", "d": "string(object.spec.absent)"}
    spec = {"auditAnnotations": [{"key": key, "valueExpression": text} for key, text in values.items()]}
    assert [(each.key, each.value, each.error) for each in _outcome(spec, fails=False).annotations] == [
        ("a", "text", "")
    ]
    assert _outcome(spec).annotations[1].error.endswith("resulted in error: no such key: absent")


def test_variables_are_evaluated_when_they_are_first_selected() -> None:
    spec = _spec("true || variables.broken", variables=_variables(broken="object.spec.absent == 1"))
    assert _outcome(spec) == Outcome()


def test_a_variable_sees_those_before_it() -> None:
    variables = _variables(count="object.spec.replicas", twice="variables.count * 2")
    assert _messages(_outcome(_spec("variables.twice == 7", variables=variables))) == [
        "failed expression: variables.twice == 7"
    ]
    backwards = dict(reversed({"count": "object.spec.replicas", "twice": "variables.count * 2"}.items()))
    (message,) = _messages(_outcome(_spec("variables.twice == 6", variables=_variables(**backwards))))
    assert 'composited variable "twice" fails to compile: compilation failed: ERROR: <input>:1:10' in message


def test_the_error_of_a_variable_is_that_of_each_expression_that_uses_it() -> None:
    spec = _spec("variables.x == 1", "has(variables.x)", variables=_variables(x="object.spec.absent"))
    text = 'composited variable "x" fails to evaluate: no such key: absent'
    assert _messages(_outcome(spec)) == [
        f"expression 'variables.x == 1' resulted in error: {text}",
        f"expression 'has(variables.x)' resulted in error: {text}",
    ]


def test_lists_and_maps_of_a_variable_keep_their_types() -> None:
    spec = _spec("variables.names.all(n, n.startsWith('a'))", variables=_variables(names="['a', 'ab']"))
    assert _outcome(spec) == Outcome()
    spec = _spec("variables.names[0].enabled", variables=_variables(names="['a']"))
    assert "type 'string' does not support field selection" in _messages(_outcome(spec))[0]


def test_the_fields_of_a_namespace_are_typed() -> None:
    spec = _spec("namespaceObject.metadata.labels.team == 'a'", "namespaceObject.metadata.uid == ''")
    (message,) = _messages(_outcome(spec, namespaceObject={"metadata": {"labels": {"team": "a"}}}))
    assert "undefined field 'uid'" in message


def test_a_policy_that_exceeds_its_budget_is_one_error() -> None:
    spec = _spec(*[_EXPENSIVE] * 20)
    for fails in (True, False):
        (decision,) = _outcome(spec, _LONG, fails=fails).decisions
        assert (decision.message, decision.denies, decision.position) == (OUT_OF_BUDGET, fails, 0)


def test_an_expression_that_exceeds_the_limit_of_one_call_is_an_error_of_its_own() -> None:
    longer = {"spec": {**_LONG["spec"], "sought": "b" * 2000}}
    (decision,) = _outcome(_spec(_EXPENSIVE, "true"), longer).decisions
    assert decision.message.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


def test_variables_count_in_the_budget_once() -> None:
    names = [f"v{index}" for index in range(20)]
    variables = _variables(**dict.fromkeys(names, _EXPENSIVE))
    assert _outcome(_spec(*["variables.v0"] * 20, variables=variables), _LONG) == Outcome()
    spec = _spec(*[f"variables.{name}" for name in names], variables=variables)
    assert _messages(_outcome(spec, _LONG)) == [OUT_OF_BUDGET]


def test_a_variable_that_fails_is_not_evaluated_again() -> None:
    variables = _variables(x=f"{_EXPENSIVE} && object.spec.absent == 1")
    outcome = _outcome(_spec(*["variables.x"] * 20, variables=variables), _LONG)
    assert {message.rpartition(": ")[2] for message in _messages(outcome)} == {"absent"}


def test_messages_that_exceed_the_budget_fail_validations_that_hold() -> None:
    message = f"{_EXPENSIVE} ? 'a' : 'b'"
    spec = _spec(*[{"expression": "true", "messageExpression": message}] * 20, "false")
    messages = _messages(_outcome(spec, _LONG))
    assert messages == [f"failed messageExpression: {OUT_OF_BUDGET}"] * 21


def _match(*expressions: str, **values: Any) -> bool:
    compiler = Compiler(params=False)
    conditions = [compiler.expression(text, CONDITION) for text in expressions]
    return conditions_match(conditions, {"object": {"a": 1}, "namespaceObject": {"metadata": {}}, **values})


def test_conditions_match_if_all_are_true() -> None:
    assert _match("true", "object.a == 1")
    assert not _match("true", "object.a == 2")


def test_a_false_condition_excludes_the_request_whatever_fails() -> None:
    assert not _match("object.b == 1", "false", "object.c == 1")


def test_errors_of_conditions_are_listed_once_each() -> None:
    one = "expression 'object.b == 1' resulted in error: no such key: b"
    two = "expression 'object.c == 1' resulted in error: no such key: c"
    with pytest.raises(ConditionsFailed, match=f"^{one}$"):
        _match("object.b == 1", "true", "object.b == 1")
    with pytest.raises(ConditionsFailed, match=f"^\\[{one}, {two}\\]$"):
        _match("object.b == 1", "object.c == 1")


def test_conditions_do_not_see_the_namespace() -> None:
    assert _match("namespaceObject == null")


def test_conditions_have_a_budget_of_their_own() -> None:
    with pytest.raises(ConditionsFailed, match="running out of cost budget"):
        _match(*[_EXPENSIVE] * 5, object=_LONG)


def test_failed_conditions_deny_under_fail_and_exclude_the_request_under_ignore() -> None:
    spec = _spec("false", matchConditions=[{"name": "a", "expression": "object.b == 1"}])
    (decision,) = _outcome(spec).decisions
    assert decision.denies and decision.is_error and decision.message.endswith("no such key: b")
    assert _outcome(spec, fails=False) == Outcome()


def test_an_overlay_makes_values_below_it_once() -> None:
    made: list[str] = []

    class Below(dict[str, Any]):
        def __missing__(self, name: str) -> str:
            made.append(name)
            self[name] = name
            return name

    below = Below()
    assert [Overlay(below, {"a": 1})["b"] for _ in range(2)] == ["b", "b"]
    assert made == ["b"]
