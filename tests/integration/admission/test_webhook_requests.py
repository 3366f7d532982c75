"""What webhooks are told of a write, which writes they are asked about, and what becomes of their patches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import APPLY, MERGE, Api, configmap, crd, define
from harness.clients.tenants import allow as grant
from harness.clients.tenants import bind, user
from harness.servers.stand_ins.admission import CONFIGMAPS, MAPS, AdmissionServer, allow, patched, register
from harness.servers.stand_ins.webhook import converted

Object = dict[str, Any]
GROUP = "shapes.example.com"
SQUARES = f"/apis/{GROUP}/v1/namespaces/default/squares"
EVERY = {**CONFIGMAPS, "operations": ["*"]}


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({"/seen": allow, "/other": allow}) as running:
        yield running


def squares(version: str) -> Object:
    return {"operations": ["*"], "apiGroups": [GROUP], "apiVersions": [version], "resources": ["squares"]}


def square(name: str, version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Square", "metadata": {"name": name}, **fields}


def two_versions(server: AdmissionServer) -> Object:
    """A definition of squares: v1 says `side: "3"`, v2 says `length: 3`; the server converts."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    client = {"url": f"{server.base}/convert", "caBundle": server.ca_bundle}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    return crd("squares", versions=versions, conversion={"strategy": "Webhook", "webhook": webhook})


