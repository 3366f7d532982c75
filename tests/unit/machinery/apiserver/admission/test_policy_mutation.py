"""Mutations of MutatingAdmissionPolicies on one object: results, errors, budgets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.apiserver.admission.expressions.evaluation import OUT_OF_BUDGET
from atoll.machinery.apiserver.admission.policies.mutation import MutationFailed, mutated
from atoll.machinery.apiserver.admission.policies.program import compile_mutating
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

_ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}
TYPES = TypeSchema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "order": {"type": "array", "items": {"type": "string"}},
                    "fixed": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}},
                        "x-kubernetes-map-type": "atomic",
                    },
                    "items": {
                        "type": "array",
                        "items": _ITEM,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                },
            }
        },
    },
    {},
)
OBJECT: Object = {
    "apiVersion": "example.io/v1",
    "kind": "Thing",
    "metadata": {"name": "n", "labels": {"a": "x"}},
    "spec": {"size": 1, "tags": ["x"], "items": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]},
}


def _mutated(
    expression: str, *, is_patch: bool = False, obj: Object = OBJECT, variables: dict[str, str] | None = None
) -> Object:
    form = "jsonPatch" if is_patch else "applyConfiguration"
    entry: Object = {"patchType": "JSONPatch" if is_patch else "ApplyConfiguration", form: {"expression": expression}}
    named = [{"name": name, "expression": text} for name, text in (variables or {}).items()]
    program = compile_mutating({"mutations": [entry], "variables": named})
    values: Any = {"object": obj, "oldObject": None, "namespaceObject": None, "params": None}
    before = copy.deepcopy(obj)
    try:
        return mutated(program, program.mutations[0], values, obj, TYPES)
    finally:
        assert obj == before


def _refusal(
    expression: str, *, is_patch: bool = False, obj: Object = OBJECT, variables: dict[str, str] | None = None
) -> str:
    with pytest.raises(MutationFailed) as caught:
        _mutated(expression, is_patch=is_patch, obj=obj, variables=variables)
    return str(caught.value)


def test_a_configuration_is_merged_by_the_schema() -> None:
    changed = _mutated(
        "Object{metadata: Object.metadata{labels: {'b': variables.y}}, spec: Object.spec{tags: ['y'], "
        "items: [Object.spec.items{name: 'b', n: object.spec.size + 7}]}}",
        variables={"y": "object.metadata.name + '!'"},
    )
    assert changed["metadata"] == {"name": "n", "labels": {"a": "x", "b": "n!"}}
    assert changed["spec"] == {"size": 1, "tags": ["x", "y"], "items": [{"name": "a", "n": 1}, {"name": "b", "n": 8}]}


def test_what_a_configuration_holds_already_changes_nothing() -> None:
    assert _mutated("Object{spec: Object.spec{size: 1, tags: ['x']}}") is OBJECT


def test_what_merges_only_as_a_whole_may_not_be_set() -> None:
    text = _refusal("Object{spec: Object.spec{order: ['a'], fixed: Object.spec.fixed{a: 'x'}, size: 2}}")
    wanted = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.order, .spec.fixed"
    assert text == f"error applying patch: {wanted}"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (
            "Object{spec: Object.spec{other: 1}}",
            "patch object to typed object: .spec.other: field not declared in schema",
        ),
        (
            "Object{spec: Object.spec{size: 'x'}}",
            "patch object to typed object: .spec.size: expected numeric (int or float), got string",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_the_schema_is_refused(expression: str, error: str) -> None:
    assert _refusal(expression) == f"error applying patch: failed to convert {error}"


def test_an_object_that_does_not_fit_the_schema_is_refused_but_may_repeat_items() -> None:
    repeated = {**OBJECT, "spec": {"tags": ["x", "x"]}}
    assert _mutated("Object{spec: Object.spec{size: 2}}", obj=repeated)["spec"]["size"] == 2
    wrong = {**OBJECT, "spec": {"size": "x"}}
    text = _refusal("Object{spec: Object.spec{tags: ['y']}}", obj=wrong)
    assert text.startswith("error applying patch: failed to convert original object to typed object: .spec.size:")


def test_parts_are_named_by_their_path() -> None:
    assert _refusal("Object{spec: Object.other{}}").startswith('type mismatch: unexpected type name "Object.other"')


def test_operations_apply_in_order_and_a_failed_test_changes_nothing() -> None:
    patch = (
        "[JSONPatch{op: 'test', path: '/spec/size', value: %d}, "
        "JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'y'}]"
    )
    assert _mutated(patch % 1, is_patch=True)["metadata"]["labels"] == {"a": "x", "a/b": "y"}
    assert _mutated(patch % 2, is_patch=True) is OBJECT


def test_the_errors_are_those_of_kubernetes() -> None:
    patch = "[JSONPatch{op: 'replace', path: '/spec/no/such', value: 1}]"
    text = "JSON Patch: replace operation does not apply: doc is missing path: /spec/no/such: missing value"
    assert _refusal(patch, is_patch=True) == text
    assert _refusal("object") == "must evaluate to Object but got dyn"
    assert _refusal("Object{spec:").startswith("compilation failed: ERROR: <input>:1:13")
    expression = "Object{spec: Object.spec{size: object.spec.missing}}"
    assert _refusal(expression) == f"expression '{expression}' resulted in error: no such key: missing"


def test_each_mutation_has_a_budget_and_variables_spend_it() -> None:
    long = {**OBJECT, "spec": {"text": "a" * 100_000, "sought": "b" * 700}}
    costly = "!object.spec.text.contains(object.spec.sought)"
    names = [f"v{index}" for index in range(20)]
    sum_of_all = " && ".join(f"variables.{name}" for name in names)
    text = f"Object{{metadata: Object.metadata{{labels: {{'a': string({sum_of_all})}}}}}}"
    assert _refusal(text, obj=long, variables=dict.fromkeys(names, costly)) == OUT_OF_BUDGET
