"""Create, update and patch: set fields, unchanged fields, errors and warnings."""

from __future__ import annotations

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.clients.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, YAML, Answer, Api, configmap, crd, define

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def circle(name: str = "a", **content: Any) -> dict[str, Any]:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, **content}


def version(answer: Answer) -> str:
    return str(answer.json["metadata"]["resourceVersion"])


# --- create ---


def test_the_server_sets_what_is_its_own(api: Api) -> None:
    body = configmap(
        "a",
        uid="mine",
        creationTimestamp="2001-01-01T00:00:00Z",
        generation=9,
        selfLink="/x",
        deletionTimestamp="2001-01-01T00:00:00Z",
        deletionGracePeriodSeconds=5,
    )
    metadata = api.post(CONFIGMAPS, body).json["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["creationTimestamp"] > "2002"
    assert metadata["namespace"] == "default"
    assert re.fullmatch(r"[1-9]\d{15}", metadata["resourceVersion"])
    assert not {"selfLink", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"} & set(metadata)


def test_a_name_is_generated_from_a_prefix(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 70}}
    metadata = api.post(CONFIGMAPS, body).json["metadata"]
    assert re.fullmatch(r"x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", metadata["name"])
    assert metadata["generateName"] == "x" * 70
    both = api.post(CONFIGMAPS, configmap("b", generateName="c-")).json["metadata"]
    assert both["name"] == "b"


def test_without_any_name_it_is_invalid(api: Api) -> None:
    message = api.post(CONFIGMAPS, {"kind": "ConfigMap", "apiVersion": "v1"}, expect=422).message
    assert message.endswith("metadata.name: Required value: name or generateName is required")


def test_generation_counts_changes_of_the_spec_alone(api: Api) -> None:
    define(api, crd("circles"))
    made = api.post(CIRCLES, circle(spec={"colour": "red"}, status={"replicas": 3})).json
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    patched = api.patch(f"{CIRCLES}/a", {"metadata": {"labels": {"a": "b"}}}).json
    assert patched["metadata"]["generation"] == 1
    assert api.patch(f"{CIRCLES}/a", {"spec": {"colour": "blue"}}).json["metadata"]["generation"] == 2
    status = api.patch(f"{CIRCLES}/a/status", {"status": {"replicas": 4}}).json
    assert (status["metadata"]["generation"], status["status"]["replicas"]) == (2, 4)
    body = circle(metadata={"name": "h", "finalizers": ["example.com/hold"]})
    api.post(CIRCLES, body)
    assert api.delete(f"{CIRCLES}/h").json["metadata"]["generation"] == 2


def test_defaults_are_filled_in_and_unknown_fields_pruned(api: Api) -> None:
    define(api, crd("circles"))
    answer = api.post(CIRCLES, circle(spec={"colour": "red", "nothing": {"deep": 1}}))
    assert answer.json["spec"] == {"colour": "red", "size": 7}
    assert answer.warnings == ['unknown field "spec.nothing"']


# --- field validation ---

_DOUBTFUL = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","foo":1},"data":{"a":"1","a":"2"},"zip":2}'
_PROBLEMS = ['unknown field "metadata.foo"', 'duplicate field "data.a"', 'unknown field "zip"']


def test_warnings_come_in_document_order_by_default(api: Api) -> None:
    assert api.post(CONFIGMAPS, _DOUBTFUL).warnings == _PROBLEMS


def test_strict_validation_refuses_with_all_problems(api: Api) -> None:
    message = api.post(f"{CONFIGMAPS}?fieldValidation=Strict", _DOUBTFUL, expect=400).message
    prefix = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
    assert message == prefix + ", ".join(_PROBLEMS)
    api.get(f"{CONFIGMAPS}/a", expect=404)


def test_ignored_problems_are_silent(api: Api) -> None:
    assert api.post(f"{CONFIGMAPS}?fieldValidation=Ignore", _DOUBTFUL).warnings == []


def test_an_unknown_validation_or_dry_run_is_refused(api: Api) -> None:
    message = api.post(f"{CONFIGMAPS}?fieldValidation=Loose", configmap("a"), expect=422).message
    assert 'fieldValidation: Unsupported value: "Loose"' in message
    message = api.post(f"{CONFIGMAPS}?dryRun=Some", configmap("a"), expect=422).message
    assert 'dryRun: Unsupported value: "Some"' in message


def test_duplicates_in_yaml_are_told_by_line(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: a\n  k: b\nzip: 1\n"
    message = api.post(f"{CONFIGMAPS}?fieldValidation=Strict", body, kind=YAML, expect=400).message
    assert 'line 6: key "k" already set in map' in message
    assert message.endswith('unknown field "zip"')


def test_a_strict_merge_patch_names_the_patched_object(api: Api) -> None:
    define(api, crd("circles"))
    api.post(CIRCLES, circle())
    message = api.patch(f"{CIRCLES}/a?fieldValidation=Strict", {"spec": {"x": 1}}, expect=422).message
    assert message.startswith('Circle.shapes.example.com "a" is invalid: patch: Invalid value: "{')
    assert message.endswith('strict decoding error: unknown field "spec.x"')


# --- update ---


def test_an_unconditional_update_overwrites_the_latest(api: Api) -> None:
    uid = api.post(CONFIGMAPS, configmap("a", {"k": "1"})).json["metadata"]["uid"]
    answer = api.put(f"{CONFIGMAPS}/a", configmap("a", {"k": "2"}))
    assert (answer.json["data"], answer.json["metadata"]["uid"]) == ({"k": "2"}, uid)


@pytest.mark.parametrize("code", [409, 200])
def test_an_update_with_a_uid_is_of_that_object_alone(api: Api, code: int) -> None:
    uid = api.post(CONFIGMAPS, configmap("a", {"k": "1"})).json["metadata"]["uid"]
    named = uid if code == 200 else "0a1b2c3d-0000-4000-8000-000000000000"
    body = configmap("a", {"k": "2"})
    body["metadata"]["uid"] = named
    for answer in (
        api.put(f"{CONFIGMAPS}/a", body, expect=code),
        api.patch(f"{CONFIGMAPS}/a", {"metadata": {"uid": named}, "data": {"k": "2"}}, expect=code),
    ):
        if code == 409:
            text = f"Precondition failed: UID in precondition: {named}, UID in object meta: {uid}"
            assert answer.json["reason"] == "Conflict" and answer.message.endswith(text)
    assert api.get(f"{CONFIGMAPS}/a").json["data"] == {"k": "1" if code == 409 else "2"}


def test_custom_objects_need_a_revision_for_an_update(api: Api) -> None:
    define(api, crd("circles"))
    api.post(CIRCLES, circle())
    message = api.put(f"{CIRCLES}/a", circle(), expect=422).message
    assert message.endswith("metadata.resourceVersion: Invalid value: 0x0: must be specified for an update")
    api.put(f"{CIRCLES}/a", {**api.get(f"{CIRCLES}/a").json, "spec": {"colour": "red"}})


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (f"{CONFIGMAPS}/new", configmap("new"), 404),
        (f"{LEASES}/new", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}}, 201),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/new",
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "new"}},
            201,
        ),
        (
            "/api/v1/namespaces/default/secrets/new",
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}},
            404,
        ),
    ],
)
def test_an_update_creates_only_the_kinds_that_allow_it(api: Api, path: str, body: Any, code: int) -> None:
    api.put(path, body, expect=code)
    api.get(path, expect=200 if code == 201 else 404)


