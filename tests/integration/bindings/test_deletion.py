"""Unbinding: objects are deleted first, finalizers delay it, and a resource of another binding stays."""

from __future__ import annotations

import json

from harness.clients.api import APPLY, Api, Object, eventually
from harness.clients.exports import (
    BINDINGS,
    PATIENCE_S,
    SECRETS,
    an_object,
    bind,
    binding,
    cluster_of,
    export,
    make_export,
    objects_path,
    schema,
    unbind,
    wait,
    wait_bound,
    wait_condition,
)

CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
DELETED = "BindingResourceDeleteSuccess"
CIRCLES = schema("circles")
PATH = objects_path(CIRCLES)


def held(name: str, finalizer: str = "example.com/held") -> Object:
    """A circle with a finalizer."""
    made = an_object(CIRCLES, name)
    made["metadata"]["finalizers"] = [finalizer]
    return made


def verbs(api: Api) -> list[str]:
    """The verbs of circles in discovery."""
    found = api.get("/apis/shapes.example.com/v1").json["resources"]
    return next(each["verbs"] for each in found if each["name"] == "circles")


def locks(api: Api) -> Object:
    found: Object = json.loads(
        api.get(CLUSTER).json["metadata"]["annotations"]["internal.apis.kcp.io/resource-bindings"]
    )
    return found


def test_a_deletion_waits_for_what_finalizers_hold_and_nothing_is_created_meanwhile(
    provider: Api, consumer: Api
) -> None:
    make_export(provider, "shapes", CIRCLES)
    bind(consumer, provider.cluster, "shapes")
    consumer.post(PATH, an_object(CIRCLES, "free"))
    consumer.post(PATH, held("kept"))
    consumer.delete(f"{BINDINGS}/shapes")
    assert "create" not in verbs(consumer)
    why = "create not allowed while custom resource definition is terminating"
    refused = f'circles.shapes.example.com "late" is forbidden: {why}'
    status = consumer.post(PATH, an_object(CIRCLES, "late"), expect=403).json
    assert (status["reason"], status["message"]) == ("Forbidden", refused)
    applied = an_object(CIRCLES, "late")
    late = f"{PATH}/late?fieldManager=test"
    assert consumer.patch(late, json.dumps(applied).encode(), APPLY, expect=403).message == refused
    through = Api(provider.shard, user="shard-admin")
    view = f"/services/apiexport/{cluster_of(provider)}/shapes/clusters/{cluster_of(consumer)}{PATH}"
    assert through.post(view, an_object(CIRCLES, "late"), expect=403).message == refused
    waiting = wait_condition(consumer, f"{BINDINGS}/shapes", DELETED, "False", "SomeFinalizersRemain")
    assert waiting["metadata"]["finalizers"] == ["apis.kcp.io/apibinding-finalizer"]
    assert "circles.shapes.example.com in 1" not in json.dumps(waiting["status"]["conditions"])
    assert "example.com/held in 1 resource instances" in json.dumps(waiting["status"]["conditions"])
    left = consumer.get(PATH).json["items"]
    assert [(each["metadata"]["name"], "deletionTimestamp" in each["metadata"]) for each in left] == [("kept", True)]
    assert locks(consumer)["circles.shapes.example.com"] == {"n": "shapes"}
    consumer.patch(f"{PATH}/kept", {"metadata": {"finalizers": None}})
    eventually(lambda: consumer.get(f"{BINDINGS}/shapes", expect=0).code == 404, "the binding gone", PATIENCE_S)
    assert "circles.shapes.example.com" not in locks(consumer)
    consumer.get(PATH, expect=404)


def test_a_finalizer_of_somebody_else_keeps_the_binding_and_its_names(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    make_export(provider, "other", schema("circles", prefix="other"))
    bind(consumer, provider.cluster, "shapes")
    consumer.post(PATH, an_object(CIRCLES, "one"))
    consumer.patch(
        f"{BINDINGS}/shapes", {"metadata": {"finalizers": ["example.com/mine", "apis.kcp.io/apibinding-finalizer"]}}
    )
    consumer.post(BINDINGS, binding(provider.cluster, "other"))
    wait_condition(consumer, f"{BINDINGS}/other", "Ready", "False", "NamingConflicts")
    consumer.delete(f"{BINDINGS}/shapes")
    path = f"{BINDINGS}/shapes"
    wait(consumer, path, lambda obj: obj["metadata"]["finalizers"] == ["example.com/mine"])
    assert consumer.get(PATH).json["items"] == []
    assert locks(consumer)["circles.shapes.example.com"] == {"n": "shapes"}
    assert consumer.get(f"{BINDINGS}/other").json["status"]["phase"] == "Binding"
    consumer.patch(path, {"metadata": {"finalizers": None}})
    wait_bound(consumer, "other")
    assert locks(consumer)["circles.shapes.example.com"] == {"n": "other"}


def test_what_another_binding_serves_under_the_same_identity_is_adopted(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    key = provider.get(f"{SECRETS}/shapes").json["data"]["key"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared"}, "data": {"key": key}}
    provider.post(SECRETS, secret)
    provider.post("/apis/apis.kcp.io/v1alpha1/apiresourceschemas", schema("circles", prefix="other"))
    body = export("twin", schema("circles", prefix="other"))
    body["spec"]["identity"] = {"secretRef": {"name": "shared", "namespace": "kcp-system"}}
    provider.post("/apis/apis.kcp.io/v1alpha2/apiexports", body)
    wait_condition(provider, "/apis/apis.kcp.io/v1alpha2/apiexports/twin", "IdentityValid")
    bind(consumer, provider.cluster, "shapes")
    made = consumer.post(PATH, an_object(CIRCLES, "one")).json
    consumer.post(BINDINGS, binding(provider.cluster, "twin"))
    wait_condition(consumer, f"{BINDINGS}/twin", "Ready", "False", "NamingConflicts")
    unbind(consumer, "shapes")
    wait_bound(consumer, "twin")
    (found,) = consumer.get(PATH).json["items"]
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    unbind(consumer, "twin")
    bind(consumer, provider.cluster, "shapes")
    assert consumer.get(PATH).json["items"] == []


def test_two_bindings_that_are_deleted_do_not_leave_their_objects_to_each_other(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    bind(consumer, provider.cluster, "shapes")
    consumer.post(PATH, an_object(CIRCLES, "one"))
    waiting = binding(provider.cluster, "shapes", called="waiting")
    waiting["metadata"]["finalizers"] = ["example.com/mine"]
    consumer.post(BINDINGS, waiting)
    wait_condition(consumer, f"{BINDINGS}/waiting", "Ready", "False", "NamingConflicts")
    consumer.delete(f"{BINDINGS}/waiting")
    path = f"{BINDINGS}/waiting"
    wait(consumer, path, lambda obj: obj["metadata"]["finalizers"] == ["example.com/mine"])
    assert len(consumer.get(PATH).json["items"]) == 1
    unbind(consumer, "shapes")
    consumer.patch(path, {"metadata": {"finalizers": None}})
    bind(consumer, provider.cluster, "shapes")
    assert consumer.get(PATH).json["items"] == []


def test_a_workspace_with_bindings_and_their_objects_can_be_deleted(admin: Api, provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    bind(consumer, provider.cluster, "shapes")
    consumer.post(PATH, an_object(CIRCLES, "one"))
    name = consumer.cluster.removeprefix("root:")
    admin.delete(f"{TENANCY}/{name}")
    eventually(lambda: admin.get(f"{TENANCY}/{name}", expect=0).code == 404, "the workspace gone", PATIENCE_S)
