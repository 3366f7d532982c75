"""Laws of policies: variables stand for their expressions, conditions are a conjunction, nothing escapes evaluation."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.apiserver.admission.expressions.conditions import ConditionsFailed, conditions_match
from atoll.machinery.apiserver.admission.expressions.expression import CONDITION, Compiler
from atoll.machinery.apiserver.admission.policies.compile_errors import policy_errors
from atoll.machinery.apiserver.admission.policies.program import compile_validating
from atoll.machinery.apiserver.admission.policies.validation import Outcome, validate
from atoll.machinery.meta.objects import Object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)
_OPERANDS = st.sampled_from(
    ["object.a", "object.b.c", "object.c", "1", "'ab'", "size(object.a)", "object.b[0]", "has(object.c)", "null"]
)
_COMPARISONS = st.tuples(_OPERANDS, st.sampled_from(["==", "!="]), _OPERANDS).map(
    lambda each: f"dyn({each[0]}) {each[1]} dyn({each[2]})"
)
_TERMS = st.recursive(
    _COMPARISONS | st.sampled_from(["true", "false"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda each: f"({each[0]} {each[1]} {each[2]})")
        | inner.map(lambda each: f"!({each})")
    ),
    max_leaves=4,
)


def _outcome(spec: Object, obj: Object) -> Outcome:
    values: dict[str, Any] = {"object": obj, "oldObject": None, "namespaceObject": None}
    return validate(compile_validating(spec), values, fails=True)


def _denied(spec: Object, obj: Object) -> tuple[tuple[bool, bool], ...]:
    """Whether each validation denies, and by an error."""
    return tuple((decision.denies, decision.is_error) for decision in _outcome(spec, obj).decisions)


@given(_TERMS, _TERMS, _OBJECTS)
def test_a_variable_stands_for_its_expression(first: str, second: str, obj: Object) -> None:
    plain = {"validations": [{"expression": f"({first}) && ({second})"}]}
    variables = [{"name": "x", "expression": first}, {"name": "y", "expression": f"variables.x && ({second})"}]
    named = {"variables": variables, "validations": [{"expression": "variables.y"}]}
    assert _denied(plain, obj) == _denied(named, obj)


@given(st.lists(_TERMS, max_size=4), _OBJECTS)
def test_conditions_are_false_if_one_is_and_fail_if_one_does(texts: list[str], obj: Object) -> None:
    compiler = Compiler(params=False)
    values = {"object": obj, "oldObject": None}
    single = [_matches(compiler, [text], values) for text in texts]
    expected = False if False in single else None if None in single else True
    assert _matches(compiler, texts, values) is expected
    assert _matches(compiler, texts[::-1], values) is expected


def _matches(compiler: Compiler, texts: list[str], values: dict[str, Any]) -> bool | None:
    try:
        return conditions_match([compiler.expression(text, CONDITION) for text in texts], values)
    except ConditionsFailed:
        return None


@given(st.text(max_size=40), st.text(max_size=40), _OBJECTS)
def test_any_text_is_compiled_or_refused_and_evaluates_or_fails(expression: str, message: str, obj: Object) -> None:
    spec = {"validations": [{"expression": expression, "messageExpression": message}]}
    errors = policy_errors(spec, {}, lambda: None)
    outcome = _outcome(spec, obj)
    if any(error.field.endswith("].expression") for error in errors):
        (decision,) = outcome.decisions
        assert decision.is_error
        assert decision.message.startswith("compilation error: ")


@given(_TERMS, _OBJECTS)
def test_the_failure_policy_changes_nothing_but_whether_errors_deny(text: str, obj: Object) -> None:
    program = compile_validating({"validations": [{"expression": text}]})
    values = {"object": obj, "oldObject": None, "namespaceObject": None}
    under_fail, under_ignore = (validate(program, values, fails=fails).decisions for fails in (True, False))
    assert [each.message for each in under_fail] == [each.message for each in under_ignore]
    assert [each.denies for each in under_ignore] == [not each.is_error for each in under_fail]