def test_an_update_of_a_deleted_object_does_not_create_it_again(api: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    made = api.post(
        path, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}}
    )
    api.delete(f"{path}/a")
    uid = made.json["metadata"]["uid"]
    message = api.put(f"{path}/a", made.json, expect=409).message
    assert message.endswith(f"Precondition failed: UID in precondition: {uid}, UID in object meta: ")
    api.get(f"{path}/a", expect=404)


def test_a_body_with_another_name_is_a_400(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    message = api.put(f"{CONFIGMAPS}/a", configmap("b"), expect=400).message
    assert message == "the name of the object (b) does not match the name on the URL (a)"


def test_an_update_that_changes_nothing_keeps_the_revision(api: Api) -> None:
    made = api.post(CONFIGMAPS, configmap("a", {"k": "1"}))
    assert version(api.put(f"{CONFIGMAPS}/a", made.json)) == version(made)
    assert version(api.put(f"{CONFIGMAPS}/a", configmap("a", {"k": "1"}))) == version(made)
    assert version(api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "1"}}, STRATEGIC)) == version(made)
    assert version(api.patch(f"{CONFIGMAPS}/a", {})) == version(made)


def test_immutable_data_stays(api: Api) -> None:
    api.post(CONFIGMAPS, {**configmap("a", {"k": "1"}), "immutable": True})
    message = api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}}, expect=422).message
    assert "data: Forbidden: field is immutable when `immutable` is set" in message


