"""Writes of webhook configurations: their match conditions compile."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api

GROUP = "/apis/admissionregistration.k8s.io/v1"


def configuration(kind: str, *expressions: str) -> dict[str, Any]:
    """A configuration with one webhook for each expression, never called."""
    webhooks = [
        {
            "name": f"w{index}.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "c", "expression": expression}],
        }
        for index, expression in enumerate(expressions)
    ]
    api_version = "admissionregistration.k8s.io/v1"
    metadata = {"name": "hooks"}
    return {
        "apiVersion": api_version,
        "kind": f"{kind}WebhookConfiguration",
        "metadata": metadata,
        "webhooks": webhooks,
    }


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_conditions_that_do_not_compile_are_refused_each_by_its_field(api: Api, kind: str) -> None:
    path = f"{GROUP}/{kind.lower()}webhookconfigurations"
    body = configuration(kind, "object.x ==", "true", "object.metadata.name", "variables.x")
    refused = api.post(path, body, expect=422)
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [
        "webhooks[0].matchConditions[0].expression",
        "webhooks[2].matchConditions[0].expression",
        "webhooks[3].matchConditions[0].expression",
    ]
    syntax, wrong_type, unknown = (cause["message"] for cause in refused.json["details"]["causes"])
    assert syntax.startswith('Invalid value: "object.x ==": compilation failed: ERROR: <input>:1:12: Syntax error')
    assert wrong_type == 'Invalid value: "object.metadata.name": must evaluate to bool but got dyn'
    assert "undeclared reference to 'variables'" in unknown


def test_an_update_is_refused_for_a_new_condition_and_taken_without_one(api: Api) -> None:
    path = f"{GROUP}/validatingwebhookconfigurations"
    body = configuration("Validating", "authorizer.group('').resource('pods').check('get').allowed()")
    api.post(path, body)
    api.patch(f"{path}/hooks", {"metadata": {"labels": {"a": "b"}}})
    conditions = [{"name": "c", "expression": "params.x"}]
    change = {"webhooks": [{**body["webhooks"][0], "matchConditions": conditions}]}
    assert "undeclared reference to 'params'" in api.patch(f"{path}/hooks", change, expect=422).message
