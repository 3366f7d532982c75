"""An object whose fields have wrong types is refused in words by every door, also where a plug-in mutates its kind."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import JSON_PATCH, Api, Object
from harness.data.kind_samples import certificate_request

RBAC, KCP = "/apis/rbac.authorization.k8s.io/v1", "apis.kcp.io/v1alpha1"
ROLES, BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
REFERENCE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

#: New objects: the path, and all but apiVersion, kind and name.
NEW: dict[str, tuple[str, Object]] = {
    "rules that are no list": (ROLES, {"rules": True}),
    "a rule that is no object": (ROLES, {"rules": ["get"]}),
    "groups that are no list": (ROLES, {"rules": [{**RULE, "apiGroups": 1}]}),
    "a reference that is no object": (BINDINGS, {"roleRef": ["view"], "subjects": []}),
    "a subject that is no object": (BINDINGS, {"roleRef": REFERENCE, "subjects": [1.5]}),
    "subjects that are no list": (BINDINGS, {"roleRef": REFERENCE, "subjects": True}),
    "a spec that is no object": (REQUESTS, {"spec": True}),
    "a spec that is a list": (REQUESTS, {"spec": [certificate_request()]}),
    "a workspace's spec": (WORKSPACES, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "spec": "x"}),
    "an export's path": (
        f"/apis/{KCP}/apiexportendpointslices",
        {"apiVersion": KCP, "kind": "APIExportEndpointSlice", "spec": {"export": {"path": 7, "name": "x"}}},
    ),
    "an export that is no object": (
        f"/apis/{KCP}/apiexportendpointslices",
        {"apiVersion": KCP, "kind": "APIExportEndpointSlice", "spec": {"export": ["x"]}},
    ),
}


@pytest.mark.parametrize("case", NEW)
def test_a_new_object_of_wrong_types_is_refused(api: Api, case: str) -> None:
    path, body = NEW[case]
    refused = api.post(path, {"metadata": {"name": "malformed"}, **body}, expect=0)
    assert refused.code in {400, 422}, refused.body
    assert refused.json["reason"] in {"BadRequest", "Invalid"}
    api.get(f"{path}/malformed", expect=404)


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_a_patch_that_leaves_wrong_types_is_refused(api: Api, validation: str) -> None:
    api.post(ROLES, {"metadata": {"name": "whole"}, "rules": [RULE]})
    changes: dict[str, Any] = {"/rules": "x", "/rules/0": 1.5, "/rules/0/apiGroups": 1, "/rules/0/verbs/0": {}}
    for path, value in changes.items():
        operations = [{"op": "replace", "path": path, "value": value}, {"op": "add", "path": "/unknown", "value": 1}]
        refused = api.patch(f"{ROLES}/whole?fieldValidation={validation}", operations, JSON_PATCH, expect=422)
        assert ("unknown field" in refused.message) == (validation == "Strict")
    assert api.get(f"{ROLES}/whole").json["rules"] == [RULE]