def test_the_last_finalizer_removed_removes_the_object_under_deletion(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", finalizers=["example.com/hold"]))
    going = api.delete(f"{CONFIGMAPS}/a").json
    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0
    assert version(api.delete(f"{CONFIGMAPS}/a")) == going["metadata"]["resourceVersion"]
    body = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    message = api.patch(f"{CONFIGMAPS}/a", body, expect=422).message
    assert message.endswith(
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/more"}'
    )
    answer = api.patch(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": None}})
    assert answer.json["metadata"]["name"] == "a"
    api.get(f"{CONFIGMAPS}/a", expect=404)


def test_a_finalizer_without_a_domain_is_warned_about_on_custom_objects(api: Api) -> None:
    define(api, crd("circles"))
    warnings = api.post(CIRCLES, circle(metadata={"name": "a", "finalizers": ["hold"]})).warnings
    assert warnings == [
        'metadata.finalizers: "hold": prefer a domain-qualified finalizer name including a path (/) to avoid '
        "accidental conflicts with other finalizer writers"
    ]


# --- subresources ---


def test_status_and_spec_are_written_through_different_doors(api: Api) -> None:
    define(api, crd("circles"))
    made = api.post(CIRCLES, circle(spec={"colour": "red"})).json
    made["spec"]["colour"], made["status"] = "blue", {"replicas": 1}
    through_status = api.put(f"{CIRCLES}/a/status", made).json
    assert (through_status["spec"]["colour"], through_status["status"]) == ("red", {"replicas": 1})
    through_status["spec"]["colour"], through_status["status"] = "blue", {"replicas": 2}
    through_main = api.put(f"{CIRCLES}/a", through_status).json
    assert (through_main["spec"]["colour"], through_main["status"]) == ("blue", {"replicas": 1})
    assert api.get(f"{CIRCLES}/a/status").json == through_main


def test_a_scale_is_read_written_and_patched(api: Api) -> None:
    define(api, crd("circles"))
    api.post(CIRCLES, circle())
    message = api.get(f"{CIRCLES}/a/scale", expect=500).message
    assert 'the spec replicas field ".spec.replicas" does not exist' in message
    api.patch(f"{CIRCLES}/a", {"spec": {"replicas": 2}})
    api.patch(f"{CIRCLES}/a/status", {"status": {"replicas": 1, "selector": "a=b"}})
    scale = api.get(f"{CIRCLES}/a/scale").json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert set(scale["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    patched = api.patch(f"{CIRCLES}/a/scale", {"spec": {"replicas": 5}}).json
    assert patched["spec"] == {"replicas": 5}
    assert api.get(f"{CIRCLES}/a").json["metadata"]["generation"] == 3
    assert api.put(f"{CIRCLES}/a/scale", scale, expect=409).json["reason"] == "Conflict"
    api.put(f"{CIRCLES}/a/scale", {**patched, "spec": {"replicas": 0}})
    assert api.get(f"{CIRCLES}/a").json["spec"]["replicas"] == 0
    assert (
        "must be greater than or equal to 0"
        in api.patch(f"{CIRCLES}/a/scale", {"spec": {"replicas": -1}}, expect=422).message
    )


# --- patches ---


def test_a_json_patch_is_applied_in_order_or_not_at_all(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"z": "2"}, annotations={"x/y": "1"}))
    answer = api.patch(
        f"{CONFIGMAPS}/a",
        [
            {"op": "test", "path": "/data/z", "value": "2"},
            {"op": "remove", "path": "/data/z"},
            {"op": "replace", "path": "/metadata/annotations/x~1y", "value": "3"},
            {"op": "add", "path": "/data/n", "value": "4"},
        ],
        JSON_PATCH,
    )
    assert (answer.json["data"], answer.json["metadata"]["annotations"]["x/y"]) == ({"n": "4"}, "3")
    for wrong in ([{"op": "test", "path": "/data/n", "value": "9"}], [{"op": "remove", "path": "/data/none"}]):
        message = api.patch(f"{CONFIGMAPS}/a", wrong, JSON_PATCH, expect=422).message
        assert message.startswith("the server rejected our request due to an error in our request")
    assert api.patch(f"{CONFIGMAPS}/a", b"{", JSON_PATCH, expect=400).json["reason"] == "BadRequest"
    assert api.get(f"{CONFIGMAPS}/a").json["data"] == {"n": "4"}


def test_a_merge_patch_removes_with_null_and_replaces_lists(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"x": "1", "y": "2"}, finalizers=["example.com/a"]))
    body = {"data": {"x": None, "z": "3"}, "metadata": {"finalizers": ["example.com/b"]}}
    found = api.patch(f"{CONFIGMAPS}/a", body, MERGE).json
    assert (found["data"], found["metadata"]["finalizers"]) == ({"y": "2", "z": "3"}, ["example.com/b"])


