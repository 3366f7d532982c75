"""x-kubernetes-validations on the wire: definitions are validated, and objects on every verb that writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import APPLY, CRDS, JSON_PATCH, Api, crd, define
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess

RULES = "x-kubernetes-validations"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def circle(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, "spec": spec}


def ruled(*rules: dict[str, Any], root: list[dict[str, Any]] | None = None, **properties: Any) -> dict[str, Any]:
    """A definition of circles with rules on their spec."""
    definition = crd("circles")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"].update(properties)
    schema["properties"]["spec"][RULES] = list(rules)
    schema["properties"]["status"][RULES] = [{"rule": "!has(self.replicas) || self.replicas < 100", "message": "many"}]
    if root:
        schema[RULES] = root
    return dict(definition)


LOW = {"rule": "!has(self.replicas) || self.replicas < 5", "message": "too many", "fieldPath": ".replicas"}
STAYS = {
    "rule": "self.colour == oldSelf.colour",
    "messageExpression": "'was ' + oldSelf.colour",
    "reason": "FieldValueForbidden",
}


def test_a_definition_with_rules_is_taken_without_a_word(api: Api) -> None:
    assert api.post(CRDS, ruled(LOW)).warnings == []


def test_every_door_that_writes_asks_the_rules(api: Api) -> None:
    define(api, ruled(LOW))
    status = api.post(CIRCLES, circle(replicas=5), expect=422).json
    assert status["reason"] == "Invalid"
    assert status["message"] == 'Circle.shapes.example.com "a" is invalid: spec.replicas: Invalid value: too many'
    assert status["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: too many", "field": "spec.replicas"}
    ]
    api.post(f"{CIRCLES}?dryRun=All", circle(replicas=5), expect=422)
    made = api.post(CIRCLES, circle(replicas=4)).json
    api.put(f"{CIRCLES}/a", {**made, "spec": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a", {"spec": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a", [{"op": "replace", "path": "/spec/replicas", "value": 6}], JSON_PATCH, expect=422)
    api.patch(f"{CIRCLES}/a?fieldManager=me&force=true", circle(replicas=6), APPLY, expect=422)
    api.patch(f"{CIRCLES}/b?fieldManager=me", circle("b", replicas=6), APPLY, expect=422)
    api.patch(f"{CIRCLES}/a/scale", {"spec": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a/status", {"status": {"replicas": 100}}, expect=422)
    api.patch(f"{CIRCLES}/a/status", {"status": {"replicas": 99}})
    assert api.get(f"{CIRCLES}/a").json["spec"]["replicas"] == 4


def test_transition_rules_compare_with_what_is_stored(api: Api) -> None:
    define(api, ruled(STAYS))
    api.post(CIRCLES, circle(colour="red"))
    status = api.patch(f"{CIRCLES}/a", {"spec": {"colour": "blue"}}, expect=422).json
    assert status["message"].endswith("is invalid: spec: Forbidden: was red")
    api.patch(f"{CIRCLES}/a", {"spec": {"replicas": 2}})


def test_defaults_are_applied_before_rules_run(api: Api) -> None:
    define(api, ruled({"rule": "self.size == 7"}))
    api.post(CIRCLES, circle())
    api.post(CIRCLES, circle("b", size=8), expect=422)


def test_rules_of_the_whole_object_know_its_name(api: Api) -> None:
    define(api, ruled(root=[{"rule": "self.metadata.name.startsWith('a')", "message": "begins with a"}]))
    api.post(CIRCLES, circle("ab"))
    assert "<nil>: Invalid value: begins with a" in api.post(CIRCLES, circle("b"), expect=422).message


def test_an_object_that_broke_a_new_rule_may_change_elsewhere(api: Api) -> None:
    definition = define(api, ruled(parts={"type": "object", "properties": {"n": INTEGER}}))
    api.post(CIRCLES, circle(parts={"n": 9}, colour="red"))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["parts"][RULES] = [{"rule": "self.n < 5", "message": "small"}]
    api.put(f"{CRDS}/circles.shapes.example.com", definition)
    answer = api.patch(f"{CIRCLES}/a", {"spec": {"colour": "blue"}})
    assert "spec.parts: Invalid value: small" in answer.warnings
    refused = api.patch(f"{CIRCLES}/a", {"spec": {"parts": {"n": 8}}}, expect=422)
    assert "spec.parts: Invalid value: small" in refused.message


def test_an_object_of_wrong_form_is_told_that_rules_did_not_run(api: Api) -> None:
    define(api, ruled(LOW))
    message = api.post(CIRCLES, circle(replicas="x"), expect=422).message
    assert "<nil>: Invalid value: null: some validation rules were not checked because" in message
    assert "too many" not in message


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"rule": "self.colours == 'x'"}, "compilation failed: ERROR: <input>:1:5: undefined field 'colours'"),
        ({"rule": "self.colour"}, "cel expression must evaluate to a bool"),
        ({"rule": "self.colour"[:4]}, "cel expression must evaluate to a bool"),
        ({"rule": "true", "fieldPath": ".nowhere"}, "must be a valid path"),
        ({"rule": "true", "messageExpression": "1"}, "messageExpression must evaluate to a string"),
        ({"rule": "self.l.all(x, self.l.all(y, x == y))"}, "rule cost exceeds budget by factor of more than 100x"),
        ({"rule": "true", "reason": "Whim"}, 'Unsupported value: "Whim"'),
    ],
)
def test_unsound_rules_are_refused_with_the_definition(api: Api, rule: dict[str, Any], text: str) -> None:
    status = api.post(CRDS, ruled(rule, l={"type": "array", "items": INTEGER}), expect=422).json
    assert text in status["message"]
    assert f"spec.versions[0].schema.openAPIV3Schema.properties[spec].{RULES}[0]" in status["message"]


def test_a_definition_whose_schema_did_not_change_is_not_judged_again(api: Api) -> None:
    define(api, ruled(LOW))
    labels = {"metadata": {"labels": {"a": "b"}}, "spec": {"names": {"shortNames": ["ci"]}}}
    api.patch(f"{CRDS}/circles.shapes.example.com", labels)


# --- real definitions ---


BAD_ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: bad}
spec:
  rules:
  - matches: [{path: {type: PathPrefix, value: /a}}]
    filters:
    - type: RequestRedirect
      requestRedirect: {scheme: https}
    backendRefs: [{name: web, port: 80}]
"""


