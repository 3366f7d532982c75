"""Writes of policies and bindings: their expressions compile, and the writer may read their parameters."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api
from harness.clients.tenants import allow, bind, user

GROUP = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
FAMILIES: dict[str, dict[str, Any]] = {
    "Validating": {"validations": [{"expression": "true"}]},
    "Mutating": {
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test'}]"}}],
    },
}
OPERATIONS = {"Validating": ["*"], "Mutating": ["CREATE"]}
ALICE = "&{alice u-alice [team-a team-b system:authenticated] map[]}"


def let_write(api: Api, **reads: list[str]) -> None:
    """Let alice enter the workspace and write policies and bindings, and read what the rule says."""
    bind(api, "system:kcp:workspace:access", user("alice"))
    allow(api, "writer", "alice", apiGroups=["admissionregistration.k8s.io"], resources=["*"], verbs=["*"])
    if reads:
        allow(api, "reader", "alice", apiGroups=[""], **reads)


def policies(family: str) -> str:
    return f"{GROUP}/{family.lower()}admissionpolicies"


def policy(family: str = "Validating", **spec: Any) -> dict[str, Any]:
    rule = {**CONFIGMAPS, "operations": OPERATIONS[family]}
    body = {"matchConstraints": {"resourceRules": [rule]}, **FAMILIES[family], **spec}
    version, kind = "admissionregistration.k8s.io/v1", f"{family}AdmissionPolicy"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "spec": body}


def binding(family: str, **reference: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"policyName": "p", "paramRef": {"parameterNotFoundAction": "Deny", **reference}}
    if family == "Validating":
        spec["validationActions"] = ["Deny"]
    version, kind = "admissionregistration.k8s.io/v1", f"{family}AdmissionPolicyBinding"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "b"}, "spec": spec}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_policy_whose_expressions_do_not_compile_is_refused(api: Api, family: str) -> None:
    condition = {"name": "c", "expression": "object.x =="}
    refused = api.post(policies(family), policy(family, matchConditions=[condition]), expect=422)
    assert refused.message.startswith(
        f'{family}AdmissionPolicy.admissionregistration.k8s.io "p" is invalid: spec.matchConditions[0].expression: '
        'Invalid value: "object.x ==": compilation failed: ERROR: <input>:1:12: Syntax error: mismatched input'
    )
    (cause,) = refused.json["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "spec.matchConditions[0].expression")
    api.post(policies(family), policy(family), expect=201)
    variables = {"spec": {"variables": [{"name": "x", "expression": "nothing"}]}}
    assert "undeclared reference to 'nothing'" in api.patch(f"{policies(family)}/p", variables, expect=422).message


def test_a_validation_must_be_a_bool(api: Api) -> None:
    refused = api.post(policies("Validating"), policy(validations=[{"expression": "object.spec.on"}]), expect=422)
    assert refused.message.endswith('Invalid value: "object.spec.on": must evaluate to bool but got dyn')


@pytest.mark.parametrize("family", FAMILIES)
def test_who_names_a_kind_of_parameters_must_be_able_to_get_them_all(api: Api, alice: Api, family: str) -> None:
    let_write(api)
    params = {"apiVersion": "v1", "kind": "Secret"}
    refused = alice.post(policies(family), policy(family, paramKind=params), expect=422)
    text = 'must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)'
    assert refused.message.endswith(f"spec.paramKind: Forbidden: user {ALICE} {text}")
    alice.post(policies(family), policy(family))
    alice.patch(f"{policies(family)}/p", {"spec": {"paramKind": params}}, expect=422)
    api.patch(f"{policies(family)}/p", {"spec": {"paramKind": params}})
    alice.patch(f"{policies(family)}/p", {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize("family", FAMILIES)
def test_who_reads_the_kind_may_name_it(api: Api, alice: Api, family: str) -> None:
    let_write(api, resources=["secrets"], verbs=["get"])
    alice.post(policies(family), policy(family, paramKind={"apiVersion": "v1", "kind": "Secret"}))
    unknown = {"apiVersion": "example.com/v1", "kind": "Unknown"}
    alice.patch(f"{policies(family)}/p", {"spec": {"paramKind": unknown}}, expect=422)


@pytest.mark.parametrize("family", FAMILIES)
def test_who_refers_to_parameters_must_be_able_to_read_them(api: Api, alice: Api, family: str) -> None:
    let_write(api, resources=["configmaps"], resourceNames=["limit"], verbs=["get"])
    path = f"{policies(family).removesuffix('policies')}policybindings"
    by_name = {"name": "limit", "namespace": "default"}
    refused = alice.post(path, binding(family, **by_name), expect=422)
    text = f'user {ALICE} does not have "get" permission for all groups, versions and resources'
    assert refused.message.endswith(
        f"spec.paramRef: Forbidden: unable to get policy p to determine minimum required permissions and {text}"
    )
    api.post(policies(family), policy(family, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}))
    refused = alice.post(path, binding(family, selector={}), expect=422)
    assert refused.message.endswith(
        f'spec.paramRef: Forbidden: user {ALICE} does not have "list" permission on the object referenced by paramRef'
    )
    alice.post(path, binding(family, **{**by_name, "name": "other"}), expect=422)
    alice.post(path, binding(family, **by_name))
    gone = policy(family, paramKind={"apiVersion": "a.io/v1", "kind": "Gone"})
    api.post(policies(family), {**gone, "metadata": {"name": "q"}})
    refused = alice.patch(f"{path}/b", {"spec": {"policyName": "q"}}, expect=422)
    assert "unable to resolve paramKind &{a.io/v1 Gone} to determine minimum required permissions" in refused.message