def test_a_strategic_merge_patch_merges_lists_by_their_keys(api: Api) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "a", "finalizers": ["example.com/a"]},
        "secrets": [{"name": "s1"}, {"name": "s2"}],
    }
    api.post(path, body)
    secrets = [{"name": "s3"}, {"name": "s1", "$patch": "delete"}]
    patch = {"metadata": {"finalizers": ["example.com/b"]}, "secrets": secrets}
    found = api.patch(f"{path}/a", patch, STRATEGIC).json
    assert sorted(each["name"] for each in found["secrets"]) == ["s2", "s3"]
    assert sorted(found["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]


def test_a_patch_with_an_old_revision_conflicts(api: Api) -> None:
    old = version(api.post(CONFIGMAPS, configmap("a")))
    api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "1"}})
    body = {"metadata": {"resourceVersion": old}, "data": {"k": "2"}}
    assert api.patch(f"{CONFIGMAPS}/a", body, expect=409).json["reason"] == "Conflict"


def test_patches_that_meet_are_all_applied(api: Api) -> None:
    """Each is applied to the latest object; only a patch that names a revision may conflict."""
    api.post(CONFIGMAPS, configmap("a"))
    kinds = [MERGE, STRATEGIC, JSON_PATCH, APPLY]

    def patch(number: int) -> int:
        there, kind, key = api.at(api.cluster), kinds[number % 4], f"k{number}"
        path, body = f"{CONFIGMAPS}/a", {"data": {key: "1"}}
        if kind == APPLY:
            sent = there.send("PATCH", f"{path}?fieldManager={key}", configmap("a", body["data"]), kind=kind)
        elif kind == JSON_PATCH:
            operations = [{"op": "add", "path": f"/metadata/labels/{key}", "value": "1"}]
            sent = there.send("PATCH", path, operations, kind=kind)
        else:
            sent = there.send("PATCH", path, body, kind=kind)
        there.close()
        return sent.code

    api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"first": "1"}}})
    for start in range(0, 40, 4):
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(patch, range(start, start + 4))) == {200}
    found = api.get(f"{CONFIGMAPS}/a").json
    assert len(found["data"]) + len(found["metadata"]["labels"]) == 41


def test_a_patch_on_nothing_is_a_404_and_may_not_rename(api: Api) -> None:
    assert api.patch(f"{CONFIGMAPS}/a", {}, expect=404).json["reason"] == "NotFound"
    api.post(CONFIGMAPS, configmap("a"))
    message = api.patch(f"{CONFIGMAPS}/a", {"metadata": {"name": "b"}}, expect=400).message
    assert message == "the name of the object (b) does not match the name on the URL (a)"


def test_apply_creates_updates_conflicts_and_takes_over(api: Api) -> None:
    def applied(manager: str, data: dict[str, str], more: str = "", expect: int = 200) -> Answer:
        return api.patch(f"{CONFIGMAPS}/a?fieldManager={manager}{more}", configmap("a", data), APPLY, expect=expect)

    made = applied("one", {"x": "1", "y": "1"}, expect=201)
    assert version(applied("one", {"x": "1", "y": "1"})) == version(made)
    status = applied("two", {"x": "2"}, expect=409).json
    assert status["reason"] == "Conflict"
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]
    assert applied("two", {"x": "2"}, "&force=true").json["data"] == {"x": "2", "y": "1"}
    assert applied("one", {"y": "1"}).json["data"] == {"x": "2", "y": "1"}
    assert applied("one", {}).json["data"] == {"x": "2"}
    managers = api.get(f"{CONFIGMAPS}/a").json["metadata"]["managedFields"]
    assert {(each["manager"], each["operation"]) for each in managers} >= {("two", "Apply")}


def test_apply_needs_a_manager_and_others_may_not_force(api: Api) -> None:
    message = api.patch(f"{CONFIGMAPS}/a", configmap("a"), APPLY, expect=422).message
    assert "fieldManager: Required value: is required for apply patch" in message
    api.post(CONFIGMAPS, configmap("a"))
    message = api.patch(f"{CONFIGMAPS}/a?force=true", {}, expect=422).message
    assert "force: Forbidden: may not be specified for non-apply patch" in message
    message = api.patch(f"{CONFIGMAPS}/a?fieldManager={'x' * 129}", {}, expect=422).message
    assert "fieldManager" in message


