"""Kinds of Kubernetes' own groups that a definition or a binding serves: typed clients use them as built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import CRDS, STRATEGIC, Api, Object, crd, define
from harness.clients.exports import bind, make_export, schema_of

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def listed(element: Object, *keys: str) -> Object:
    """A list that merges by keys."""
    return {
        "type": "array",
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": element,
            "required": list(keys),
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


def deployments(group: str = "apps") -> Object:
    """A definition of Deployments with the list types of a pod template."""
    text, number = {"type": "string"}, {"type": "integer"}
    ports = listed({"containerPort": number, "protocol": {**text, "default": "TCP"}}, "containerPort")
    ports["x-kubernetes-list-map-keys"] = ["containerPort", "protocol"]
    container = {"name": text, "image": text, "args": {"type": "array", "items": text}, "ports": ports}
    pod = {
        "containers": listed(container, "name"),
        "hosts": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
    }
    open_type = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    template = {**open_type, "properties": {"spec": {**open_type, "properties": pod}}}
    made = crd("deployments", group)
    names = {"plural": "deployments", "singular": "deployment", "kind": "Deployment", "listKind": "DeploymentList"}
    made["spec"]["names"] = names
    spec = {**open_type, "properties": {"replicas": number, "template": template}}
    version = made["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": spec, "status": open_type}}
    for field in ("additionalPrinterColumns", "selectableFields"):
        version.pop(field, None)
    version["subresources"] = {"status": {}}
    return made


def deployment(group: str = "apps") -> Object:
    containers = [
        {"name": "main", "image": "main:1", "args": ["a"], "ports": [{"containerPort": 80}]},
        {"name": "side", "image": "side:1"},
    ]
    spec = {"replicas": 1, "template": {"spec": {"containers": containers, "hosts": ["x"]}}}
    return {"apiVersion": f"{group}/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def pod(obj: Object) -> Any:
    return obj["spec"]["template"]["spec"]


def in_pod(**fields: Any) -> Object:
    return {"spec": {"template": {"spec": fields}}}


def behaves_like_a_native_kind(api: Api) -> None:
    api.post(DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS}/web"
    found = api.patch(path, in_pod(containers=[{"name": "side", "image": "side:2"}]), STRATEGIC).json
    assert [(each["name"], each["image"]) for each in pod(found)["containers"]] == [
        ("main", "main:1"),
        ("side", "side:2"),
    ]
    ports = [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]
    change = {
        "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
        "containers": [{"name": "main", "ports": ports}],
    }
    found = api.patch(path, in_pod(**change), STRATEGIC).json
    assert [each["name"] for each in pod(found)["containers"]] == ["side", "main"]
    main = pod(found)["containers"][1]
    assert [(each["containerPort"], each.get("name")) for each in main["ports"]] == [(80, "http"), (81, None)]
    assert (main["image"], main["args"]) == ("main:1", ["a"])
    gone = {"containers": [{"name": "side", "$patch": "delete"}, {"name": "main", "args": ["b", "c"]}], "hosts": ["y"]}
    found = api.patch(path, in_pod(**gone), STRATEGIC).json
    assert [(each["name"], each["args"]) for each in pod(found)["containers"]] == [("main", ["b", "c"])]
    assert sorted(pod(found)["hosts"]) == ["x", "y"]
    found = api.patch(
        path, {"metadata": {"labels": {"a": "b"}}, "spec": {"$retainKeys": ["replicas"], "replicas": 2}}, STRATEGIC
    )
    assert found.json["spec"] == {"replicas": 2}
    assert "$" not in found.body.decode()
    assert api.patch(f"{path}/status", {"status": {"ready": 1}}, STRATEGIC).json["status"] == {"ready": 1}
    assert "unknown directive" in api.patch(path, {"spec": {"$odd/x": 1}}, STRATEGIC, expect=400).message


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """A protobuf message of short fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(bytes((number << 3, value)))
        else:
            parts.append(bytes((number << 3 | 2, len(value))) + value)
    return b"".join(parts)


def scale_body(name: str, replicas: int, api_version: bytes = b"autoscaling/v1", revision: str = "") -> bytes:
    """A Scale as typed clients send it."""
    raw = message((1, message((1, name.encode()), (6, revision.encode()))), (2, message((1, replicas))))
    return b"k8s\0" + message((1, message((1, api_version), (2, b"Scale"))), (2, raw), (3, b""), (4, b""))


def scales(group: str = "autoscaling") -> Object:
    return crd("scales", group)


def test_a_definition_of_a_native_kind_takes_what_typed_clients_send(api: Api) -> None:
    define(api, deployments())
    behaves_like_a_native_kind(api)


