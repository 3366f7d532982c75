"""Field ownership over the wire: scale, status, several versions, resets, and conflicting applies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import APPLY, JSON_PATCH, Api, configmap, crd, define, workspace_under

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = "/apis/owned.example.com/v1/namespaces/default/circles"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "c"}}

Object = dict[str, Any]


@pytest.fixture(scope="module")
def circles(admin: Api) -> Iterator[Api]:
    """A workspace with a kind that has scale, status, and an older version."""
    api = admin.at(workspace_under(admin, type_="universal"))
    version = crd("circles")["spec"]["versions"][0]
    older = {**version, "name": "v1alpha1", "storage": False}
    define(api, crd("circles", group="owned.example.com", versions=[version, older]))
    yield api
    api.close()


def circle(replicas: int | None = None, **spec: Any) -> Object:
    given = {**spec, **({"replicas": replicas} if replicas is not None else {})}
    return {"apiVersion": "owned.example.com/v1", "kind": "Circle", "metadata": {"name": "c"}, "spec": given}


def owners(obj: Object, *path: str) -> list[str]:
    """The owners of a field, as manager or manager/subresource."""
    found = []
    for entry in obj["metadata"].get("managedFields", []):
        node: Any = entry["fieldsV1"]
        for name in path:
            node = node.get(f"f:{name}") if node is not None else None
        if node is not None:
            found.append("/".join(filter(None, (entry["manager"], entry.get("subresource")))))
    return sorted(found)


@pytest.fixture
def made(circles: Api) -> Iterator[Api]:
    """`c` with one replica, applied by `owner`."""
    circles.patch(f"{CIRCLES}/c?fieldManager=owner", circle(1, colour="red"), APPLY, expect=0)
    yield circles
    circles.delete(f"{CIRCLES}/c")


def test_replicas_change_hands_through_the_scale(made: Api) -> None:
    made.patch(f"{CIRCLES}/c/scale?fieldManager=hand", {"spec": {"replicas": 5}})
    obj = made.get(f"{CIRCLES}/c").json
    assert obj["spec"] == {"colour": "red", "replicas": 5, "size": 7}
    assert owners(obj, "spec", "replicas") == ["hand/scale"]
    assert owners(obj, "spec", "colour") == ["owner"]
    told = made.patch(f"{CIRCLES}/c?fieldManager=owner", circle(1, colour="red"), APPLY, expect=409)
    assert told.message == (
        'Apply failed with 1 conflict: conflict with "hand" with subresource "scale" using owned.example.com/v1: '
        ".spec.replicas"
    )
    made.patch(f"{CIRCLES}/c?fieldManager=owner&force=true", circle(1, colour="red"), APPLY)
    assert owners(made.get(f"{CIRCLES}/c").json, "spec", "replicas") == ["owner"]


def test_a_scale_is_applied_conflicts_is_forced_and_shared(made: Api) -> None:
    wanted = {**SCALE, "spec": {"replicas": 17}}
    told = made.patch(f"{CIRCLES}/c/scale?fieldManager=s", wanted, APPLY, expect=409)
    assert told.message == 'Apply failed with 1 conflict: conflict with "owner": .spec.replicas'
    made.patch(f"{CIRCLES}/c/scale?fieldManager=s&force=true", wanted, APPLY)
    obj = made.get(f"{CIRCLES}/c").json
    assert (obj["spec"]["replicas"], owners(obj, "spec", "replicas")) == (17, ["s/scale"])
    made.put(f"{CIRCLES}/c/scale?fieldManager=put", {**SCALE, "spec": {"replicas": 7}})
    made.patch(f"{CIRCLES}/c/scale?fieldManager=s", {**SCALE, "spec": {"replicas": 7}}, APPLY)
    shared = made.get(f"{CIRCLES}/c").json
    assert owners(shared, "spec", "replicas") == ["put/scale", "s/scale"]
    made.patch(f"{CIRCLES}/c/scale?fieldManager=s", {**SCALE, "spec": {"replicas": 7}}, APPLY)
    assert made.get(f"{CIRCLES}/c").json == shared


def test_a_scale_write_that_changes_only_status_changes_nothing(made: Api) -> None:
    before = made.get(f"{CIRCLES}/c").json
    made.patch(f"{CIRCLES}/c/scale", {"status": {"replicas": 42}})
    assert made.get(f"{CIRCLES}/c").json == before


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({**SCALE, "spec": {"replicas": "3"}}, ".spec.replicas: expected numeric (int or float), got string"),
        ({**SCALE, "spec": {"size": 3}}, ".spec.size: field not declared in schema"),
        ({**SCALE, "kind": "Circle", "spec": {}}, "invalid object type: autoscaling/v1, Kind=Circle"),
        ({**SCALE, "spec": {"replicas": 2**31}}, "is no number of 32 bits"),
    ],
)
def test_a_scale_that_does_not_fit_is_a_400(made: Api, body: Object, text: str) -> None:
    answer = made.patch(f"{CIRCLES}/c/scale?fieldManager=s&force=true", body, APPLY, expect=400)
    assert text in answer.message


def test_an_object_without_replicas_gets_them_through_its_scale(circles: Api) -> None:
    circles.patch(f"{CIRCLES}/c?fieldManager=owner", circle(colour="red"), APPLY, expect=201)
    assert "does not exist" in circles.get(f"{CIRCLES}/c/scale", expect=500).message
    empty = circles.patch(f"{CIRCLES}/c/scale", {"spec": {}}, expect=400)
    assert empty.message == 'the spec replicas field ".spec.replicas" cannot be empty'
    assert circles.patch(f"{CIRCLES}/c/scale", {"spec": {"replicas": 2}}).json["spec"]["replicas"] == 2
    circles.delete(f"{CIRCLES}/c")


def test_status_is_owned_apart_and_its_door_takes_nothing_else(made: Api) -> None:
    body = {**circle(9), "status": {"replicas": 3}, "metadata": {"name": "c", "labels": {"a": "b"}}}
    obj = made.patch(f"{CIRCLES}/c/status?fieldManager=ctl", body, APPLY).json
    assert (obj["spec"]["replicas"], obj["status"], obj["metadata"]["generation"]) == (1, {"replicas": 3}, 1)
    assert "labels" not in obj["metadata"]
    entry = next(each for each in obj["metadata"]["managedFields"] if each["manager"] == "ctl")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:replicas": {}}})
    conflict = made.patch(f"{CIRCLES}/c/status?fieldManager=x", {**body, "status": {"replicas": 4}}, APPLY, expect=409)
    assert conflict.message.endswith('conflict with "ctl" with subresource "status": .status.replicas')


def test_an_older_version_owns_in_its_own_words_and_conflicts_across(made: Api) -> None:
    older = {**circle(2, colour="red"), "apiVersion": "owned.example.com/v1alpha1"}
    path = CIRCLES.replace("/v1/", "/v1alpha1/")
    told = made.patch(f"{path}/c?fieldManager=old", older, APPLY, expect=409)
    assert told.message == 'Apply failed with 1 conflict: conflict with "owner": .spec.replicas'
    obj = made.patch(f"{path}/c?fieldManager=old&force=true", older, APPLY).json
    versions = {entry["manager"]: entry["apiVersion"] for entry in obj["metadata"]["managedFields"]}
    assert versions == {"owner": "owned.example.com/v1", "old": "owned.example.com/v1alpha1"}
    assert (owners(obj, "spec", "replicas"), owners(obj, "spec", "colour")) == (["old"], ["old", "owner"])


def test_unknown_and_misfit_fields_are_refused_by_apply_in_kubernetes_words(circles: Api) -> None:
    unknown = {**circle(1), "unknownField": "x"}
    for validation in ("Strict", "Warn", "Ignore"):
        target = f"{CIRCLES}/c?fieldManager=m&fieldValidation={validation}"
        assert circles.patch(target, unknown, APPLY, expect=400).message == (
            "failed to create typed patch object (/c; owned.example.com/v1, Kind=Circle): "
            ".unknownField: field not declared in schema"
        )
    twice = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"t"},"data":{"a":"1","a":"2"}}'
    strict = circles.patch(f"{CONFIGMAPS}/t?fieldManager=m&fieldValidation=Strict", twice, APPLY, expect=400)
    assert strict.message == 'error strict decoding YAML: duplicate field "data.a"'
    wrong: tuple[Any, ...] = (5, [], {"a": 5}, {"a": {"b": "c"}}, {"a": True})
    for data in wrong:
        answer = circles.patch(f"{CONFIGMAPS}/t?fieldManager=m", {**configmap("t"), "data": data}, APPLY, expect=400)
        assert answer.json["reason"] == "BadRequest" and ".data" in answer.message
    malformed: tuple[Any, ...] = (5, [], {"name": 5}, {"name": "t", "labels": 5}, {"name": "t", "annotations": [1]})
    for metadata in malformed:
        circles.patch(f"{CONFIGMAPS}/t?fieldManager=m", {**configmap("t"), "metadata": metadata}, APPLY, expect=400)


def test_a_body_of_another_kind_or_version_is_no_object_of_this_url(circles: Api) -> None:
    for field, value, shown in (("apiVersion", "v2", "/v2, Kind=ConfigMap"), ("kind", "Secret", "/v1, Kind=Secret")):
        answer = circles.patch(f"{CONFIGMAPS}/t?fieldManager=m", {**configmap("t"), field: value}, APPLY, expect=400)
        assert answer.message == f"invalid object type: {shown}"


@pytest.mark.parametrize(
    ("manager", "text"),
    [
        ("m" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        ("%C3%A9" * 65, "fieldManager: Too long: may not be more than 128 bytes"),
        ("a%0Ab", 'fieldManager: Invalid value: "a\\nb": invalid character U+000A (at position 1)'),
    ],
)
def test_the_name_of_a_manager_is_bounded_and_printable(circles: Api, manager: str, text: str) -> None:
    answer = circles.patch(f"{CONFIGMAPS}/t?fieldManager={manager}", configmap("t"), APPLY, expect=422)
    assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {text}'


def test_managed_fields_are_cleared_taken_over_and_never_a_reason_to_refuse(circles: Api) -> None:
    path = f"{CONFIGMAPS}/cleared"
    circles.post(f"{CONFIGMAPS}?fieldManager=u", configmap("cleared", {"a": "1"}))
    unreadable = [{"manager": "x", "operation": "Merge", "apiVersion": "v1", "fieldsType": "", "fieldsV1": {}}]
    kept = circles.patch(path, {"metadata": {"managedFields": unreadable}}).json
    assert owners(kept, "data", "a") == ["u"]
    resets: tuple[tuple[str, list[Any]], ...] = (("c", []), ("d", [{}]))
    for key, reset in resets:
        operation = {"op": "replace", "path": "/metadata/managedFields", "value": reset}
        cleared = circles.patch(path, [operation], JSON_PATCH)
        assert "managedFields" not in cleared.json["metadata"]
        still = circles.patch(path, {"data": {"b": key}}).json
        assert "managedFields" not in still["metadata"]
        applied = circles.patch(f"{path}?fieldManager=m", configmap("cleared", {key: "1"}), APPLY).json
        assert owners(applied, "data", key) == ["m"]
        assert owners(applied, "data", "a") == ["before-first-apply"]
    circles.delete(path)


def test_an_apply_keeps_to_the_uid_and_revision_it_names(circles: Api) -> None:
    path = f"{CONFIGMAPS}/kept?fieldManager=m"
    body = configmap("kept", {"a": "1"})
    told = circles.patch(path, {**body, "metadata": {"name": "kept", "uid": "u"}}, APPLY, expect=409)
    assert "uid mismatch: the provided object specified uid u, and no existing object was found" in told.message
    made = circles.patch(path, body, APPLY, expect=201).json["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        circles.patch(path, {**body, "metadata": {"name": "kept", **wrong}}, APPLY, expect=409)
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert circles.patch(path, {**body, "metadata": {"name": "kept", **right}}, APPLY).json["metadata"] == made
    circles.delete(path.partition("?")[0])


def test_metadata_goes_through_the_status_of_built_in_kinds(circles: Api) -> None:
    body = {"metadata": {"annotations": {"patched": "status"}}, "status": {"phase": "Active"}}
    obj = circles.patch("/api/v1/namespaces/default/status?fieldManager=s", body).json
    assert obj["metadata"]["annotations"]["patched"] == "status"
    assert owners(obj, "metadata", "annotations") == ["s/status"]
