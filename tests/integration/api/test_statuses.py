"""Exact Status errors: clients use reason and code, people read the message."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import CRDS, JSON_PATCH, MERGE, STRATEGIC, YAML, Api, configmap, crd, define

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def failure(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """The whole Status that is expected."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def test_a_missing_object_is_named_by_its_resource(api: Api) -> None:
    assert api.get(f"{CONFIGMAPS}/a", expect=404).json == failure(
        404, "NotFound", 'configmaps "a" not found', name="a", kind="configmaps"
    )
    assert api.get(f"{ROLES}/a", expect=404).json == failure(
        404,
        "NotFound",
        'clusterroles.rbac.authorization.k8s.io "a" not found',
        name="a",
        group="rbac.authorization.k8s.io",
        kind="clusterroles",
    )


def test_creating_what_is_there_is_a_409(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    assert api.post(CONFIGMAPS, configmap("a"), expect=409).json == failure(
        409, "AlreadyExists", 'configmaps "a" already exists', name="a", kind="configmaps"
    )


def test_creating_what_is_being_deleted_says_so(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", finalizers=["example.com/hold"]))
    api.delete(f"{CONFIGMAPS}/a")
    message = 'object is being deleted: configmaps "a" already exists'
    assert api.post(CONFIGMAPS, configmap("a"), expect=409).message == message


def test_a_stale_update_is_a_conflict(api: Api) -> None:
    old = api.post(CONFIGMAPS, configmap("a")).json
    api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "1"}})
    message = (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )
    assert api.put(f"{CONFIGMAPS}/a", {**old, "data": {"k": "2"}}, expect=409).json == failure(
        409, "Conflict", message, name="a", kind="configmaps"
    )


def test_a_wrong_uid_is_a_failed_precondition(api: Api) -> None:
    uid = api.post(CONFIGMAPS, configmap("a")).json["metadata"]["uid"]
    answer = api.put(f"{CONFIGMAPS}/a", configmap("a", uid="other"), expect=409)
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": Precondition failed: UID in precondition: other, '
        f"UID in object meta: {uid}"
    )


def test_invalid_objects_name_the_kind_and_every_field(api: Api) -> None:
    status = api.post(CONFIGMAPS, configmap("A_b", {"x y": "1"}), expect=422).json
    assert (status["reason"], status["details"]["kind"], status["details"]["name"]) == ("Invalid", "ConfigMap", "A_b")
    causes = status["details"]["causes"]
    assert [(cause["field"], cause["reason"]) for cause in causes] == [
        ("metadata.name", "FieldValueInvalid"),
        ("data[x y]", "FieldValueInvalid"),
    ]
    assert status["message"].startswith('ConfigMap "A_b" is invalid: [metadata.name: Invalid value: "A_b": a lowercase')
    assert causes[0]["message"].startswith('Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of')


def test_custom_objects_are_judged_in_the_words_of_the_schema(api: Api) -> None:
    definition = crd("circles")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["required"] = ["colour"]
    schema["properties"]["colour"]["enum"] = ["red", "green"]
    schema["properties"]["replicas"]["maximum"] = 10
    schema["properties"]["deep"] = {"type": "string", "pattern": "^a$", "maxLength": 3}
    define(api, definition)
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"

    def refused(spec: dict[str, Any]) -> list[tuple[str, str]]:
        body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}, "spec": spec}
        status = api.post(path, body, expect=422).json
        assert status["details"]["group"] == "shapes.example.com"
        assert status["message"].startswith('Circle.shapes.example.com "a" is invalid: ')
        return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]

    assert refused({}) == [("spec.colour", "Required value")]
    assert refused({"colour": "blue"}) == [
        ("spec.colour", 'Unsupported value: "blue": supported values: "red", "green"')
    ]
    assert ("spec.replicas", "Invalid value: 11: spec.replicas in body should be less than or equal to 10") in refused(
        {"colour": "red", "replicas": 11}
    )
    wrong = 'Invalid value: "string": spec.replicas in body must be of type integer: "string"'
    assert ("spec.replicas", wrong) in refused({"colour": "red", "replicas": "many"})
    assert refused({"colour": "red", "deep": "b"})[0][1].endswith("spec.deep in body should match '^a$'")


def test_without_a_credential_that_is_known_it_is_a_401(api: Api) -> None:
    stranger = Api(api.shard, api.cluster, token="nobody-knows")
    status = stranger.get(CONFIGMAPS, expect=401).json
    assert (status["message"], status["reason"]) == ("Unauthorized", "Unauthorized")


