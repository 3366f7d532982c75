"""APIBindings in v1alpha1 and v1alpha2 over the wire."""

from __future__ import annotations

import json
from typing import Any

from harness.clients.api import TABLE, Api, Object
from harness.clients.exports import (
    BINDINGS,
    accepted,
    bind,
    binding,
    claim,
    cluster_of,
    make_export,
    schema,
    wait_bound,
    wait_condition,
)

OLD_BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
ACCEPTABLE = "apis.v1alpha2.kcp.io/acceptable-permission-claims"
APPLIED = "apis.v1alpha2.kcp.io/status-applied-permission-claims"


def old_binding(path: str, name: str, *claims: Object) -> Object:
    spec: dict[str, Any] = {"reference": {"export": {"path": path, "name": name}}}
    if claims:
        spec["permissionClaims"] = list(claims)
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name}, "spec": spec}


def notes(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].get("annotations", {}).items() if "v1alpha2.kcp.io" in key}


def test_a_binding_of_the_old_version_binds(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"), claims=[claim("configmaps"), claim("secrets")])
    everything = {"resource": "configmaps", "all": True, "state": "Accepted"}
    some = {"resource": "secrets", "resourceSelector": [{"namespace": "default"}], "state": "Rejected"}
    made = consumer.post(OLD_BINDINGS, old_binding(cluster_of(provider), "shapes", everything, some)).json
    assert made["spec"]["permissionClaims"] == [{"group": "", **everything}, {"group": "", **some}]
    assert made["metadata"]["finalizers"] == ["apis.kcp.io/apibinding-finalizer"]

    found = wait_bound(consumer, "shapes")
    common = {"group": "", "identityHash": "", "verbs": ["*"], "selector": {"matchAll": True}}
    assert found["spec"]["permissionClaims"] == [
        {**common, "resource": "configmaps", "state": "Accepted"},
        {**common, "resource": "secrets", "state": "Rejected"},
    ]
    again = consumer.get(f"{OLD_BINDINGS}/shapes").json
    assert again["spec"] == made["spec"]
    assert again["status"]["phase"] == "Bound"


def test_verbs_and_selectors_survive_a_write_in_the_old_version(provider: Api, consumer: Api) -> None:
    asked = claim("configmaps", "", "get", "list")
    make_export(provider, "shapes", schema("circles"), claims=[asked])
    before = bind(consumer, cluster_of(provider), "shapes", [accepted(asked, matchLabels={"for": "shapes"})])
    old = consumer.get(f"{OLD_BINDINGS}/shapes").json
    assert old["spec"]["permissionClaims"] == [{"group": "", "resource": "configmaps", "state": "Accepted"}]
    assert json.loads(notes(old)[ACCEPTABLE]) == before["spec"]["permissionClaims"]
    answer = consumer.patch(f"{OLD_BINDINGS}/shapes", {"metadata": {"labels": {"a": "b"}}}).json
    assert answer["apiVersion"] == "apis.kcp.io/v1alpha1"
    after = consumer.get(f"{BINDINGS}/shapes").json
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"]["a"] == "b"
    assert notes(after) == {}


def test_a_client_that_drops_annotations_takes_nothing_out_of_status(provider: Api, consumer: Api) -> None:
    asked = claim("configmaps", "", "get")
    make_export(provider, "shapes", schema("circles"), claims=[asked])
    bind(consumer, cluster_of(provider), "shapes", [accepted(asked, matchLabels={"for": "shapes"})])
    applied = wait_condition(consumer, f"{BINDINGS}/shapes", "PermissionClaimsApplied")["status"]
    old = consumer.get(f"{OLD_BINDINGS}/shapes").json
    assert APPLIED in notes(old)
    written = consumer.patch(f"{OLD_BINDINGS}/shapes", {"metadata": {"annotations": dict.fromkeys(notes(old))}}).json
    # As the write left it: what its spec asks for without the annotations is applied the moment after.
    at = f"resourceVersion={written['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    [after] = [each for each in consumer.get(f"{BINDINGS}?{at}").json["items"] if each["metadata"]["name"] == "shapes"]
    assert after["status"]["appliedPermissionClaims"] == applied["appliedPermissionClaims"]
    assert after["status"]["exportPermissionClaims"] == applied["exportPermissionClaims"]


def test_tables_and_lists_of_bindings_have_the_version_asked_for(consumer: Api) -> None:
    for path, version in ((BINDINGS, "v1alpha2"), (OLD_BINDINGS, "v1alpha1")):
        table = consumer.get(path, accept=TABLE).json
        assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Age", "Ready"]
        found = consumer.get(path).json["items"]
        assert found and {each["apiVersion"] for each in found} == {f"apis.kcp.io/{version}"}


def test_a_binding_without_an_export_is_refused_in_both_versions(consumer: Api) -> None:
    for path, version in ((BINDINGS, "v1alpha2"), (OLD_BINDINGS, "v1alpha1")):
        sent = binding("root", "any") | {"apiVersion": f"apis.kcp.io/{version}", "spec": {"reference": {}}}
        answer = consumer.post(path, sent, expect=403 if version == "v1alpha2" else 422)
        assert "spec.reference" in answer.message