def test_bodies_in_protobuf_are_read_where_the_message_is_known(api: Api) -> None:
    define(api, scales())
    path = "/apis/autoscaling/v1/namespaces/default/scales"
    made = api.post(path, scale_body("one", 3), kind=PROTOBUF).json
    assert (made["metadata"]["name"], made["spec"]) == ("one", {"replicas": 3, "size": 7})
    changed = scale_body("one", 4, revision=made["metadata"]["resourceVersion"])
    assert api.send("PUT", f"{path}/one", changed, kind=PROTOBUF, expect=200).json["spec"]["replicas"] == 4
    assert api.post(path, scale_body("two", 3)[:-3], kind=PROTOBUF, expect=400).json["reason"] == "BadRequest"
    assert api.post(path, scale_body("two", 3, b"apps/v1"), kind=PROTOBUF, expect=400).json["reason"] == "BadRequest"
    define(api, crd("widgets", "apps"))
    widgets = DEPLOYMENTS.replace("deployments", "widgets")
    assert PROTOBUF not in api.post(widgets, scale_body("two", 3), kind=PROTOBUF, expect=415).message
    api.get(widgets, accept=PROTOBUF, expect=406)


def opened() -> Object:
    """A definition of Deployments that declares nothing below spec."""
    made = deployments()
    open_type = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {"spec": open_type, "status": open_type}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": properties}
    return made


def test_lists_without_declared_keys_merge_as_in_kubernetes_own_type(api: Api) -> None:
    define(api, opened())
    api.post(DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS}/web"
    ports = [{"containerPort": 81}, {"containerPort": 80, "name": "http"}]
    change = {
        "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
        "containers": [{"name": "side", "$patch": "delete"}, {"name": "main", "ports": ports, "args": ["b"]}],
        "tolerations": [{"key": "a"}],
    }
    found = pod(api.patch(path, in_pod(**change), STRATEGIC).json)
    assert [(each["name"], each["image"], each["args"]) for each in found["containers"]] == [("main", "main:1", ["b"])]
    ported = [(each["containerPort"], each.get("name")) for each in found["containers"][0]["ports"]]
    assert sorted(ported) == [(80, "http"), (81, None)]
    found = pod(api.patch(path, in_pod(tolerations=[{"key": "b"}], hosts=["y"]), STRATEGIC).json)
    assert (found["tolerations"], found["hosts"]) == ([{"key": "b"}], ["y"])
    api.patch(path, in_pod(containers=[{"image": "x"}]), STRATEGIC, expect=422)


def test_a_declared_atomic_list_is_replaced_whatever_kubernetes_type_says(api: Api) -> None:
    made = opened()
    containers = {**listed({"name": {"type": "string"}}), "x-kubernetes-list-type": "atomic"}
    del containers["x-kubernetes-list-map-keys"]
    del containers["items"]["required"]
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for name in ("spec", "template"):
        inner = {"containers": containers} if name == "spec" else {"spec": spec}
        spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": inner}
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"template": spec},
    }
    define(api, made)
    api.post(DEPLOYMENTS, deployment())
    found = api.patch(f"{DEPLOYMENTS}/web", in_pod(containers=[{"name": "new"}]), STRATEGIC).json
    assert pod(found)["containers"] == [{"name": "new"}]


def test_answers_are_in_protobuf_where_it_is_asked_for_and_holds_the_object(api: Api) -> None:
    define(api, opened())
    both = f"{PROTOBUF}, application/json"
    plain = deployment()
    del pod(plain)["hosts"]
    path = f"{DEPLOYMENTS}/web"
    api.post(DEPLOYMENTS, plain)
    before = api.get(path).json
    for accept in (PROTOBUF, both):
        answer = api.get(path, accept=accept)
        assert answer.header("content-type") == PROTOBUF
        assert answer.body[:4] == b"k8s\0"
        again = api.send("PUT", path, answer.body, kind=PROTOBUF, expect=200)
        assert again.json == before
    assert api.get(path, accept=f"application/json, {PROTOBUF}").header("content-type") == "application/json"
    assert api.get(DEPLOYMENTS, accept=both).json["items"] == [before]
    api.get(DEPLOYMENTS, accept=PROTOBUF, expect=406)
    api.patch(path, in_pod(hosts=["no field of a pod"]), STRATEGIC)
    answer = api.get(path, accept=both)
    assert (answer.header("content-type"), pod(answer.json)["hosts"]) == ("application/json", ["no field of a pod"])


def test_a_bound_native_kind_takes_what_typed_clients_send(provider: Api, consumer: Api) -> None:
    make_export(provider, "apps", schema_of(deployments()))
    bind(consumer, provider.cluster, "apps")
    behaves_like_a_native_kind(consumer)


def test_kinds_of_other_groups_take_neither(api: Api) -> None:
    define(api, deployments("apps.example.com"))
    path = DEPLOYMENTS.replace("/apps/", "/apps.example.com/")
    api.post(path, deployment("apps.example.com"))
    assert STRATEGIC not in api.patch(f"{path}/web", {}, STRATEGIC, expect=415).message
    assert PROTOBUF not in api.post(path, scale_body("x", 1), kind=PROTOBUF, expect=415).message


@pytest.mark.parametrize("group", ["example", "app", "core"])
def test_a_group_without_a_dot_is_kubernetes_or_refused(api: Api, group: str) -> None:
    refused = api.post(CRDS, deployments(group), expect=422)
    assert "should be a domain with at least one dot" in refused.message
