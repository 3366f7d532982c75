"""ValidatingAdmissionPolicies on the wire: denials, messages, reasons, actions, variables, budgets, audit."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import APPLY, CRDS, JSON_PATCH, Api, configmap, crd, define, eventually
from harness.clients.loop_probe import LoopProbe
from harness.clients.policies import BINDINGS, MARK, POLICIES, Policies, binding, denial, policy, rule
from harness.oracles.audit_log import audit_events
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
#: How long nothing of the server may hold its event loop.
PROMISED_S = 0.1
COMPLETE, FAILURE = "ResponseComplete", "validation.policy.admission.k8s.io/validation_failure"


@pytest.fixture
def policies(api: Api) -> Policies:
    return Policies(api)


def circle(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, "spec": spec}


def test_a_denial_has_the_text_the_code_and_the_cause_of_kubernetes(api: Api, policies: Policies) -> None:
    policies.deny("p", {"expression": f"!{MARK}", "message": "no bad names"})
    status = api.post(CONFIGMAPS, configmap("bad"), expect=422).json
    text = denial("p", "no bad names")
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'configmaps "bad" is forbidden: {text}',
        "reason": "Invalid",
        "details": {"name": "bad", "kind": "configmaps", "causes": [{"message": text}]},
        "code": 422,
    }
    api.post(CONFIGMAPS, configmap("good"))


@pytest.mark.parametrize(
    ("reason", "code"), [("Forbidden", 403), ("Invalid", 422), ("Unauthorized", 401), ("RequestEntityTooLarge", 413)]
)
def test_the_reason_of_a_validation_decides_the_code(api: Api, policies: Policies, reason: str, code: int) -> None:
    policies.deny("p", {"expression": "false", "reason": reason})
    status = api.post(CONFIGMAPS, configmap("bad"), expect=code).json
    assert (status["reason"], status["details"]["kind"]) == (reason, "configmaps")
    assert status["message"].endswith(denial("p", "failed expression: false"))


def test_the_first_denial_of_several_policies_is_the_answer(api: Api, policies: Policies) -> None:
    policies.deny("b", "object.data.a == 'b'", {"expression": "false", "reason": "Forbidden"})
    policies.deny("a", "true", {"expression": "false", "messageExpression": "'it is ' + object.data.a"})
    status = api.post(f"{CONFIGMAPS}?fieldManager=x", configmap("x", {"a": "text"}), expect=422).json
    assert status["message"].endswith(denial("a", "it is text"))
    assert len(status["details"]["causes"]) == 1
    api.delete(f"{BINDINGS}/a")
    refused = api.post(f"{CONFIGMAPS}?fieldManager=x", configmap("x", {"a": "b"}), expect=403)
    assert refused.message.endswith(denial("b", "failed expression: false"))


def test_a_policy_without_a_binding_has_no_effect(api: Api, policies: Policies) -> None:
    api.post(POLICIES, policy("p", "false"))
    api.post(CONFIGMAPS, configmap("a"))
    api.post(BINDINGS, binding("b", "p"))
    api.post(CONFIGMAPS, configmap("b"), expect=422)
    api.patch(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "true"}]}})
    api.post(CONFIGMAPS, configmap("b"))
    api.post(BINDINGS, binding("of-none", "other"))
    api.post(CONFIGMAPS, configmap("c"))


def test_a_policy_is_of_its_own_workspace_alone(api: Api, provider: Api, policies: Policies) -> None:
    policies.deny("p", "false")
    provider.post(CONFIGMAPS, configmap("a"))
    api.post(CONFIGMAPS, configmap("a"), expect=422)


def test_every_door_that_writes_asks_the_policies(api: Api, policies: Policies) -> None:
    define(api, crd("circles"))
    api.post(CIRCLES, circle(replicas=1))
    rules = [rule("circles", "circles/*", group="shapes.example.com")]
    large = "(has(object.spec) && has(object.spec.replicas) && object.spec.replicas > 5) || "
    large += "(has(object.status) && has(object.status.replicas) && object.status.replicas > 5)"
    policies.deny("p", f"request.operation == 'DELETE' ? false : !({large})", rules=rules)
    api.post(CIRCLES, circle("b", replicas=6), expect=422)
    api.post(f"{CIRCLES}?dryRun=All", circle("b", replicas=6), expect=422)
    stored = api.get(f"{CIRCLES}/a").json
    api.put(f"{CIRCLES}/a", {**stored, "spec": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a", {"spec": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a", [{"op": "replace", "path": "/spec/replicas", "value": 6}], JSON_PATCH, expect=422)
    api.patch(f"{CIRCLES}/a?fieldManager=me&force=true", circle(replicas=6), APPLY, expect=422)
    api.patch(f"{CIRCLES}/b?fieldManager=me", circle("b", replicas=6), APPLY, expect=422)
    api.patch(f"{CIRCLES}/a/status", {"status": {"replicas": 6}}, expect=422)
    api.patch(f"{CIRCLES}/a/scale", {"spec": {"replicas": 6}}, expect=422)
    api.delete(f"{CIRCLES}/a", expect=422)
    api.delete(CIRCLES, expect=422)
    assert api.get(f"{CIRCLES}/a").json["spec"] == {**stored["spec"], "replicas": 1}


def test_large_objects_ask_the_policies_as_well(api: Api, policies: Policies) -> None:
    policies.deny("p", {"expression": "size(object.data.a) < 1000", "message": "large"})
    refused = api.post(CONFIGMAPS, configmap("a", {"a": "x" * 200_000}), expect=422)
    assert refused.message.endswith(denial("p", "large"))


def test_nothing_configured_acts_on_policies_and_bindings(api: Api, policies: Policies) -> None:
    policies.deny("p", "false", rules=[rule("*", group="*", version="*")])
    api.post(CONFIGMAPS, configmap("a"), expect=422)
    api.patch(f"{POLICIES}/p", {"metadata": {"labels": {"a": "b"}}})
    api.delete(f"{BINDINGS}/p")
    api.post(CONFIGMAPS, configmap("a"))


def test_no_policy_acts_on_access_and_token_reviews(api: Api, policies: Policies) -> None:
    """Kubernetes leaves them out, too: a policy that refused them would lock everybody out."""
    everything = rule("*/*", group="*", version="*", scope="*")
    policies.deny("p", "false", rules=[everything])
    wanted = {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default"}}
    found = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": wanted}, expect=201)
    assert found.json["status"]["allowed"]
    api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "unknown"}}, expect=201)
    api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, expect=201)
    api.post(CONFIGMAPS, configmap("a"), expect=422)


def test_expressions_see_the_request_the_namespace_and_the_old_object(api: Api, policies: Policies) -> None:
    api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "blue"}}})
    seen = [
        "request.kind.kind + '/' + request.resource.resource + '/' + request.requestKind.version",
        "request.name + '/' + request.namespace + '/' + request.operation + '/' + string(request.dryRun)",
        "request.userInfo.username + '/' + string('system:authenticated' in request.userInfo.groups)",
        "request.options.kind + '/' + request.options.fieldManager",
        "namespaceObject.metadata.name + '/' + namespaceObject.metadata.labels.team",
        "string(has(request.subResource)) + '/' + (oldObject == null ? 'none' : oldObject.data.a)",
    ]
    expression = " + ' ' + ".join(seen)
    policies.deny("p", {"expression": "object == null || object.data.a != 'bad'", "messageExpression": expression})
    body = configmap("a", {"a": "bad"})
    text = "ConfigMap/configmaps/v1 a/default/CREATE/true kcp-admin/true CreateOptions/me default/blue false/none"
    refused = api.post(f"{CONFIGMAPS}?dryRun=All&fieldManager=me", body, expect=422)
    assert refused.message.endswith(denial("p", text))
    api.post(CONFIGMAPS, configmap("a", {"a": "good"}))
    refused = api.send(
        "PATCH", f"{CONFIGMAPS}/a?fieldManager=me", {"data": {"a": "bad"}}, kind="application/merge-patch+json"
    )
    text = text.replace("CREATE/true", "UPDATE/false").replace("CreateOptions", "UpdateOptions")
    assert refused.message.endswith(denial("p", text.replace("false/none", "false/good")))


def test_a_generated_name_is_known_to_the_policy(api: Api, policies: Policies) -> None:
    policies.deny("p", {"expression": "request.name != object.metadata.name", "messageExpression": "request.name"})
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    refused = api.post(CONFIGMAPS, body, expect=422)
    name = refused.json["details"]["name"]
    assert name.startswith("made-")
    assert len(name) == 10
    assert refused.message == f'configmaps "{name}" is forbidden: {denial("p", name)}'


def test_the_authorizer_answers_for_the_user_of_the_request(api: Api, policies: Policies) -> None:
    may = "authorizer.group('').resource('configmaps').namespace('default').check('{}').allowed()"
    policies.deny("p", f"{may.format('create')} && authorizer.requestResource.check('create').allowed()")
    policies.deny("q", f"!{may.format('delete')} || object.metadata.name != 'bad'")
    api.post(CONFIGMAPS, configmap("a"))
    api.post(CONFIGMAPS, configmap("bad"), expect=422)


def test_variables_are_shared_by_expressions_and_conditions(api: Api, policies: Policies) -> None:
    variables = [
        {"name": "size", "expression": "has(object.data) ? size(object.data) : 0"},
        {"name": "large", "expression": "variables.size > 1"},
        {"name": "broken", "expression": "object.metadata.absent"},
    ]
    policies.deny(
        "p",
        {"expression": "!variables.large", "messageExpression": "'has ' + string(variables.size)"},
        variables=variables,
    )
    api.post(CONFIGMAPS, configmap("a", {"a": "1"}))
    refused = api.post(CONFIGMAPS, configmap("b", {"a": "1", "b": "2"}), expect=422)
    assert refused.message.endswith(denial("p", "has 2"))


def test_match_conditions_select_and_their_errors_follow_the_failure_policy(api: Api, policies: Policies) -> None:
    conditions = [{"name": "marked", "expression": MARK}, {"name": "data", "expression": "object.data.on == 'yes'"}]
    policies.deny("p", "false", matchConditions=conditions)
    api.post(CONFIGMAPS, configmap("good"))
    refused = api.post(CONFIGMAPS, configmap("bad"), expect=422)
    error = "expression 'object.data.on == 'yes'' resulted in error: no such key: on"
    assert refused.message.endswith(denial("p", error))
    api.post(CONFIGMAPS, configmap("bad-but-off", {"on": "no"}))
    api.patch(f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
    api.post(CONFIGMAPS, configmap("bad"))


def test_an_error_denies_under_fail_and_not_under_ignore(api: Api, policies: Policies) -> None:
    policies.deny("p", "object.data.a == 'b'")
    refused = api.post(CONFIGMAPS, configmap("a"), expect=422)
    error = "expression 'object.data.a == 'b'' resulted in error: no such key: a"
    assert refused.message.endswith(denial("p", error))
    api.patch(f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
    api.post(CONFIGMAPS, configmap("a"))
    api.post(CONFIGMAPS, configmap("b", {"a": "c"}), expect=422)


@pytest.mark.long
def test_a_policy_at_its_budget_is_stopped_and_holds_nobody(api: Api, shard: ShardProcess, policies: Policies) -> None:
    many = "object.data.map(k, k).all(x, object.data.map(k, k).all(y, object.data[x] != y))"
    costly = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "costly"}}}
    policies.deny("p", *[many] * 30, match=costly)
    api.post("/api/v1/namespaces", {"metadata": {"name": "costly"}})
    body = configmap("a", {f"key-{number:03}": "x" for number in range(300)})

    def refuse() -> str:
        with contextlib.closing(api.at(api.cluster)) as mine:
            return mine.post(CONFIGMAPS.replace("default", "costly"), body, expect=422).message

    with ThreadPoolExecutor(2) as pool, LoopProbe(api, shard.pid) as probe:
        refused, written = [pool.submit(refuse) for _ in range(3)], 0
        while not all(each.done() for each in refused):
            api.post(CONFIGMAPS, configmap(f"hot-{written}"))
            written += 1
    for each in refused:
        assert "running out of cost budget" in each.result() or "cost limit exceeded" in each.result()
    assert written > len(refused)
    assert probe.worst_s < 4 * PROMISED_S


@pytest.mark.long
def test_a_long_policy_is_compiled_beside_the_loop(api: Api, policies: Policies) -> None:
    long = " && ".join(f"object.data.a != 'value-{number}'" for number in range(500))
    policies.deny("p", *[long] * 5)
    api.post(CONFIGMAPS, configmap("a", {"a": "good"}))
    api.post(CONFIGMAPS, configmap("b", {"a": "value-400"}), expect=422)


@pytest.mark.long
def test_a_long_policy_does_not_hold_what_controllers_write_in_batches(api: Api, policies: Policies) -> None:
    rules = [rule("customresourcedefinitions/status", group="apiextensions.k8s.io")]
    long = " && ".join(f"object.metadata.name != 'name-{number}'" for number in range(500))
    policies.deny("p", *[long] * 5, rules=rules)
    define(api, crd("circles"))
    api.post(CIRCLES, circle())


def test_warn_and_audit_let_the_request_pass(api: Api, policies: Policies, audit_path: Path) -> None:
    policies.add(
        policy("p", {"expression": "object.metadata.name != 'x'", "message": "a < b"}, "true"),
        binding("b", "p", "Warn", "Audit"),
    )
    answer = api.post(f"{CONFIGMAPS}?fieldManager=x", configmap("x"))
    assert answer.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': a < b"]
    (annotations,) = audited(api, audit_path, "x")
    assert annotations[FAILURE] == (
        '[{"message":"a \\u003c b","policy":"p","binding":"b","expressionIndex":0,'
        '"validationActions":["Warn","Audit"]}]'
    )
    assert not api.post(CONFIGMAPS, configmap("y")).warnings


def test_deny_and_audit_are_combined(api: Api, policies: Policies, audit_path: Path) -> None:
    policies.add(policy("p", "object.metadata.name != 'z'"), binding("b", "p", "Deny", "Audit"))
    api.post(f"{CONFIGMAPS}?fieldManager=z", configmap("z"), expect=422)
    (annotations,) = audited(api, audit_path, "z")
    assert json.loads(annotations[FAILURE])[0]["validationActions"] == ["Deny", "Audit"]


def test_audit_annotations_are_written_for_every_request(api: Api, policies: Policies, audit_path: Path) -> None:
    annotations = [
        {"key": "name", "valueExpression": "'made ' + object.metadata.name"},
        {"key": "none", "valueExpression": "object.metadata.name == 'w' ? '' : 'text'"},
        {"key": "long", "valueExpression": "string(object.data.a) + object.data.a"},
    ]
    body = policy("p", auditAnnotations=annotations)
    policies.add(body, binding("b", "p", "Audit"), binding("c", "p", "Audit"))
    api.post(f"{CONFIGMAPS}?fieldManager=w", configmap("w", {"a": "x" * 6000}))
    (found,) = audited(api, audit_path, "w")
    assert found["p/name"] == "made w" and "p/none" not in found
    assert found["p/long"] == "x" * 10240
    refused = api.post(f"{CONFIGMAPS}?fieldManager=v", configmap("v"), expect=422)
    assert "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression" in refused.message


def audited(api: Api, path: Path, manager: str) -> list[dict[str, str]]:
    """The annotations of the audit events of creations of ConfigMaps by a field manager."""

    def find() -> list[dict[str, str]]:
        lines = audit_events(path)
        wanted = f"/clusters/{api.cluster}{CONFIGMAPS}?fieldManager={manager}"
        return [line["annotations"] for line in lines if line["requestURI"] == wanted and line["stage"] == COMPLETE]

    return list(eventually(find))


def test_the_checks_of_policies_are_in_the_metrics(api: Api, policies: Policies, admin: Api) -> None:
    policies.add(policy("metered", "object.metadata.name != 'bad'"), binding("tight", "metered"))
    api.post(CONFIGMAPS, configmap("good"))
    api.post(CONFIGMAPS, configmap("bad"), expect=422)
    metrics = Api(api.shard).get("/metrics").body.decode()
    labels = 'enforcement_action="deny",error_type="invalid_error",policy="metered",policy_binding="tight"'
    assert f"apiserver_validating_admission_policy_check_total{{{labels}}} 1.0" in metrics
    assert f"apiserver_validating_admission_policy_check_duration_seconds_count{{{labels}}} 1.0" in metrics


def test_an_unknown_field_of_a_definition_is_denied_by_its_policy(api: Api, policies: Policies) -> None:
    policies.deny(
        "p",
        {"expression": "object.spec.group != 'shapes.example.com'", "message": "no shapes"},
        rules=[rule("customresourcedefinitions", group="apiextensions.k8s.io")],
    )
    assert api.post(CRDS, crd("circles"), expect=422).message.endswith(denial("p", "no shapes"))