def convert(obj: Object, api_version: str) -> Object:
    changed = {**obj, "apiVersion": api_version}
    if api_version.endswith("/v2") and "side" in obj:
        changed["length"] = int(changed.pop("side"))
    elif api_version.endswith("/v1") and "length" in obj:
        changed["side"] = str(changed.pop("length"))
    return changed


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_review_says_who_does_what_to_which_object(api: Api, server: AdmissionServer, version: str) -> None:
    bind(api, "system:kcp:workspace:access", user("alice"))
    grant(api, "writer", "alice", apiGroups=[""], resources=["configmaps"], verbs=["*"])
    webhook = server.webhook("/seen", EVERY, admissionReviewVersions=[version], timeoutSeconds=7)
    register(api, server, "Validating", webhook)
    server.calls.clear()
    alice = Api(api.shard, api.cluster, token="alice-token")
    made = alice.post(f"{MAPS}?fieldManager=me&dryRun=All", configmap("a", {"a": "1"})).json
    (call,) = server.calls
    assert call.path == "/seen?timeout=7s"
    assert call.body["apiVersion"] == f"admission.k8s.io/{version}"
    asked = call.body["request"]
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert asked["resource"] == asked["requestResource"] == resource
    assert asked["kind"] == asked["requestKind"] == kind
    assert (asked["name"], asked["namespace"], asked["operation"]) == ("a", "default", "CREATE")
    assert asked["userInfo"]["username"] == "alice"
    assert "team-a" in asked["userInfo"]["groups"]
    assert asked["dryRun"] is True
    options = {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "dryRun": ["All"], "fieldManager": "me"}
    assert asked["options"] == options
    assert asked["oldObject"] is None
    cluster = made["metadata"]["annotations"]["kcp.io/cluster"]
    assert asked["object"]["metadata"]["annotations"] == {"kcp.io/cluster": cluster}
    assert (asked["object"]["apiVersion"], asked["object"]["kind"], asked["object"]["data"]) == (
        "v1",
        "ConfigMap",
        {"a": "1"},
    )
    assert asked["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    alice.close()


def test_updates_show_both_objects_and_deletions_the_old_one(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Validating", server.webhook("/seen", EVERY))
    api.post(MAPS, configmap("a", {"a": "1"}))
    api.post(MAPS, configmap("b"))
    server.calls.clear()
    api.patch(f"{MAPS}/a", {"data": {"a": "2"}})
    api.send("PATCH", f"{MAPS}/a?fieldManager=me&force=true", configmap("a", {"a": "3"}), kind=APPLY, expect=200)
    api.get(f"{MAPS}/a")
    api.delete(f"{MAPS}/a")
    patched_, applied, deleted = server.requests("/seen")
    data = [(asked["oldObject"]["data"], asked["object"]["data"]) for asked in (patched_, applied)]
    assert data == [({"a": "1"}, {"a": "2"}), ({"a": "2"}, {"a": "3"})]
    assert {asked["operation"] for asked in (patched_, applied)} == {"UPDATE"}
    kinds = [asked["options"]["kind"] for asked in (patched_, applied, deleted)]
    assert kinds == ["UpdateOptions", "UpdateOptions", "DeleteOptions"], "a patch is an update to webhooks"
    assert (deleted["operation"], deleted["object"], deleted["oldObject"]["data"]) == ("DELETE", None, {"a": "3"})
    api.delete(MAPS)
    later = server.requests("/seen")[3:]
    deletions = [asked["name"] for asked in later if asked["operation"] == "DELETE"]
    assert sorted(deletions) == ["b", "kube-root-ca.crt"], "each object of the collection"


def test_a_generated_name_is_told_to_validating_webhooks_alone(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Mutating", server.webhook("/seen"), name="mutating")
    register(api, server, "Validating", server.webhook("/other"), name="validating")
    server.calls.clear()
    body = {"metadata": {"generateName": "made-"}}
    name = api.post(MAPS, body).json["metadata"]["name"]
    (mutating,), (validating,) = server.requests("/seen"), server.requests("/other")
    assert "name" not in mutating
    assert validating["name"] == validating["object"]["metadata"]["name"] == name


def test_a_webhook_for_another_version_sees_that_one_and_its_patch_comes_back(
    api: Api, server: AdmissionServer
) -> None:
    server.webhooks["/convert"] = lambda review: converted(review, convert)
    server.webhooks["/seen"] = lambda review: patched(review, {"op": "replace", "path": "/length", "value": 4})
    define(api, two_versions(server))
    register(api, server, "Mutating", server.webhook("/seen", squares("v2")), name="equivalent")
    exact = server.webhook("/other", squares("v2"), matchPolicy="Exact")
    register(api, server, "Mutating", exact, name="exact")
    made = api.post(SQUARES, square("a", side="3")).json
    (asked,) = server.requests("/seen")
    assert (asked["kind"]["version"], asked["resource"]["version"]) == ("v2", "v2")
    assert (asked["requestKind"]["version"], asked["requestResource"]["version"]) == ("v1", "v1")
    assert (asked["object"]["apiVersion"], asked["object"]["length"]) == (f"{GROUP}/v2", 3)
    assert (made["apiVersion"], made["side"], "length" in made) == (f"{GROUP}/v1", "4", False)
    assert server.requests("/other") == []
    api.post(SQUARES.replace("v1", "v2"), square("b", "v2", length=1))
    assert len(server.requests("/other")) == 1
    assert api.get(f"{SQUARES}/b").json["side"] == "4"


@pytest.mark.parametrize("path", [f"{SQUARES}/a", f"{SQUARES}?labelSelector=in%3Done"], ids=["one", "collection"])
def test_a_deletion_is_shown_in_the_version_of_the_rule(api: Api, server: AdmissionServer, path: str) -> None:
    server.webhooks["/convert"] = lambda review: converted(review, convert)
    define(api, two_versions(server))
    register(api, server, "Validating", server.webhook("/seen", {**squares("v2"), "operations": ["DELETE"]}))
    made = square("a", side="3")
    made["metadata"]["labels"] = {"in": "one"}
    for version in ("v1", "v2"):
        api.post(SQUARES, made)
        api.delete(path.replace("v1", version), expect=200)
    shown = [each["oldObject"] for each in server.requests("/seen")]
    assert [(each["apiVersion"], each["length"]) for each in shown] == [(f"{GROUP}/v2", 3)] * 2


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_a_scale_is_the_answer_also_behind_a_webhook(api: Api, server: AdmissionServer, kind: str) -> None:
    define(api, crd("squares"))
    api.post(SQUARES, square("a", spec={"replicas": 1}))
    register(api, server, kind, server.webhook("/seen", {**squares("*"), "resources": ["squares/scale"]}))
    scaled = api.patch(f"{SQUARES}/a/scale", {"spec": {"replicas": 2}}, MERGE).json
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 2})
    assert len(server.requests("/seen")) == 1


def test_a_webhook_is_asked_again_after_a_later_one_changed_the_object(api: Api, server: AdmissionServer) -> None:
    def sets(name: str) -> Any:
        return lambda review: patched(review, {"op": "add", "path": f"/data/{name}", "value": "yes"})

    server.webhooks.update({"/a": sets("a"), "/b": sets("b"), "/c": allow})
    again = [
        {**server.webhook("/a"), "reinvocationPolicy": "IfNeeded"},
        {**server.webhook("/b"), "reinvocationPolicy": "IfNeeded"},
        server.webhook("/c"),
    ]
    register(api, server, "Mutating", *again)
    server.calls.clear()
    api.post(MAPS, configmap("x", {"first": "1"}))
    counts = [len(server.requests(path)) for path in ("/a", "/b", "/c")]
    assert counts == [2, 1, 1], "the last to change the object is not asked again"
    assert server.requests("/a")[1]["object"]["data"] == {"first": "1", "a": "yes", "b": "yes"}


def test_selectors_look_at_the_namespace_the_object_itself_and_never_at_what_has_none(
    api: Api, server: AdmissionServer
) -> None:
    every = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    every["resources"] = ["configmaps", "namespaces"]
    roles = {"operations": ["CREATE"], "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["*"]}
    roles["resources"] = ["clusterroles"]
    webhook = server.webhook("/seen", every, roles, namespaceSelector={"matchLabels": {"watched": "yes"}})
    register(api, server, "Validating", webhook)
    for name, labels in (("watched", {"watched": "yes"}), ("other", {})):
        api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        api.post(MAPS.replace("default", name), configmap(f"in-{name}"))
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "role"}, "rules": []})
    names = [asked["name"] for asked in server.requests("/seen") if asked["userInfo"]["username"] == "kcp-admin"]
    assert names == ["watched", "in-watched", "role"]


