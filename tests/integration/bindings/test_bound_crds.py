"""Bound CRDs: rows in `system:bound-crds` by the uid of the schema, from which every consumer is served."""

from __future__ import annotations

import json

from harness.clients.api import Api, eventually
from harness.clients.exports import (
    BINDINGS,
    PATIENCE_S,
    SCHEMAS,
    an_object,
    bind,
    make_export,
    objects_path,
    schema,
    unbind,
    wait,
    wait_bound,
)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
LOCKS = "internal.apis.kcp.io/resource-bindings"


def uid_of(provider: Api, name: str) -> str:
    return str(provider.get(f"{SCHEMAS}/{name}").json["metadata"]["uid"])


def test_a_bound_crd_is_kcps(provider: Api, consumer: Api, master: Api) -> None:
    made = schema("pins")
    made["spec"]["nameValidation"] = "PathSegmentName"
    exported = make_export(provider, "shapes", made)
    bind(consumer, provider.cluster, "shapes")
    uid = uid_of(provider, made["metadata"]["name"])
    found = master.at("system:bound-crds").get(f"{CRDS}/{uid}").json
    annotations = found["metadata"]["annotations"]
    assert annotations["apis.kcp.io/bound-crd"] == ""
    assert annotations["apis.kcp.io/schema-cluster"] == exported["metadata"]["annotations"]["kcp.io/cluster"]
    assert annotations["apis.kcp.io/schema-name"] == made["metadata"]["name"]
    assert annotations["internal.kcp.io/validate-name"] == "path-segment"
    assert found["spec"]["names"] == {**made["spec"]["names"], "listKind": "PinList"}
    assert found["status"]["storedVersions"] == ["v1"]
    assert {each["type"]: each["status"] for each in found["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    consumer.post(objects_path(made), an_object(made, "Any_Name:1"))


def test_a_lost_bound_crd_is_503_where_its_schema_is_lost_too_and_else_comes_back(
    provider: Api, consumer: Api, master: Api
) -> None:
    made = schema("circles")
    make_export(provider, "shapes", made)
    bind(consumer, provider.cluster, "shapes")
    uid, bound = uid_of(provider, made["metadata"]["name"]), master.at("system:bound-crds")
    path = objects_path(made)
    consumer.post(path, an_object(made, "one"))
    first = bound.get(f"{CRDS}/{uid}").json["metadata"]["uid"]
    bound.delete(f"{CRDS}/{uid}")
    eventually(lambda: bound.get(f"{CRDS}/{uid}", expect=0).json["metadata"].get("uid", first) != first, "", PATIENCE_S)
    consumer.get(path)
    provider.delete(f"{SCHEMAS}/{made['metadata']['name']}")
    bound.delete(f"{CRDS}/{uid}")
    answer = eventually(lambda: (found := consumer.get(path, expect=0)).code == 503 and found, "503", PATIENCE_S)
    assert answer.json["reason"] == "ServiceUnavailable"
    assert answer.message == "circles.shapes.example.com is currently unavailable"
    provider.post(SCHEMAS, made)
    eventually(lambda: consumer.get(path, expect=0).code == 200, "bound to the new schema", PATIENCE_S)
    assert [each["metadata"]["name"] for each in consumer.get(path).json["items"]] == ["one"]


def test_a_wildcard_by_identity_is_served_by_what_is_bound(provider: Api, consumer: Api, master: Api) -> None:
    made = schema("circles")
    exported = make_export(provider, "shapes", made)
    identity = exported["status"]["identityHash"]
    everywhere = master.at("*")
    path = f"/apis/shapes.example.com/v1/circles:{identity}"
    assert everywhere.get(path).json["items"] == []
    bind(consumer, provider.cluster, "shapes")
    consumer.post(objects_path(made), an_object(made, "one"))
    provider.delete("/apis/apis.kcp.io/v1alpha2/apiexports/shapes")
    provider.delete(f"{SCHEMAS}/{made['metadata']['name']}")
    assert [each["metadata"]["name"] for each in everywhere.get(path).json["items"]] == ["one"]
    unbind(consumer, "shapes")
    everywhere.get(path, expect=404)


def test_locks_are_kept_in_step(provider: Api, consumer: Api, master: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    here = master.at(consumer.cluster)
    kept = json.loads(consumer.get(CLUSTER).json["metadata"]["annotations"][LOCKS])
    here.patch(CLUSTER, {"metadata": {"annotations": {LOCKS: None}}})
    wait(consumer, CLUSTER, lambda obj: json.loads(obj["metadata"]["annotations"].get(LOCKS, "{}")) == kept)
    gone = {**kept, "ghosts.example.com": {"c": True, "e": "2001-01-01T00:00:00Z"}}
    here.patch(CLUSTER, {"metadata": {"annotations": {LOCKS: json.dumps(gone)}}})
    wait(consumer, CLUSTER, lambda obj: json.loads(obj["metadata"]["annotations"][LOCKS]) == kept)
    # No component of the shard holds it: it is deleted once its finalizers are removed.
    consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"finalizers": None}})
    consumer.delete(f"{BINDINGS}/shapes")
    wait(consumer, CLUSTER, lambda obj: "circles" not in obj["metadata"]["annotations"][LOCKS])


def test_a_cluster_without_locks_binds_once_it_has_them(provider: Api, consumer: Api, master: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    here = master.at(consumer.cluster)
    here.patch(CLUSTER, {"metadata": {"annotations": {LOCKS: None}}})
    bind(consumer, provider.cluster, "shapes")
    wait_bound(consumer, "shapes")