def test_without_permission_it_is_a_403_that_says_what_was_asked(api: Api) -> None:
    _admit(api, "alice")
    alice = Api(api.shard, api.cluster, token="alice-token")
    message = alice.get(f"{CONFIGMAPS}/a", expect=403).message
    asked = 'User "alice" cannot get resource "configmaps" in API group "" in the namespace "default"'
    assert message.startswith(f'configmaps "a" is forbidden: {asked}')
    status = alice.get(ROLES, expect=403).json
    group = "rbac.authorization.k8s.io"
    asked = f'User "alice" cannot list resource "clusterroles" in API group "{group}" at the cluster scope'
    assert status["message"].startswith(f"clusterroles.{group} is forbidden: {asked}")
    assert (status["details"]["kind"], status["details"]["group"]) == ("clusterroles", "rbac.authorization.k8s.io")
    assert alice.get("/secret/x", expect=403).message.startswith('forbidden: User "alice" cannot get path "/secret/x"')


def _admit(api: Api, user: str) -> None:
    """Give a user access to the workspace, with no rights inside."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:kcp:workspace:access"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {**configmap("a"), "apiVersion": "v2"},
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        ({**configmap("a"), "kind": "Secret"}, 'Secret in version "v1" cannot be handled as a ConfigMap'),
        (
            configmap("a", namespace="other"),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (b"{nonsense", "the object provided is unrecognized (must be of type ConfigMap)"),
        (b"[1]", "the object provided is unrecognized (must be of type ConfigMap)"),
        ({**configmap("a"), "data": {"a": 1}}, 'ConfigMap in version "v1" cannot be handled as a ConfigMap'),
        ({**configmap("a"), "data": ["a"]}, 'ConfigMap in version "v1" cannot be handled as a ConfigMap'),
        ({**configmap("a"), "metadata": {"name": 7}}, 'ConfigMap in version "v1" cannot be handled as a ConfigMap'),
    ],
)
def test_bodies_that_do_not_fit_are_a_400_with_a_reason(api: Api, body: Any, message: str) -> None:
    status = api.post(CONFIGMAPS, body, expect=400).json
    assert status["reason"] == "BadRequest"
    assert status["message"].startswith(message), status["message"]


def test_a_custom_object_must_say_its_kind(api: Api) -> None:
    define(api, crd("circles"))
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"
    body = {"apiVersion": "shapes.example.com/v1", "metadata": {"name": "a"}}
    assert api.post(path, body, expect=400).message.startswith("Object 'Kind' is missing in")


def test_a_resource_version_on_create_keeps_its_odd_answer(api: Api) -> None:
    status = api.post(CONFIGMAPS, configmap("a", resourceVersion="1"), expect=500).json
    assert status["message"] == "resourceVersion should not be set on objects to be created"
    assert not status.get("reason")


@pytest.mark.parametrize("kind", ["application/cbor", "text/plain", "application/x-www-form-urlencoded"])
def test_an_unknown_content_type_is_a_415(api: Api, kind: str) -> None:
    status = api.post(CONFIGMAPS, b"{}", kind=kind, expect=415).json
    assert status["reason"] == "UnsupportedMediaType"
    start = "the body of the request was in an unknown format - accepted media types include: application/json"
    assert status["message"].startswith(start)


def test_patch_types_are_listed_where_one_is_not_taken(api: Api) -> None:
    define(api, crd("circles"))
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"
    api.post(path, {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}})
    message = api.patch(f"{path}/a", {}, STRATEGIC, expect=415).message
    for known in (JSON_PATCH, MERGE, "application/apply-patch+yaml"):
        assert known in message
    assert STRATEGIC not in message
    api.post(CONFIGMAPS, configmap("a"))
    assert STRATEGIC in api.patch(f"{CONFIGMAPS}/a", {}, "application/json", expect=415).message


def test_a_body_above_the_limit_is_a_413(api: Api) -> None:
    answer = api.post(CONFIGMAPS, b" " * (3 * 1024 * 1024 + 1), expect=413)
    assert answer.message == "Request entity too large: limit is 3145728"
    assert answer.json["reason"] == "RequestEntityTooLarge"


def test_a_yaml_body_is_taken(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    two\n    lines\n"
    assert api.post(CONFIGMAPS, body, kind=YAML).json["data"] == {"k": "two\nlines\n"}


def test_a_missing_namespace_is_what_is_not_found(api: Api) -> None:
    status = api.post("/api/v1/namespaces/nowhere/configmaps", configmap("a"), expect=404).json
    assert status == failure(404, "NotFound", 'namespaces "nowhere" not found', name="nowhere", kind="namespaces")


def test_a_definition_with_two_storage_versions_is_refused_by_field(api: Api) -> None:
    definition = crd("circles")
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [version, {**version, "name": "v2"}]
    status = api.post(CRDS, definition, expect=422).json
    assert "must have exactly one version marked as storage version" in status["message"]
    assert "spec.versions" in {cause["field"] for cause in status["details"]["causes"]}


def test_big_messages_are_escaped_and_whole(api: Api) -> None:
    name = "<script>&"
    message = api.get(f"{CONFIGMAPS}/{'%3Cscript%3E&'}", expect=404).message
    assert message == f'configmaps "{name}" not found'
