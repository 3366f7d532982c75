"""What Kubernetes' conformance tests of admission webhooks assert, one test for each, with a server on this machine.

Where theirs use pods most of these use ConfigMaps and custom kinds: what is denied, mutated and defaulted is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import CRDS, JSON_PATCH, STRATEGIC, Api, configmap, crd, define, eventually, workspace_under
from harness.servers.stand_ins.admission import (
    CONFIGMAPS,
    GROUP,
    IN_FORCE_S,
    MAPS,
    AdmissionServer,
    allow,
    answer,
    configuration,
    configurations,
    deny,
    patched,
    register,
)

Object = dict[str, Any]
KINDS = ("Validating", "Mutating")
UNWANTED = {"webhook-e2e-test": "webhook-disallow"}
STARTED = {"mutation-start": "yes"}
PODS = "/api/v1/namespaces/default/pods"
PATH = "/apis/shapes.example.com/v1/namespaces/default/squares"


def deny_unwanted(review: Object) -> Object:
    """Denies what has unwanted data, and deletions of what is not to be deleted; hangs where told so."""
    request = review["request"]
    data = ((request["object"] or request["oldObject"]).get("data") or {}).get("webhook-e2e-test")
    if data == "wait-forever":
        threading.Event().wait(8)
    if request["operation"] == "DELETE" and data == "webhook-nondeletable":
        text = "the custom resource cannot be deleted because it contains unwanted key and value"
        return answer(review, allowed=False, status={"reason": text})
    if request["operation"] != "DELETE" and data == "webhook-disallow":
        return answer(review, allowed=False, status={"reason": "the object contains unwanted key and value"})
    return allow(review)


def stages(review: Object) -> Object:
    """Adds the first stage where the start is there, and the second where the first is."""
    data = review["request"]["object"].get("data") or {}
    operations = [
        {"op": "add", "path": f"/data/{added}", "value": "yes"}
        for found, added in (("mutation-start", "mutation-stage-1"), ("mutation-stage-1", "mutation-stage-2"))
        if data.get(found) == "yes"
    ]
    return patched(review, *operations) if operations else allow(review)


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    delay = threading.Event()

    def slow(review: Object) -> Object:
        delay.wait(2)
        return allow(review)

    webhooks = {
        "/deny": deny_unwanted,
        "/stage-1": stages,
        "/stage-2": stages,
        "/slow": slow,
        "/first-container": lambda review: patched(
            review, {"op": "add", "path": "/spec/initContainers", "value": [{"name": "first", "image": "first:1"}]}
        ),
        "/never": deny("this webhook denies all requests"),
        "/label": lambda review: patched(review, {"op": "add", "path": "/metadata/labels", "value": {"added": "yes"}}),
    }
    with AdmissionServer(webhooks) as running:
        yield running
        delay.set()


def squares(*operations: str, resource: str = "squares") -> Object:
    return {
        "operations": list(operations) or ["CREATE", "UPDATE"],
        "apiGroups": ["shapes.example.com"],
        "apiVersions": ["*"],
        "resources": [resource],
    }


def square(name: str, version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": f"shapes.example.com/{version}", "kind": "Square", "metadata": {"name": name}, **fields}


def two_versions(storage: str = "v1", schema: Object | None = None) -> Object:
    """A definition of squares that keeps unknown fields, unless there is a schema for them."""
    opened = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return crd(
        "squares",
        versions=[
            {"name": name, "served": True, "storage": name == storage, "schema": {"openAPIV3Schema": opened}}
            for name in ("v1", "v2")
        ],
    )


def denied(api: Api, body: Object, path: str = MAPS) -> bool:
    """Whether a ConfigMap is denied; one that is not is deleted again."""
    found = api.send("POST", path, body)
    if found.code == 201:
        api.delete(f"{path}/{body['metadata']['name']}")
    else:
        assert "denied" in found.message
    return found.code != 201


def created(api: Api, body: Object, path: str = MAPS) -> Object:
    """What a create makes of the data; the object is deleted again."""
    found = api.post(path, body).json
    api.delete(f"{path}/{body['metadata']['name']}")
    return dict(found.get("data") or {})


def test_discovery_lists_the_configurations(api: Api) -> None:
    (group,) = [each for each in api.get("/apis").json["groups"] if each["name"] == "admissionregistration.k8s.io"]
    assert "v1" in [version["version"] for version in group["versions"]]
    (version,) = [each for each in api.get(GROUP.rpartition("/")[0]).json["versions"] if each["version"] == "v1"]
    assert version["groupVersion"] == "admissionregistration.k8s.io/v1"
    names = {resource["name"] for resource in api.get(GROUP).json["resources"]}
    assert {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} <= names


def test_objects_are_denied_on_creation_and_update_but_not_in_a_namespace_left_out(
    api: Api, server: AdmissionServer
) -> None:
    rule = {**CONFIGMAPS, "operations": ["CREATE", "UPDATE"]}
    left_out = {"matchExpressions": [{"key": "skip-webhook-admission", "operator": "NotIn", "values": ["yes"]}]}
    deny_webhook = server.webhook("/deny", rule, namespaceSelector=left_out, timeoutSeconds=1)
    open_webhook = server.webhook("/open", failurePolicy="Ignore")
    open_webhook["clientConfig"].pop("caBundle")
    register(api, server, "Validating", deny_webhook, open_webhook)
    refused = api.post(MAPS, configmap("a", UNWANTED), expect=400)
    expected = 'admission webhook "deny.example.com" denied the request: the object contains unwanted key and value'
    assert refused.message == expected
    hanging = api.post(MAPS, configmap("hang", {"webhook-e2e-test": "wait-forever"}), expect=500)
    assert "webhook" in hanging.message
    assert "deadline" in hanging.message
    api.get(f"{MAPS}/hang", expect=404)
    admitted = api.post(MAPS, configmap("b", {"admit": "this"})).json
    changed = {**admitted, "data": {**admitted["data"], **UNWANTED}}
    assert api.put(f"{MAPS}/b", changed, expect=400).message == expected
    assert api.patch(f"{MAPS}/b", {"data": UNWANTED}, STRATEGIC, expect=400).message == expected
    labels = {"skip-webhook-admission": "yes"}
    api.post("/api/v1/namespaces", {"metadata": {"name": "skipped", "labels": labels}})
    api.post(MAPS.replace("default", "skipped"), configmap("a", UNWANTED))


def test_pods_are_denied_and_mutated_before_their_defaults(admin: Api, server: AdmissionServer) -> None:
    here = admin.at(workspace_under(admin, type_="kubernetes"))
    pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    unwanted = {"matchLabels": {"unwanted": "yes"}}
    register(here, server, "Validating", server.webhook("/never", pods, objectSelector=unwanted), name="never")
    register(here, server, "Mutating", server.webhook("/first-container", pods), name="first")
    refused = here.post(PODS, pod("a", unwanted="yes"), expect=400)
    assert (
        refused.message == 'admission webhook "never.example.com" denied the request: this webhook denies all requests'
    )
    made = here.post(PODS, pod("b")).json
    (added,) = made["spec"]["initContainers"]
    assert (added["name"], added["terminationMessagePolicy"], added["imagePullPolicy"]) == (
        "first",
        "File",
        "IfNotPresent",
    )
    here.close()


def pod(name: str, **labels: str) -> Object:
    spec = {"containers": [{"name": "main", "image": "main:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def test_a_subresource_is_denied_where_a_rule_lists_it(api: Api, server: AdmissionServer) -> None:
    define(api, crd("squares"))
    api.post(PATH, square("a", spec={"replicas": 1}))
    denies_scale = server.webhook("/never", squares("*", resource="squares/scale"))
    register(api, server, "Validating", denies_scale)
    refused = api.patch(f"{PATH}/a/scale", {"spec": {"replicas": 2}}, expect=400)
    assert refused.message.endswith("denied the request: this webhook denies all requests")
    (asked,) = server.requests("/never")
    assert (asked["subResource"], asked["requestSubResource"], asked["object"]["kind"]) == ("scale", "scale", "Scale")
    api.patch(f"{PATH}/a", {"spec": {"replicas": 2}})


def test_a_custom_object_is_denied_on_creation_update_and_deletion(api: Api, server: AdmissionServer) -> None:
    define(api, two_versions())
    register(api, server, "Validating", server.webhook("/deny", squares("CREATE", "UPDATE", "DELETE")))
    assert "unwanted key and value" in api.post(PATH, square("a", data=UNWANTED), expect=400).message
    api.post(PATH, square("b", data={"webhook-e2e-test": "webhook-nondeletable"}))
    refused = api.patch(f"{PATH}/b", {"data": UNWANTED}, expect=400)
    assert "unwanted key and value" in refused.message
    assert "cannot be deleted because it contains unwanted" in api.delete(f"{PATH}/b", expect=400).message
    api.patch(f"{PATH}/b", {"data": {"webhook-e2e-test": "webhook-allow"}})
    api.delete(f"{PATH}/b")


def test_a_webhook_that_cannot_be_called_and_fails_closed_refuses_everything(api: Api, server: AdmissionServer) -> None:
    closed = server.webhook("/allow", failurePolicy="Fail")
    closed["clientConfig"].pop("caBundle")
    register(api, server, "Validating", server.webhook("/deny"), name="ready")
    api.post(configurations("Validating"), configuration("Validating", "closed", closed))
    eventually(lambda: api.send("POST", f"{MAPS}?dryRun=All", configmap("foo")).code == 500, "in force", IN_FORCE_S)
    refused = api.post(MAPS, configmap("foo"), expect=500)
    assert refused.json["reason"] == "InternalError"
    api.get(f"{MAPS}/foo", expect=404)


def test_two_webhooks_mutate_one_after_the_other(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Mutating", server.webhook("/stage-1"), server.webhook("/stage-2"))
    found = created(api, configmap("a", STARTED))
    assert found == {**STARTED, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}


def test_defaults_are_set_in_what_a_webhook_adds(api: Api, server: AdmissionServer) -> None:
    part = {"type": "object", "properties": {"size": {"type": "integer", "default": 7}, "colour": {"type": "string"}}}
    schema = {"type": "object", "properties": {"parts": {"type": "array", "items": part}}}
    define(api, two_versions(schema=schema))
    added = {"op": "add", "path": "/parts", "value": [{"colour": "red"}]}
    server.webhooks["/add"] = lambda review: patched(review, added)
    register(api, server, "Mutating", server.webhook("/add", squares("CREATE")))
    assert api.post(PATH, square("a")).json["parts"] == [{"colour": "red", "size": 7}]


def test_webhooks_neither_mutate_configurations_nor_prevent_their_deletion(api: Api, server: AdmissionServer) -> None:
    rule = {
        "operations": ["*"],
        "apiGroups": ["admissionregistration.k8s.io"],
        "apiVersions": ["*"],
        "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
    }
    register(api, server, "Validating", server.webhook("/never", rule), name="blocking")
    register(api, server, "Mutating", server.webhook("/label", rule), name="labelling")
    for kind in KINDS:
        stored = register(api, server, kind, server.webhook("/deny"), name=f"dummy-{kind.lower()}")
        assert "labels" not in stored["metadata"]
        api.delete(f"{configurations(kind)}/{stored['metadata']['name']}")
    assert server.requests("/never") == server.requests("/label") == []


def test_a_custom_object_is_mutated(api: Api, server: AdmissionServer) -> None:
    define(api, two_versions())
    rules = squares("CREATE", "UPDATE")
    register(api, server, "Mutating", server.webhook("/stage-1", rules), server.webhook("/stage-2", rules))
    found = created(api, square("a", data=STARTED), PATH)
    assert found == {**STARTED, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}


def test_the_creation_of_a_definition_is_denied(api: Api, server: AdmissionServer) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["apiextensions.k8s.io"],
        "apiVersions": ["*"],
        "resources": ["customresourcedefinitions"],
    }
    server.webhooks["/crd"] = deny("the crd contains unwanted label")
    selector = {"matchLabels": {"webhook-e2e-test": "webhook-disallow"}}
    register(api, server, "Validating", server.webhook("/crd", rule, objectSelector=selector))
    body = crd("squares")
    body["metadata"]["labels"] = UNWANTED
    assert "the crd contains unwanted label" in api.post(CRDS, body, expect=400).message
    api.get(f"{CRDS}/squares.shapes.example.com", expect=404)


def test_a_custom_object_is_mutated_after_another_version_is_stored(api: Api, server: AdmissionServer) -> None:
    define(api, two_versions("v1"))
    rules = squares("CREATE", "UPDATE")
    stage_2 = server.webhook("/stage-2", squares("CREATE"))
    register(api, server, "Mutating", server.webhook("/stage-1", rules), stage_2)
    api.post(PATH, square("a", data=STARTED))
    api.patch(f"{CRDS}/squares.shapes.example.com", {"spec": {"versions": two_versions("v2")["spec"]["versions"]}})
    patch = [{"op": "add", "path": "/dummy", "value": "test"}]
    found = api.patch(PATH.replace("v1", "v2") + "/a", patch, JSON_PATCH).json
    assert found["data"] == {**STARTED, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
    assert found["dummy"] == "test"


def test_what_the_schema_does_not_name_is_pruned_from_a_mutation(api: Api, server: AdmissionServer) -> None:
    text = {"type": "string"}
    data = {"type": "object", "properties": {"mutation-start": text, "mutation-stage-1": text}}
    define(api, two_versions(schema={"type": "object", "properties": {"data": data}}))
    rules = squares("CREATE", "UPDATE")
    register(api, server, "Mutating", server.webhook("/stage-1", rules), server.webhook("/stage-2", rules))
    assert created(api, square("a", data=STARTED), PATH) == {**STARTED, "mutation-stage-1": "yes"}


@pytest.mark.long
def test_the_timeout_is_honoured(api: Api, server: AdmissionServer) -> None:
    settings: list[Object] = [
        {"timeoutSeconds": 1, "failurePolicy": "Fail"},
        {"timeoutSeconds": 1, "failurePolicy": "Ignore"},
        {"timeoutSeconds": 10, "failurePolicy": "Fail"},
        {"failurePolicy": "Fail"},
    ]
    for index, setting in enumerate(settings):
        register(api, server, "Validating", server.webhook("/slow", **setting), name=f"slow-{index}")
        if index == 0:
            refused = api.post(MAPS, configmap("slow"), expect=500)
            assert f'Post "{server.base}/slow?timeout=1s": context deadline exceeded' in refused.message
            api.get(f"{MAPS}/slow", expect=404)
        else:
            assert created(api, configmap("slow")) == {}
        api.delete(f"{configurations('Validating')}/slow-{index}")
    assert server.calls[-1].path == "/slow?timeout=10s", "the default"


def rules_of(api: Api, kind: str, operations: list[str]) -> None:
    """Set the operations of the first webhook, by PUT and by PATCH in turn."""
    path = f"{configurations(kind)}/hooks"
    stored = api.get(path).json
    if operations == ["UPDATE"]:
        stored["webhooks"][0]["rules"][0]["operations"] = operations
        api.put(path, stored)
        return
    patch = [{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": operations}]
    found = api.patch(path, patch, JSON_PATCH).json
    assert int(found["metadata"]["resourceVersion"]) > int(stored["metadata"]["resourceVersion"])


def test_an_updated_and_patched_validating_configuration_acts_as_it_says(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Validating", server.webhook("/deny"))
    unwanted = configmap("a", UNWANTED)
    eventually(lambda: denied(api, unwanted), "denied", IN_FORCE_S)
    rules_of(api, "Validating", ["UPDATE"])
    eventually(lambda: not denied(api, unwanted), "allowed", IN_FORCE_S)
    rules_of(api, "Validating", ["CREATE"])
    eventually(lambda: denied(api, unwanted), "denied again", IN_FORCE_S)


def test_an_updated_and_patched_mutating_configuration_acts_as_it_says(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Mutating", server.webhook("/stage-1"))
    started = configmap("a", STARTED)
    rules_of(api, "Mutating", ["UPDATE"])
    eventually(lambda: created(api, started) == STARTED, "not mutated", IN_FORCE_S)
    rules_of(api, "Mutating", ["CREATE"])
    eventually(lambda: "mutation-stage-1" in created(api, started), "mutated", IN_FORCE_S)


def listed_and_deleted(api: Api, server: AdmissionServer, kind: str, webhook: Object) -> Iterator[None]:
    """Make ten labelled configurations and list them; then delete them as a collection."""
    for index in range(10):
        register(api, server, kind, webhook, name=f"list-{index}", labels={"e2e-list-test": "yes"})
    path = f"{configurations(kind)}?labelSelector=e2e-list-test%3Dyes"
    assert len(api.get(path).json["items"]) == 10
    yield
    api.delete(path)
    assert api.get(path).json["items"] == []
    yield


def test_validating_configurations_are_listed_and_deleted_together(api: Api, server: AdmissionServer) -> None:
    steps = listed_and_deleted(api, server, "Validating", server.webhook("/deny"))
    next(steps)
    eventually(lambda: denied(api, configmap("a", UNWANTED)), "denied", IN_FORCE_S)
    next(steps)
    eventually(lambda: not denied(api, configmap("a", UNWANTED)), "allowed", IN_FORCE_S)


def test_mutating_configurations_are_listed_and_deleted_together(api: Api, server: AdmissionServer) -> None:
    steps = listed_and_deleted(api, server, "Mutating", server.webhook("/stage-1"))
    next(steps)
    eventually(lambda: "mutation-stage-1" in created(api, configmap("a", STARTED)), "mutated", IN_FORCE_S)
    next(steps)
    eventually(lambda: created(api, configmap("a", STARTED)) == STARTED, "not mutated", IN_FORCE_S)


@pytest.mark.parametrize("kind", KINDS)
def test_match_conditions_are_stored_and_updated(api: Api, server: AdmissionServer, kind: str) -> None:
    production = {"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}
    staging = {"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}
    path = f"{configurations(kind)}/hooks"
    api.post(configurations(kind), configuration(kind, "hooks", server.webhook("/never", matchConditions=[production])))
    stored = api.get(path).json
    assert stored["webhooks"][0]["matchConditions"] == [production]
    stored["webhooks"][0]["matchConditions"] = [production, staging]
    api.put(path, stored)
    assert api.get(path).json["webhooks"][0]["matchConditions"] == [production, staging]


@pytest.mark.parametrize("kind", KINDS)
def test_match_conditions_that_do_not_compile_are_refused(api: Api, server: AdmissionServer, kind: str) -> None:
    bad = {"name": "invalid-expression-1", "expression": "... [] bad expression"}
    body = configuration(kind, "hooks", server.webhook("/never", matchConditions=[bad]))
    assert "compilation failed" in api.post(configurations(kind), body, expect=422).message


def test_everything_is_mutated_but_what_a_match_condition_leaves_out(api: Api, server: AdmissionServer) -> None:
    condition = {"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}
    register(api, server, "Mutating", server.webhook("/stage-1", matchConditions=[condition]))
    assert created(api, configmap("other", STARTED)) == {**STARTED, "mutation-stage-1": "yes"}
    assert created(api, configmap("skip-me", STARTED)) == STARTED
