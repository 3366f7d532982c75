"""Parameters of ValidatingAdmissionPolicies: by name and by selector, namespaced and not, present and absent."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, configmap, crd, define
from harness.clients.policies import BINDINGS, Policies, binding, denial, policy, rule

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
CIRCLES = "/apis/shapes.example.com/v1"
CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap"}
CIRCLE = {"apiVersion": "shapes.example.com/v1", "kind": "Circle"}
SECRETS = "/api/v1/namespaces/default/secrets"
NO_PARAMS = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"


@pytest.fixture
def policies(api: Api) -> Policies:
    return Policies(api)


def secret(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}}


def limited(name: str = "p", kind: dict[str, str] = CONFIGMAP, **spec: Any) -> dict[str, Any]:
    """A policy for Secrets: the prefix of their name is a parameter."""
    validation = {
        "expression": "params == null || object.metadata.name.startsWith(params.data.prefix)",
        "messageExpression": "'must begin with ' + string(params.data.prefix)",
    }
    return policy(name, validation, rules=[rule("secrets")], paramKind=kind, **spec)


def reference(action: str = "Deny", **fields: Any) -> dict[str, Any]:
    return {"paramRef": {"parameterNotFoundAction": action, **fields}}


def test_a_parameter_by_name_counts_as_it_is_now(api: Api, policies: Policies) -> None:
    policies.add(limited(), binding("b", "p", **reference(name="limit", namespace="default")))
    refused = api.post(SECRETS, secret("x"), expect=422)
    assert refused.message.endswith(denial("p", NO_PARAMS, "b"))
    api.post(CONFIGMAPS, configmap("limit", {"prefix": "a-"}))
    assert api.post(SECRETS, secret("x"), expect=422).message.endswith(denial("p", "must begin with a-", "b"))
    api.post(SECRETS, secret("a-1"))
    api.patch(f"{CONFIGMAPS}/limit", {"data": {"prefix": "b-"}})
    assert api.post(SECRETS, secret("a-2"), expect=422).message.endswith(denial("p", "must begin with b-", "b"))
    api.delete(f"{CONFIGMAPS}/limit")
    api.post(SECRETS, secret("b-1"), expect=422)


def test_without_a_parameter_the_binding_says_whether_to_deny(api: Api, policies: Policies) -> None:
    policies.add(limited(), binding("b", "p", **reference("Allow", name="limit", namespace="default")))
    api.post(SECRETS, secret("x"))
    api.post(BINDINGS, binding("c", "p", **reference("Deny", name="limit", namespace="default")))
    assert api.post(SECRETS, secret("y"), expect=422).message.endswith(denial("p", NO_PARAMS, "c"))


def test_a_missing_parameter_is_ignored_with_the_errors_of_the_policy(api: Api, policies: Policies) -> None:
    policies.add(
        limited(failurePolicy="Ignore"), binding("b", "p", **reference("Deny", name="limit", namespace="default"))
    )
    api.post(SECRETS, secret("x"))


def test_without_a_namespace_the_parameter_is_in_that_of_the_request(api: Api, policies: Policies) -> None:
    api.post(NAMESPACES, {"metadata": {"name": "other"}})
    policies.add(limited(), binding("b", "p", **reference("Allow", name="limit")))
    api.post(CONFIGMAPS, configmap("limit", {"prefix": "a-"}))
    api.post(SECRETS, secret("x"), expect=422)
    api.post(SECRETS.replace("default", "other"), secret("x"))


def test_a_cluster_scoped_object_has_no_namespaced_parameter_of_its_own(api: Api, policies: Policies) -> None:
    rules = [rule("clusterroles", group="rbac.authorization.k8s.io")]
    body = policy("p", "params.data.on == 'yes'", rules=rules, paramKind=CONFIGMAP)
    policies.add(body, binding("b", "p", **reference(name="limit")))
    role = {"metadata": {"name": "x"}, "rules": []}
    refused = api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role, expect=422)
    text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    assert refused.message.endswith(denial("p", f"failed to configure binding: {text}", "b"))


def test_a_selector_hands_over_each_object_that_it_matches(api: Api, policies: Policies) -> None:
    selector = {"matchLabels": {"limits": "yes"}}
    policies.add(limited(), binding("b", "p", **reference("Deny", selector=selector, namespace="default")))
    assert api.post(SECRETS, secret("x"), expect=422).message.endswith(denial("p", NO_PARAMS, "b"))
    api.post(CONFIGMAPS, configmap("one", {"prefix": "a"}, labels={"limits": "yes"}))
    api.post(CONFIGMAPS, configmap("two", {"prefix": "a-b"}, labels={"limits": "yes"}))
    api.post(CONFIGMAPS, configmap("three", {"prefix": "c"}, labels={"limits": "no"}))
    api.post(SECRETS, secret("a-b-1"))
    assert api.post(SECRETS, secret("a-1"), expect=422).message.endswith(denial("p", "must begin with a-b", "b"))
    api.patch(f"{CONFIGMAPS}/three", {"metadata": {"labels": {"limits": "yes"}}})
    api.post(SECRETS, secret("a-b-2"), expect=422)


def test_a_custom_cluster_scoped_kind_holds_parameters(api: Api, policies: Policies) -> None:
    expression = "object.metadata.name.size() <= params.spec.replicas"
    body = policy("p", expression, rules=[rule("secrets")], paramKind=CIRCLE)
    policies.add(body, binding("b", "p", **reference("Allow", name="limit")))
    unknown = "failed to configure policy: failed to find resource referenced by paramKind: "
    refused = api.post(SECRETS, secret("long"), expect=422)
    text = f"ValidatingAdmissionPolicy 'p' denied request: {unknown}'shapes.example.com/v1, Kind=Circle'"
    assert refused.message.endswith(f"is forbidden: {text}")
    define(api, crd("circles", scope="Cluster"))
    api.post(SECRETS, secret("longer"))
    api.post(f"{CIRCLES}/circles", {**CIRCLE, "metadata": {"name": "limit"}, "spec": {"replicas": 3}})
    api.post(SECRETS, secret("long"), expect=422)
    api.post(SECRETS, secret("abc"))
    api.patch(f"{BINDINGS}/b", {"spec": {"paramRef": {"namespace": "default"}}})
    refused = api.post(SECRETS, secret("x"), expect=422)
    text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
    assert refused.message.endswith(denial("p", f"failed to configure binding: {text}", "b"))


def test_a_binding_without_a_reference_evaluates_without_parameters(api: Api, policies: Policies) -> None:
    policies.add(limited(), binding("b", "p"))
    api.post(SECRETS, secret("x"))


def test_several_bindings_hand_over_parameters_of_their_own(api: Api, policies: Policies) -> None:
    for name in ("one", "two"):
        api.post(CONFIGMAPS, configmap(name, {"prefix": name}))
    bindings = [binding(name, "p", **reference(name=name, namespace="default")) for name in ("one", "two")]
    policies.add(limited(), *bindings)
    assert api.post(SECRETS, secret("one"), expect=422).message.endswith(denial("p", "must begin with two", "two"))
