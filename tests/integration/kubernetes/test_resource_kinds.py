"""Kinds of `resource.k8s.io`, after Kubernetes' conformance specs: created, listed, changed in each way, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import APPLY, STRATEGIC, Api

Object = dict[str, Any]
GROUP = "/apis/resource.k8s.io/v1"
REQUEST = {"name": "one", "exactly": {"deviceClassName": "dra.example.com"}}
SLICE = {
    "driver": "dra.example.com",
    "nodeName": "nowhere",
    "pool": {"name": "cluster", "generation": 1, "resourceSliceCount": 1},
}


def select(expression: str) -> Object:
    return {"selectors": [{"cel": {"expression": expression}}]}


#: Kind, path, spec, and a change of the spec; claims and their templates take none.
KINDS: list[tuple[str, str, Object, Object]] = [
    ("DeviceClass", f"{GROUP}/deviceclasses", select("false"), select("1 == 0")),
    ("ResourceClaim", f"{GROUP}/namespaces/default/resourceclaims", {"devices": {"requests": [REQUEST]}}, {}),
    (
        "ResourceClaimTemplate",
        f"{GROUP}/namespaces/default/resourceclaimtemplates",
        {"spec": {"devices": {"requests": [REQUEST]}}},
        {},
    ),
    ("ResourceSlice", f"{GROUP}/resourceslices", SLICE, {"devices": [{"name": "device-0"}]}),
]


@pytest.mark.parametrize("kind,path,spec,change", KINDS, ids=[each[0] for each in KINDS])
def test_it_is_created_changed_and_deleted_with_its_collection(
    kube: Api, kind: str, path: str, spec: Object, change: Object
) -> None:
    metadata = {"name": "a", "labels": {"part": "test"}}
    body: Object = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    made = kube.post(path, body).json
    assert kube.get(f"{path}/a").json == made
    with kube.watch(f"{path}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as events:
        changed = {**made, "metadata": {**made["metadata"], "labels": {"part": "test", "is": "put"}}}
        changed["spec"] = {**made["spec"], **change}
        put = kube.put(f"{path}/a", changed).json
        assert (put["spec"], put["metadata"]["labels"]["is"]) == (changed["spec"], "put")
        patch = {"metadata": {"labels": {"is": "patched"}}, "spec": change}
        patched = kube.patch(f"{path}/a", patch, STRATEGIC).json
        assert patched["metadata"]["labels"] == {"part": "test", "is": "patched"}
        assert [events.next().type for _ in range(2)] == ["MODIFIED", "MODIFIED"]
    other = {**body, "metadata": {"name": "b"}}
    applied = kube.patch(f"{path}/b?fieldManager=test", other, APPLY, expect=201).json
    assert applied["spec"] == made["spec"]
    kube.delete(f"{path}?labelSelector=part%3Dtest")
    assert [each["metadata"]["name"] for each in kube.get(path).json["items"]] == ["b"]
