"""Expressions of a policy that is written: each one that does not compile is an error of its field."""

from __future__ import annotations

from typing import Any

from atoll.machinery.apiserver.admission.policies.compile_errors import policy_errors
from atoll.machinery.meta.objects import Object

PARAMS = {"apiVersion": "v1", "kind": "ConfigMap"}
#: A function that the compatibility version lacks.
_NEWER = "[1, 2].includes(1)"


def _errors(old: Object | None = None, **spec: Any) -> dict[str, str]:
    return {error.field: error.detail for error in policy_errors(spec, old or {}, lambda: None)}


def _entries(*expressions: str, **fields: str) -> list[Object]:
    return [{"expression": each, **fields} for each in expressions]


def test_expressions_that_compile_have_no_errors() -> None:
    assert (
        _errors(
            paramKind=PARAMS,
            matchConditions=_entries("params != null", name="a"),
            variables=[
                {"name": "x", "expression": "object.spec"},
                {"name": "y", "expression": "variables.x.size() + 1"},
            ],
            validations=_entries("variables.y > 1", messageExpression="'y is ' + string(variables.y)"),
            auditAnnotations=[{"key": "a", "valueExpression": " 'text' "}],
        )
        == {}
    )


def test_an_error_names_the_field_and_quotes_the_text() -> None:
    assert _errors(validations=_entries("object.x ==")) == {
        "spec.validations[0].expression": (
            'Invalid value: "object.x ==": compilation failed: ERROR: <input>:1:12: Syntax error: mismatched input '
            "'<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
            "STRING, BYTES, IDENTIFIER}\n | object.x ==\n | ...........^"
        )
    }


def test_every_field_with_an_expression_is_checked() -> None:
    found = _errors(
        matchConditions=_entries("'text'", name="a"),
        variables=[{"name": "x", "expression": "nothing"}],
        validations=_entries("1", messageExpression="1"),
        auditAnnotations=[{"key": "a", "valueExpression": "1"}],
    )
    assert found == {
        "spec.matchConditions[0].expression": "Invalid value: \"'text'\": must evaluate to bool but got string",
        "spec.variables[0].expression": (
            "Invalid value: \"nothing\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' "
            "(in container '')\n | nothing\n | ^"
        ),
        "spec.validations[0].expression": 'Invalid value: "1": must evaluate to bool but got int',
        "spec.validations[0].messageExpression": 'Invalid value: "1": must evaluate to string but got int',
        "spec.auditAnnotations[0].valueExpression": (
            'Invalid value: "1": must evaluate to one of [string null_type] but got int'
        ),
    }


def test_parameters_are_declared_with_a_param_kind_only() -> None:
    assert (
        "undeclared reference to 'params'"
        in _errors(validations=_entries("params == null"))["spec.validations[0].expression"]
    )
    assert _errors(paramKind=PARAMS, validations=_entries("params == null")) == {}


def test_messages_have_no_authorizer_and_conditions_no_variables() -> None:
    allowed = "authorizer.path('/x').check('get').allowed()"
    found = _errors(
        variables=[{"name": "x", "expression": allowed}],
        validations=_entries(allowed, messageExpression=f"string({allowed})"),
        matchConditions=_entries("variables.x", name="a"),
    )
    assert found.keys() == {"spec.validations[0].messageExpression", "spec.matchConditions[0].expression"}


def test_without_variables_there_is_no_map_of_them() -> None:
    (detail,) = _errors(validations=_entries("variables.x")).values()
    assert "undeclared reference to 'variables'" in detail


def test_a_stored_expression_may_use_functions_that_a_new_one_may_not() -> None:
    spec: Object = {"validations": _entries(_NEWER)}
    assert "undeclared reference to 'includes'" in _errors(**spec)["spec.validations[0].expression"]
    assert _errors(old=spec, **spec) == {}


def test_conditions_that_do_not_change_are_not_checked_again() -> None:
    spec: Object = {"matchConditions": _entries("variables.x", name="a")}
    assert _errors(**spec)
    assert _errors(old=spec, **spec) == {}
    assert _errors(old=spec, paramKind=PARAMS, **spec)


def test_a_literal_that_does_not_convert_is_an_internal_error_as_upstream() -> None:
    (error,) = policy_errors({"validations": _entries("int('x') == 1")}, {}, lambda: None)
    assert error.type == "InternalError"
    assert error.detail.startswith("Internal error: program instantiation failed: ")


def test_mutations_construct_the_object_or_a_list_of_operations() -> None:
    found = _errors(
        mutations=[
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{spec: Object.spec{a: 1}}"},
            },
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object.spec{}"}},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "object"}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "JSONPatch{}"}},
        ]
    )
    assert found == {
        "spec.mutations[1].applyConfiguration.expression": (
            'Invalid value: "Object.spec{}": must evaluate to Object but got Object.spec'
        ),
        "spec.mutations[2].applyConfiguration.expression": (
            'Invalid value: "object": must evaluate to Object but got dyn'
        ),
        "spec.mutations[4].jsonPatch.expression": (
            'Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)'
        ),
        "spec.mutations[5].jsonPatch.expression": (
            'Invalid value: "JSONPatch{}": must evaluate to list(JSONPatch) but got JSONPatch'
        ),
    }


def test_a_mutation_that_is_stored_may_use_functions_that_a_new_one_may_not() -> None:
    expression = f"Object{{spec: Object.spec{{a: {_NEWER}}}}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
    assert list(_errors(mutations=mutations)) == ["spec.mutations[0].applyConfiguration.expression"]
    assert _errors(old={"mutations": mutations}, mutations=mutations) == {}