def test_the_gateway_api_is_served_with_its_rules(
    api: Api, shard: ShardProcess, tmp_path: Path, manifests: Path
) -> None:
    kubectl = Kubectl(tmp_path, shard.kubeconfig)
    server = ("--server", f"{shard.url}/clusters/{api.cluster}")
    told = kubectl.ok(*server, "apply", "--server-side", "-f", str(manifests / "gateway-api"))
    assert "httproutes.gateway.networking.k8s.io serverside-applied" in told
    kubectl.ok(*server, "wait", "--for=condition=Established", "crd", "--all")
    kubectl.ok(*server, "apply", "-f", str(manifests / "gateway-api/examples/basic-http.yaml"))
    refused = kubectl.run(*server, "apply", "-f", "-", stdin=BAD_ROUTE)
    assert refused.code != 0
    assert "RequestRedirect filter must not be used together with backendRefs" in refused.stderr


# --- long evaluations ---


@pytest.mark.long
def test_the_most_expensive_rules_hold_up_nobody(api: Api) -> None:
    items = {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 400}
    # Of the expressions within the static cost limit, this one takes the most time for its cost.
    loop = {"rule": "self.l.all(x, self.l.all(y, (x + y).matches('^[a-z]*$')))"}
    define(api, ruled(*[loop] * 10, l=items))
    done = threading.Event()
    answers: list[int] = []
    other = api.at(api.cluster)
    other.get(CIRCLES)
    body = circle(l=["ab"] * 160)

    def write() -> None:
        try:
            answers.append(other.post(CIRCLES, body, expect=0).code)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set():
        api.get("/api/v1/namespaces/default")
        reads += 1
    writer.join()
    other.close()
    assert answers == [201]
    # One loop serves both: a write that blocked it would leave time for only a few reads.
    assert reads > 40


def test_a_definition_with_many_rules_is_judged_beside_other_requests(api: Api) -> None:
    red = "!has(self.colour) || self.colour.matches('^[a-z]{1,9}$')"
    rules = ({"rule": f"{red} || self.size > {n}"} for n in range(300))
    define(api, ruled(*rules, colour={"type": "string", "maxLength": 9}))
    api.post(CIRCLES, circle(colour="red"))
    api.post(CIRCLES, circle("b", colour="RED", size=0), expect=422)


def test_rules_of_resource_schemas_are_judged_too(api: Api) -> None:
    definition = ruled(LOW)["spec"]
    schemas = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"

    def body(prefix: str, rule: str) -> dict[str, Any]:
        version = {**definition["versions"][0], "schema": definition["versions"][0]["schema"]["openAPIV3Schema"]}
        version["schema"]["properties"]["spec"][RULES] = [{"rule": rule}]
        spec = {key: definition[key] for key in ("group", "names", "scope")}
        return {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIResourceSchema",
            "metadata": {"name": f"{prefix}.circles.shapes.example.com"},
            "spec": {**spec, "versions": [version]},
        }

    api.post(schemas, body("v1", "self.size > 1"))
    assert "undefined field 'sizes'" in api.post(schemas, body("v2", "self.sizes > 1"), expect=403).message
