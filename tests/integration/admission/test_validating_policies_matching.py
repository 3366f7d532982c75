"""Which requests a ValidatingAdmissionPolicy acts on: rules, exclusions, names, selectors, operations, versions."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, configmap, crd, define
from harness.clients.policies import Policies, binding, denial, policy, rule

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
NAMESPACES = "/api/v1/namespaces"
SHAPES = "/apis/shapes.example.com"


@pytest.fixture
def policies(api: Api) -> Policies:
    return Policies(api)


def secret(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}}


def test_excluded_rules_and_names_narrow_the_rules(api: Api, policies: Policies) -> None:
    rules = [rule("*", resourceNames=["a", "b"])]
    policies.deny("p", "false", rules=rules, match={"excludeResourceRules": [rule("secrets", resourceNames=["b"])]})
    api.post(CONFIGMAPS, configmap("a"), expect=422)
    api.post(CONFIGMAPS, configmap("b"), expect=422)
    api.post(CONFIGMAPS, configmap("c"))
    api.post(SECRETS, secret("a"), expect=422)
    api.post(SECRETS, secret("b"))


def test_operations_are_told_apart(api: Api, policies: Policies) -> None:
    policies.deny("p", "false", rules=[rule("configmaps", operations=["UPDATE"])])
    deleted = {"expression": "oldObject.data.a != 'keep'", "message": "kept"}
    policies.deny("q", deleted, rules=[rule("configmaps", operations=["DELETE"])])
    api.post(CONFIGMAPS, configmap("a", {"a": "keep"}))
    api.patch(f"{CONFIGMAPS}/a", {"data": {"b": "c"}}, expect=422)
    assert api.delete(f"{CONFIGMAPS}/a", expect=422).message.endswith(denial("q", "kept"))
    api.post(CONFIGMAPS, configmap("b", {"a": "drop"}))
    api.delete(f"{CONFIGMAPS}/b")
    assert api.delete(CONFIGMAPS, expect=422).message.endswith(denial("q", "kept"))


def test_a_binding_narrows_its_policy(api: Api, policies: Policies) -> None:
    match = {"matchResources": {"resourceRules": [rule("secrets")]}}
    policies.add(policy("p", "false", rules=[rule("*")]), binding("b", "p", **match))
    api.post(CONFIGMAPS, configmap("a"))
    api.post(SECRETS, secret("a"), expect=422)


def test_selectors_look_at_the_labels_of_the_namespace_and_of_the_object(api: Api, policies: Policies) -> None:
    api.post(NAMESPACES, {"metadata": {"name": "red", "labels": {"colour": "red"}}})
    match = {"namespaceSelector": {"matchLabels": {"colour": "red"}}}
    policies.deny("p", {"expression": "false", "message": "red"}, rules=[rule("*")], match=match)
    labelled = {"matchResources": {"objectSelector": {"matchLabels": {"marked": "yes"}}}}
    policies.add(policy("q", {"expression": "false", "message": "marked"}), binding("q", "q", **labelled))
    red = CONFIGMAPS.replace("default", "red")
    assert api.post(red, configmap("a"), expect=422).message.endswith(denial("p", "red"))
    api.post(CONFIGMAPS, configmap("a"))
    refused = api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"marked": "yes"}}}, expect=422)
    assert refused.message.endswith(denial("q", "marked"))
    refused = api.patch(f"{NAMESPACES}/red", {"metadata": {"labels": {"a": "b"}}}, expect=422)
    assert refused.message.endswith(denial("p", "red"))


def test_a_request_through_another_version_is_converted(api: Api, policies: Policies) -> None:
    definition = crd("circles")
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    define(api, definition)
    expression = "object.apiVersion + '/' + request.kind.version + '/' + request.requestKind.version"
    validation = {"expression": "false", "messageExpression": f"string({expression})"}
    rules = [rule("circles", group="shapes.example.com")]
    policies.deny("p", validation, rules=rules)
    body = {"apiVersion": "shapes.example.com/v2", "kind": "Circle", "metadata": {"name": "a"}, "spec": {}}
    refused = api.post(f"{SHAPES}/v2/namespaces/default/circles", body, expect=422)
    assert refused.message.endswith(denial("p", "shapes.example.com/v1/v1/v2"))
    policies.api.patch(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p",
        {"spec": {"matchConstraints": {"matchPolicy": "Exact"}}},
    )
    api.post(f"{SHAPES}/v2/namespaces/default/circles", body)
