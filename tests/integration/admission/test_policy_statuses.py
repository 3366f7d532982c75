"""The status of ValidatingAdmissionPolicies: warnings of type checking, which follow the policy and the kinds."""

from __future__ import annotations

from typing import Any

from harness.clients.api import CRDS, Api, Object, crd, define, eventually

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RULE = {"operations": ["*"], "apiGroups": ["shapes.example.com"], "apiVersions": ["v1"], "resources": ["circles"]}


def create(api: Api, *expressions: str) -> Object:
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": each} for each in expressions],
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "spec": spec}
    return dict(api.post(POLICIES, {**body, "metadata": {"name": "p"}}).json)


def status(api: Api) -> Any:
    return api.get(f"{POLICIES}/p").json.get("status", {})


def warnings(api: Api) -> list[str]:
    """The fields with warnings."""
    return [each["fieldRef"] for each in status(api).get("typeChecking", {}).get("expressionWarnings", [])]


def test_a_policy_is_checked_against_the_kinds_that_it_names(api: Api) -> None:
    define(api, crd("circles"))
    create(api, "object.spec.replicas > 1", "object.spec.replica > 1")
    eventually(lambda: status(api).get("observedGeneration") == 1)
    assert status(api) == {
        "observedGeneration": 1,
        "typeChecking": {
            "expressionWarnings": [
                {
                    "fieldRef": "spec.validations[1].expression",
                    "warning": (
                        "shapes.example.com/v1, Kind=Circle: ERROR: <input>:1:12: undefined field 'replica'\n"
                        " | object.spec.replica > 1\n | ...........^\n"
                    ),
                }
            ]
        },
    }
    fields = {each["manager"]: each for each in api.get(f"{POLICIES}/p").json["metadata"]["managedFields"]}
    assert fields["validatingadmissionpolicy-status"]["operation"] == "Apply"
    api.patch(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}})
    eventually(lambda: status(api) == {"observedGeneration": 2, "typeChecking": {}})


def test_a_policy_is_checked_again_when_its_kinds_change(api: Api) -> None:
    create(api, "object.spec.depth > 1")
    eventually(lambda: status(api) == {"observedGeneration": 1, "typeChecking": {}})
    definition = crd("circles")
    define(api, definition)
    eventually(lambda: warnings(api) == ["spec.validations[0].expression"])
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["depth"] = {"type": "integer"}
    api.patch(f"{CRDS}/circles.shapes.example.com", {"spec": {"versions": definition["spec"]["versions"]}})
    eventually(lambda: status(api) == {"observedGeneration": 1, "typeChecking": {}})
    api.delete(f"{CRDS}/circles.shapes.example.com")
    version = api.get(f"{POLICIES}/p").json["metadata"]["resourceVersion"]
    eventually(lambda: api.get(f"{CRDS}/circles.shapes.example.com", expect=0).code == 404)
    assert api.get(f"{POLICIES}/p").json["metadata"]["resourceVersion"] == version, "an equal status is not written"