def test_the_manager_of_a_write_is_the_user_agents_name(api: Api) -> None:
    managed = api.post(CONFIGMAPS, configmap("a", {"k": "1"})).json["metadata"]["managedFields"]
    assert [(each["manager"], each["operation"], each["fieldsType"]) for each in managed] == [
        ("wire-test", "Update", "FieldsV1")
    ]
    assert managed[0]["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


# --- dry run ---


def test_a_dry_run_answers_as_if_and_leaves_nothing(api: Api) -> None:
    made = api.post(f"{CONFIGMAPS}?dryRun=All", configmap("a", {"k": "1"})).json
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    api.get(f"{CONFIGMAPS}/a", expect=404)
    before = api.post(CONFIGMAPS, configmap("a", {"k": "1"}))
    revision = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
    patched = api.patch(f"{CONFIGMAPS}/a?dryRun=All", {"data": {"k": "2"}})
    assert (patched.json["data"], version(patched)) == ({"k": "2"}, version(before))
    api.put(f"{CONFIGMAPS}/a?dryRun=All", configmap("a", {"k": "3"}))
    api.patch(f"{CONFIGMAPS}/b?dryRun=All&fieldManager=m", configmap("b"), APPLY, expect=201)
    assert api.delete(f"{CONFIGMAPS}/a?dryRun=All").json["status"] == "Success"
    api.delete(f"{CONFIGMAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
    api.delete(f"{CONFIGMAPS}?dryRun=All")
    assert api.get(CONFIGMAPS).json["metadata"]["resourceVersion"] == revision
    assert api.get(f"{CONFIGMAPS}/a").json == before.json
    api.post(f"{CONFIGMAPS}?dryRun=All", configmap("A_"), expect=422)


# --- protobuf ---


def test_a_typed_clients_protobuf_bodies_are_taken_and_json_is_answered(api: Api) -> None:
    """The bytes that client-go sends for a Lease named `l` held by `me`."""
    lease = bytes([0x0A, 3, 0x0A, 1, 0x6C]) + bytes([0x12, 4, 0x0A, 2, 0x6D, 0x65])
    answer = api.send(
        "POST",
        LEASES,
        _envelope("coordination.k8s.io/v1", "Lease", lease),
        kind="application/vnd.kubernetes.protobuf",
        accept="application/vnd.kubernetes.protobuf,application/json",
        expect=201,
    )
    assert answer.header("content-type") == "application/json"
    assert (answer.json["metadata"]["name"], answer.json["spec"]) == ("l", {"holderIdentity": "me"})
    background = bytes([0x22, 10]) + b"Background"
    answer = api.send(
        "DELETE",
        f"{LEASES}/l",
        _envelope("v1", "DeleteOptions", background),
        kind="application/vnd.kubernetes.protobuf",
        expect=200,
    )
    assert answer.json["status"] == "Success"


def test_protobuf_that_is_none_is_a_400_and_custom_kinds_take_none(api: Api) -> None:
    kind = "application/vnd.kubernetes.protobuf"
    assert api.post(LEASES, b"k8s\x00\xff\xff\xff", kind=kind, expect=400).json["reason"] == "BadRequest"
    define(api, crd("circles"))
    api.post(CIRCLES, b"k8s\x00", kind=kind, expect=415)


def _envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """runtime.Unknown behind the four magic bytes."""

    def field(number: int, data: bytes) -> bytes:
        assert len(data) < 128
        return bytes([number << 3 | 2, len(data)]) + data

    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, type_meta) + field(2, raw)


def test_secrets_take_text_and_give_base64(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    made = api.post("/api/v1/namespaces/default/secrets", body).json
    assert (made["data"], made["type"]) == ({"k": base64.b64encode(b"v").decode()}, "Opaque")
    assert "stringData" not in made


def test_numbers_beyond_a_float_survive(api: Api) -> None:
    define(api, crd("circles"))
    big = 2**63 - 1
    assert api.post(CIRCLES, circle(spec={"replicas": big})).json["spec"]["replicas"] == big
    assert api.get(CIRCLES).json["items"][0]["spec"]["replicas"] == big
    assert api.patch(f"{CIRCLES}/a", {"spec": {"colour": "red"}}).json["spec"]["replicas"] == big
