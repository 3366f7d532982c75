"""Default bindings of WorkspaceTypes: present when a workspace is Ready, maintained afterwards if the type says so."""

from __future__ import annotations

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    claim,
    cluster_of,
    condition,
    export,
    is_true,
    make_export,
    schema,
    unbind,
    wait,
    wait_bound,
    wait_condition,
)
from harness.oracles.claim_labels import applied, carries, claim_pair, claimed

TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
MAPS = "/api/v1/namespaces/default/configmaps"
INITIALIZED, RECONCILED = "APIBindingsInitialized", "APIBindingsReconciled"


def make_type(api: Api, name: str, *exports: str, annotations: Object | None = None, **spec: object) -> Object:
    """A WorkspaceType that binds exports of its own workspace by default; extends `universal`."""
    body: Object = {"extend": {"with": [{"name": "universal", "path": "root"}]}, **spec}
    if exports:
        body["defaultAPIBindings"] = [{"export": each} for each in exports]
    metadata = {"name": name, "annotations": annotations or {}}
    made = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": metadata, "spec": body}
    return dict(api.post(TYPES, made).json)


def start(api: Api, name: str, type_: str) -> None:
    """Create a workspace below that of `api`, of a type that is defined in it."""
    spec = {"type": {"name": type_, "path": api.cluster}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    api.post(WORKSPACES, body)


def ready(api: Api, name: str) -> Api:
    """The workspace, once it is Ready."""
    wait(api, f"{WORKSPACES}/{name}", lambda obj: obj["status"]["phase"] == "Ready")
    return api.at(f"{api.cluster}:{name}")


def child(api: Api, name: str, type_: str) -> Api:
    start(api, name, type_)
    return ready(api, name)


def bound_to(api: Api, name: str) -> list[Object]:
    """The bindings of a workspace to exports of this name."""
    items: list[Object] = api.get(BINDINGS).json["items"]
    return [each for each in items if each["spec"]["reference"]["export"]["name"] == name]


def one_bound_to(api: Api, name: str) -> Object:
    """Return the one binding to an export of this name, once it is bound."""
    found: list[Object] = eventually(lambda: bound_to(api, name), f"a binding to {name}", PATIENCE_S)
    assert len(found) == 1
    return wait_bound(api, found[0]["metadata"]["name"])


def test_a_workspace_is_born_with_its_default_bindings(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_type(provider, "shaped", "shapes")
    there = child(provider, "one", "shaped")
    (found,) = bound_to(there, "shapes")
    assert found["status"]["phase"] == "Bound" and is_true(found, "PermissionClaimsApplied")
    cluster = there.get(CLUSTER).json
    assert is_true(cluster, INITIALIZED) and not condition(cluster, RECONCILED)
    assert "initializers" not in cluster["status"]


def test_claims_of_default_bindings_are_accepted_and_label_what_the_workspace_is_born_with(provider: Api) -> None:
    chosen = {"matchLabels": {"team": "a"}}
    asked = [claim("configmaps"), claim("serviceaccounts"), claim("secrets", defaultSelector=chosen)]
    make_export(provider, "shapes", schema("circles"), claims=asked)
    make_type(provider, "shaped", "shapes")
    there = child(provider, "one", "shaped")
    (found,) = bound_to(there, "shapes")
    selectors = {each["resource"]: each["selector"] for each in found["spec"]["permissionClaims"]}
    everything = {"matchAll": True}
    assert selectors == {"configmaps": everything, "serviceaccounts": everything, "secrets": chosen}
    assert {each["state"] for each in found["spec"]["permissionClaims"]} == {"Accepted"}
    assert is_true(found, "PermissionClaimsApplied") and is_true(found, "PermissionClaimsValid")
    assert [each["resource"] for each in found["status"]["appliedPermissionClaims"]] == [
        "configmaps",
        "secrets",
        "serviceaccounts",
    ]
    provided = cluster_of(provider)
    accounts = "/api/v1/namespaces/default/serviceaccounts/default"
    assert claimed(there.get(accounts).json) == dict([claim_pair(provided, "shapes", "", "serviceaccounts")])
    labels = claimed(there.get(f"{MAPS}/kube-root-ca.crt").json)
    assert labels == dict([claim_pair(provided, "shapes", "", "configmaps")])


def test_a_claim_on_what_comes_before_bindings_is_applied_before_the_workspace_is_ready(provider: Api) -> None:
    claims = [claim("logicalclusters", "core.kcp.io"), claim("apibindings", "apis.kcp.io")]
    make_export(provider, "shapes", schema("circles"), claims=claims)
    make_type(provider, "shaped", "shapes")
    there = child(provider, "one", "shaped")
    (found,) = bound_to(there, "shapes")
    assert is_true(found, "PermissionClaimsApplied") and len(found["status"]["appliedPermissionClaims"]) == 2
    provided = cluster_of(provider)
    cluster = there.get(CLUSTER).json
    assert is_true(cluster, INITIALIZED)
    assert claimed(cluster) == dict([claim_pair(provided, "shapes", "core.kcp.io", "logicalclusters")])
    pair = claim_pair(provided, "shapes", "apis.kcp.io", "apibindings")
    assert all(pair in claimed(each).items() for each in there.get(BINDINGS).json["items"])


def test_a_workspace_waits_for_a_default_export_that_is_not_there(provider: Api) -> None:
    make_export(provider, "here", schema("circles"))
    make_export(provider, "late", schema("squares"))
    make_type(provider, "shaped", "here", "late")
    provider.delete(f"{EXPORTS}/late")
    start(provider, "one", "shaped")
    found = wait(provider, f"{WORKSPACES}/one", lambda obj: bool(obj["spec"].get("cluster")))
    assert found["status"]["phase"] == "Initializing"
    assert found["status"]["initializers"] == ["system:apibindings"]
    there = provider.at(found["spec"]["cluster"])
    cluster = wait_condition(there, CLUSTER, INITIALIZED, "False", "APIBindingErrors")
    assert "late not found" in condition(cluster, INITIALIZED)["message"]
    assert bound_to(there, "late") == []
    provider.post(EXPORTS, export("late", schema("squares"), claims=[claim("configmaps")]))
    there = ready(provider, "one")
    (late,) = bound_to(there, "late")
    assert is_true(late, "InitialBindingCompleted") and is_true(late, "PermissionClaimsApplied")
    assert is_true(there.get(CLUSTER).json, INITIALIZED)


def test_bases_bind_too_and_nothing_twice(provider: Api) -> None:
    for name, kind in (("shapes", "circles"), ("colours", "paints")):
        make_export(provider, name, schema(kind))
    make_type(provider, "base", "shapes")
    base = {"name": "base", "path": provider.cluster}
    make_type(provider, "derived", "shapes", "colours", extend={"with": [base]})
    there = child(provider, "one", "derived")
    assert len(bound_to(there, "shapes")) == len(bound_to(there, "colours")) == 1
    items = there.get(BINDINGS).json["items"]
    assert all(each["status"]["phase"] == "Bound" for each in items)


def test_a_type_that_cannot_be_resolved_is_told(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"), claims=[claim("apibindings", "apis.kcp.io")])
    make_export(provider, "late", schema("squares"))
    make_type(provider, "shaped", "late")
    provider.delete(f"{EXPORTS}/late")
    start(provider, "one", "shaped")
    found = wait(provider, f"{WORKSPACES}/one", lambda obj: bool(obj["spec"].get("cluster")))
    there = provider.at(found["spec"]["cluster"])
    provider.patch(f"{TYPES}/shaped", {"spec": {"extend": {"with": [{"name": "gone", "path": "root"}]}}})
    wait_condition(there, CLUSTER, INITIALIZED, "False", "WorkspaceTypesInvalid")
    provider.patch(f"{TYPES}/shaped", {"spec": {"extend": None, "defaultAPIBindings": [{"export": "shapes"}]}})
    assert is_true(ready(provider, "one").get(CLUSTER).json, INITIALIZED)


@pytest.mark.parametrize("switch", ["spec", "annotation"])
def test_a_type_that_maintains_its_bindings_brings_new_ones_to_workspaces_that_are_there(
    provider: Api, switch: str
) -> None:
    for name, kind in (("shapes", "circles"), ("colours", "paints")):
        make_export(provider, name, schema(kind))
    if switch == "spec":
        make_type(provider, "kept", "shapes", defaultAPIBindingLifecycle="Maintain")
    else:
        key = "experimental.tenancy.kcp.io/default-api-binding-lifecycle"
        make_type(provider, "kept", "shapes", annotations={key: "Maintain"})
    make_type(provider, "derived", extend={"with": [{"name": "kept", "path": provider.cluster}]})
    make_type(provider, "once", "shapes")
    kept, derived, once = (child(provider, f"w-{name}", name) for name in ("kept", "derived", "once"))
    assert is_true(kept.get(CLUSTER).json, RECONCILED)
    assert not condition(once.get(CLUSTER).json, RECONCILED)
    both = [{"export": "shapes"}, {"export": "colours"}]
    for name in ("kept", "once"):
        provider.patch(f"{TYPES}/{name}", {"spec": {"defaultAPIBindings": both}})
    for each in (kept, derived):
        one_bound_to(each, "colours")
        wait_condition(each, CLUSTER, RECONCILED)
    assert bound_to(once, "colours") == []


def test_a_maintained_binding_comes_back_and_accepts_what_its_export_claims(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_type(provider, "kept", "shapes", defaultAPIBindingLifecycle="Maintain")
    there = child(provider, "one", "kept")
    name = one_bound_to(there, "shapes")["metadata"]["name"]
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": [claim("configmaps")]}})
    wait(there, f"{BINDINGS}/{name}", lambda obj: bool(obj["status"].get("appliedPermissionClaims")))
    pair = claim_pair(cluster_of(provider), "shapes", "", "configmaps")
    carries(there, f"{MAPS}/kube-root-ca.crt", pair)
    before = there.get(f"{BINDINGS}/{name}").json["metadata"]["uid"]
    there.delete(f"{BINDINGS}/{name}")
    wait(there, f"{BINDINGS}/{name}", lambda obj: obj["metadata"]["uid"] != before)
    applied(there, name)
    wait_condition(there, CLUSTER, RECONCILED)
    assert claimed(there.post(MAPS, configmap("new")).json) == dict([pair])


def test_a_maintained_binding_comes_with_its_export(provider: Api) -> None:
    make_export(provider, "late", schema("circles"))
    make_type(provider, "kept", "late", defaultAPIBindingLifecycle="Maintain")
    provider.patch(f"{TYPES}/kept", {"spec": {"defaultAPIBindings": None}})
    there = child(provider, "one", "kept")
    provider.delete(f"{EXPORTS}/late")
    # Only the system may name an export that does not exist.
    master = Api(provider.shard, provider.cluster, "shard-admin")
    master.patch(f"{TYPES}/kept", {"spec": {"defaultAPIBindings": [{"export": "late"}]}})
    told = wait_condition(there, CLUSTER, RECONCILED, "False", "APIBindingErrors")
    assert "late not found" in condition(told, RECONCILED)["message"]
    assert told["status"]["phase"] == "Ready" and bound_to(there, "late") == []
    provider.post(EXPORTS, export("late", schema("circles")))
    one_bound_to(there, "late")
    wait_condition(there, CLUSTER, RECONCILED)


def test_bindings_that_are_made_once_are_left_to_the_workspace(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_type(provider, "once", "shapes")
    there = child(provider, "one", "once")
    (found,) = bound_to(there, "shapes")
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": [claim("configmaps")]}})
    name = found["metadata"]["name"]
    found = wait(there, f"{BINDINGS}/{name}", lambda obj: bool(obj["status"].get("exportPermissionClaims")))
    assert "permissionClaims" not in found["spec"]
    unbind(there, name)
    # A later change in the shard's log is done, so the type was reconciled before.
    assert is_true(child(provider, "two", "once").get(CLUSTER).json, INITIALIZED)
    assert bound_to(there, "shapes") == []


def test_a_binding_that_the_workspace_made_itself_counts(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_type(provider, "kept", defaultAPIBindingLifecycle="Maintain")
    there = child(provider, "one", "kept")
    reference = {"path": cluster_of(provider), "name": "shapes"}
    body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "mine"}}
    there.post(BINDINGS, {**body, "spec": {"reference": {"export": reference}}})
    wait_bound(there, "mine")
    provider.patch(f"{TYPES}/kept", {"spec": {"defaultAPIBindings": [{"export": "shapes"}]}})
    wait_condition(there, CLUSTER, RECONCILED)
    assert [each["metadata"]["name"] for each in bound_to(there, "shapes")] == ["mine"]


def test_whoever_adds_a_default_binding_has_to_be_allowed_to_bind(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_type(provider, "old", "shapes")
    rules = [
        {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"], "verbs": ["*"]},
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
    ]
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "types"}}
    provider.post(roles, {**role, "rules": rules})
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "types"}
    grant = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    provider.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant)
    bob = Api(provider.shard, provider.cluster, "", "bob-token")
    for name in ("shapes", "nowhere"):
        body = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "WorkspaceType",
            "metadata": {"name": "new"},
            "spec": {"defaultAPIBindings": [{"export": name}]},
        }
        answer = bob.post(TYPES, body, expect=403)
        assert f"no permission to bind to export {cluster_of(provider)}:{name}" in answer.message
    # Permissions of existing entries are not checked again; those of new entries are.
    old = [{"export": "shapes"}]
    bob.patch(f"{TYPES}/old", {"spec": {"defaultAPIBindings": old, "additionalWorkspaceLabels": {"a": "b"}}})
    more = [*old, {"export": "shapes", "path": provider.cluster}]
    bob.patch(f"{TYPES}/old", {"spec": {"defaultAPIBindings": more}}, expect=403)