def test_match_conditions_see_the_request_and_the_authorizer_and_fail_by_the_policy(
    api: Api, server: AdmissionServer
) -> None:
    def conditions(*expressions: str) -> list[Object]:
        return [{"name": f"c{index}", "expression": each} for index, each in enumerate(expressions)]

    allowed = "authorizer.group('').resource('secrets').check('delete').allowed()"
    named = conditions("request.name == 'a'", "oldObject == null", f"!({allowed})")
    register(api, server, "Validating", server.webhook("/seen", matchConditions=named), name="named")
    api.post(MAPS, configmap("a"))
    assert server.requests("/seen") == [], "kcp-admin may"
    bind(api, "system:kcp:workspace:access", user("alice"))
    grant(api, "writer", "alice", apiGroups=[""], resources=["configmaps"], verbs=["*"])
    alice = Api(api.shard, api.cluster, token="alice-token")
    api.delete(f"{MAPS}/a")
    alice.post(MAPS, configmap("b"))
    alice.post(MAPS, configmap("a"))
    assert [asked["name"] for asked in server.requests("/seen")] == ["a"]
    alice.close()
    broken = conditions("object.data.nothing == 'x'")
    ignored = server.webhook("/other", failurePolicy="Ignore", matchConditions=broken)
    register(api, server, "Validating", ignored, name="ignored")
    api.post(MAPS, configmap("c", {"a": "1"}))
    assert server.requests("/other") == []
    selector = {"matchLabels": {"strict": "yes"}}
    failing = server.webhook("/other", matchConditions=broken, objectSelector=selector)
    register(api, server, "Validating", failing, name="failing")
    refused = api.post(MAPS, configmap("d", {"a": "1"}, labels={"strict": "yes"}), expect=403)
    assert refused.message.startswith('configmaps "d" is forbidden: ')
    assert "no such key: nothing" in refused.message
    assert server.requests("/other") == []


def test_all_validating_webhooks_are_asked_at_once(api: Api, server: AdmissionServer) -> None:
    together = threading.Barrier(4, timeout=60)

    def meet(review: Object) -> Object:
        if review["request"]["name"] == "a":
            together.wait()
        return allow(review)

    server.webhooks.update({f"/v{index}": meet for index in range(4)})
    register(api, server, "Validating", *(server.webhook(f"/v{index}") for index in range(4)))
    api.post(MAPS, configmap("a"))
    assert not together.broken


def test_no_webhook_is_asked_about_access_and_token_reviews(api: Api, server: AdmissionServer) -> None:
    """As in Kubernetes 1.37, also with rules for everything."""
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}
    for kind in ("Mutating", "Validating"):
        register(api, server, kind, server.webhook("/seen", everything), name=kind.lower())
    wanted = {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default"}}
    api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": wanted}, expect=201)
    api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {**wanted, "user": "alice"}}, expect=201)
    api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "unknown"}}, expect=201)
    api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, expect=201)
    api.post(MAPS, configmap("a"), expect=201)
    requests = server.requests("/seen")
    assert [each["name"] for each in requests if each["name"] == "a"] == ["a", "a"]
    assert [each for each in requests if each["kind"]["kind"].endswith("Review")] == []
