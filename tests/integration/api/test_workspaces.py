"""Workspaces on the wire: kcp's shapes, types, access, deletion, wildcard requests, tokens."""

from __future__ import annotations

import base64
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Api, configmap, crd, define, eventually, workspace_under
from harness.oracles.audit_log import audit_events
from harness.servers.shard_process import ShardProcess

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PERMITTED = "workspace access not permitted"


def workspace(name: str, type_: str = "", **spec: Any) -> dict[str, Any]:
    if type_:
        spec["type"] = {"name": type_, "path": "root"}
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}


def ready(api: Api, name: str) -> dict[str, Any]:
    """The Workspace once it is Ready."""
    eventually(lambda: api.get(f"{WORKSPACES}/{name}").json.get("status", {}).get("phase") == "Ready", f"{name} Ready")
    return dict(api.get(f"{WORKSPACES}/{name}").json)


def conditions(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in obj["status"]["conditions"]]


# --- shapes ---


def test_a_ready_workspace_has_kcps_shape_field_by_field(admin: Api) -> None:
    path = workspace_under(admin, type_="universal")
    obj = admin.get(f"{WORKSPACES}/{path.removeprefix('root:')}").json
    metadata, cluster = obj["metadata"], obj["spec"]["cluster"]
    owner = metadata["annotations"].pop("experimental.tenancy.kcp.io/owner")
    assert json.loads(owner)["username"] == "kcp-admin"
    assert metadata["annotations"] == {
        "kcp.io/cluster": "root",
        "core.kcp.io/shard": "root",
        "internal.tenancy.kcp.io/cluster": cluster,
        "internal.tenancy.kcp.io/shard": metadata["annotations"]["internal.tenancy.kcp.io/shard"],
    }
    assert re.fullmatch(r"[0-9a-z]{8}", metadata["annotations"]["internal.tenancy.kcp.io/shard"])
    assert metadata["finalizers"] == ["core.kcp.io/logicalcluster"]
    assert metadata["labels"]["tenancy.kcp.io/phase"] == "Ready"
    assert re.fullmatch(r"[0-9a-z]{16}", cluster)
    assert obj["spec"] == {
        "type": {"name": "universal", "path": "root"},
        "cluster": cluster,
        "URL": f"{admin.shard.url}/clusters/{path}",
    }
    assert obj["status"]["phase"] == "Ready"
    assert [each for each in conditions(obj) if each[0] != "Ready"] == [
        ("WorkspaceInitialized", "True"),
        ("WorkspaceScheduled", "True"),
    ]
    assert set(obj["status"]) == {"phase", "conditions"}


def test_its_logical_cluster_has_kcps_shape_field_by_field(api: Api) -> None:
    obj = api.get(CLUSTER).json
    metadata, name = obj["metadata"], api.cluster.removeprefix("root:")
    row = api.at("root").get(f"{WORKSPACES}/{name}").json
    annotations = metadata["annotations"]
    assert json.loads(annotations.pop("experimental.tenancy.kcp.io/owner"))["username"] == "kcp-admin"
    bound = json.loads(annotations.pop("internal.apis.kcp.io/resource-bindings"))
    assert {"workspaces.tenancy.kcp.io", "partitions.topology.kcp.io"} <= set(bound)
    assert all(re.fullmatch(r"[a-z.]+-\w+", each["n"]) for each in bound.values())
    assert annotations == {
        "kcp.io/cluster": row["spec"]["cluster"],
        "kcp.io/path": api.cluster,
        "core.kcp.io/shard": "root",
        "internal.tenancy.kcp.io/type": "root:universal",
    } | {key: value for key, value in annotations.items() if key == "internal.kcp.io/replicate"}
    assert metadata["name"] == "cluster"
    assert metadata["finalizers"] == ["core.kcp.io/logicalcluster-deletion"]
    assert metadata["labels"]["tenancy.kcp.io/phase"] == "Ready"
    spec = obj["spec"]
    assert spec["createdBy"]["username"] == "kcp-admin"
    assert not spec.get("directlyDeletable")
    assert spec["initializers"] == ["root:universal", "system:apibindings"]
    assert spec["owner"] == {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "resource": "workspaces",
        "name": name,
        "cluster": "root",
        "uid": row["metadata"]["uid"],
    }
    assert obj["status"]["URL"] == f"{api.shard.url}/clusters/{row['spec']['cluster']}"
    assert obj["status"]["phase"] == "Ready"
    assert ("WorkspaceInitialized", "True") in conditions(obj)
    assert not obj["status"].get("initializers")
    assert api.get(f"{CLUSTER}/status").json["metadata"]["uid"] == metadata["uid"]


def test_its_bindings_have_kcps_shape_field_by_field(api: Api) -> None:
    bindings = {each["spec"]["reference"]["export"]["name"]: each for each in api.get(BINDINGS).json["items"]}
    assert {"tenancy.kcp.io", "topology.kcp.io"} <= set(bindings)
    binding = bindings["tenancy.kcp.io"]
    metadata, status = binding["metadata"], binding["status"]
    assert re.fullmatch(r"tenancy\.kcp\.io-[0-9a-z]{5}", metadata["name"])
    assert metadata["annotations"]["kcp.io/path"] == api.cluster
    assert metadata["finalizers"] == ["apis.kcp.io/apibinding-finalizer"]
    export = metadata["labels"]["internal.apis.kcp.io/export"]
    assert re.fullmatch(r"[0-9A-Za-z]{30,44}", export)
    assert f"claimed.internal.apis.kcp.io/{export}" in metadata["labels"]
    assert binding["spec"] == {"reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}}}
    assert (status["apiExportClusterName"], status["phase"]) == ("root", "Bound")
    resources = {each["resource"]: each for each in status["boundResources"]}
    schema = resources["workspaces"]["schema"]
    assert re.fullmatch(r"v\d{6}-[0-9a-f]+\.workspaces\.tenancy\.kcp\.io", schema["name"])
    assert re.fullmatch(r"[0-9a-f]{64}", schema["identityHash"])
    assert schema["UID"]
    assert resources["workspaces"]["storageVersions"] == ["v1alpha1"]
    assert sorted(conditions(binding)) == [
        ("APIExportValid", "True"),
        ("BindingUpToDate", "True"),
        ("InitialBindingCompleted", "True"),
        ("PermissionClaimsApplied", "True"),
        ("PermissionClaimsValid", "True"),
        ("Ready", "True"),
    ]


def test_the_root_holds_the_types_exports_and_the_shard(admin: Api) -> None:
    def names(path: str) -> set[str]:
        return {each["metadata"]["name"] for each in admin.get(path).json["items"]}

    types = names("/apis/tenancy.kcp.io/v1alpha1/workspacetypes")
    assert {"root", "universal", "organization", "team", "home"} <= types
    exports = names("/apis/apis.kcp.io/v1alpha2/apiexports")
    assert {"tenancy.kcp.io", "topology.kcp.io", "shards.core.kcp.io"} <= exports
    shard = admin.get("/apis/core.kcp.io/v1alpha1/shards/root").json
    assert shard["spec"]["baseURL"] == admin.shard.url


# --- types ---


def test_the_default_type_of_a_child_is_that_of_its_parent(admin: Api) -> None:
    path = workspace_under(admin)
    assert admin.get(f"{WORKSPACES}/{path.removeprefix('root:')}").json["spec"]["type"]["name"] == "organization"
    inner = admin.at(path)
    inner.post(WORKSPACES, workspace("child"))
    assert ready(inner, "child")["spec"]["type"] == {"name": "universal", "path": "root"}


def test_a_type_that_is_not_there_is_forbidden(admin: Api) -> None:
    status = admin.post(WORKSPACES, workspace("w-none", "nothing"), expect=403).json
    assert status["reason"] == "Forbidden"
    assert 'workspaces.tenancy.kcp.io "w-none" is forbidden' in status["message"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"cluster": "abcdefghijklmnop"}, "spec.Cluster can only be set by system privileged users"),
        ({"URL": "https://x"}, "spec.URL can only be set by system privileged users"),
    ],
)
def test_what_the_scheduler_sets_nobody_else_does(admin: Api, spec: dict[str, str], text: str) -> None:
    body = workspace("w-mine", "universal")
    body["spec"].update(spec)
    assert text in admin.post(WORKSPACES, body, expect=403).message


def test_the_type_cannot_be_changed(admin: Api) -> None:
    name = workspace_under(admin, type_="universal").removeprefix("root:")
    body = {"spec": {"type": {"name": "organization", "path": "root"}}}
    assert admin.patch(f"{WORKSPACES}/{name}", body, expect=0).code in {403, 422}


# --- access ---


def test_unknown_and_forbidden_workspaces_give_the_same_answer(api: Api, alice: Api) -> None:
    unknown = alice.at("root:nowhere-at-all")
    for path in (CONFIGMAPS, f"{CONFIGMAPS}/a", "/api", "/version"):
        here, missing = alice.get(path, expect=403), unknown.get(path, expect=403)
        assert here.body == missing.body
        assert PERMITTED in here.message or "access denied" in here.message
    answer = api.at("root:nowhere-at-all").get(CONFIGMAPS, expect=403)
    assert PERMITTED in answer.message
    assert api.at("abcdefghijklmnop").get(CONFIGMAPS, expect=403).json["reason"] == "Forbidden"


@pytest.mark.parametrize("path", ["root:nowhere-at-all", "root:nowhere-at-all:below", "nowhere:at-all"])
def test_to_masters_a_path_that_leads_nowhere_is_not_found(api: Api, path: str) -> None:
    master = Api(api.shard, path, user="shard-admin")
    body = configmap("x")
    answers = [master.send(method, CONFIGMAPS, body) for method in ("POST", "PUT", "PATCH", "DELETE")]
    answers += [master.send("GET", each) for each in (CONFIGMAPS, "/api", "/apis/nothing.example.com/v1/x", "/version")]
    for answer in answers:
        assert (answer.code, answer.message) == (404, f'workspaces.tenancy.kcp.io "{path}" not found')
        assert answer.json["reason"] == "NotFound"
        assert answer.json["details"] == {"name": path, "group": "tenancy.kcp.io", "kind": "workspaces"}
    acting = master.send("GET", CONFIGMAPS, headers={"Impersonate-User": "somebody"})
    assert (acting.code, acting.json["reason"]) == (403, "Forbidden")


def test_a_path_that_is_none_is_a_400_and_one_in_another_a_404(admin: Api) -> None:
    assert Api(admin.shard, "A_B").get(CONFIGMAPS, expect=400).message == (
        'invalid cluster: "A_B" does not match the regex'
    )
    assert admin.get("/clusters/root/api", expect=0).code in {403, 404}


def test_nobody_but_masters_writes_where_no_logical_cluster_is(admin: Api, master: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    admin.at("nowhere0nowhere0").post("/api/v1/namespaces", body, expect=403)
    made = master.at("nowhere0nowhere0").post("/api/v1/namespaces", body, expect=201).json
    assert made["metadata"]["annotations"]["kcp.io/cluster"] == "nowhere0nowhere0"


def test_objects_of_one_workspace_are_not_seen_in_another(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("mine"))
    define(api, crd("circles"))
    other = api.at(workspace_under(api.at("root"), type_="universal"))
    other.get(f"{CONFIGMAPS}/mine", expect=404)
    other.get("/apis/shapes.example.com/v1/circles", expect=404)
    assert "mine" not in api.at("root").get("/api/v1/configmaps").body.decode()


def test_path_and_name_of_a_workspace_are_one(api: Api) -> None:
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    made = api.post(CONFIGMAPS, configmap("a")).json
    assert api.at(cluster).get(f"{CONFIGMAPS}/a").json == made


def test_logical_clusters_are_not_made_or_deleted_by_users(api: Api) -> None:
    assert "LogicalCluster cannot be deleted" in api.delete(CLUSTER, expect=403).message
    body = {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": {"name": "cluster"}, "spec": {}}
    answer = api.post("/apis/core.kcp.io/v1alpha1/logicalclusters", body, expect=0)
    assert answer.code in {403, 409}


def test_an_inactive_cluster_shows_only_its_logical_cluster(api: Api, master: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    missing = master.at(api.cluster)
    missing.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}})
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    for user in (api, missing):
        assert user.get(f"{CONFIGMAPS}/a", expect=403).message == (
            f'logicalclusters.core.kcp.io "{cluster}" is forbidden: logical cluster is marked inactive'
        )
        user.post(CONFIGMAPS, configmap("b"), expect=403)
        user.get("/openapi/v3")
    missing.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/inactive": None}}})
    api.get(f"{CONFIGMAPS}/a")


@pytest.mark.parametrize("annotation", ["core.kcp.io/inactive", "internal.kcp.io/inactive"])
def test_an_inactive_cluster_and_its_workspace_show_the_phase(admin: Api, annotation: str) -> None:
    name = workspace_under(admin).removeprefix("root:")
    path, label = f"{WORKSPACES}/{name}", "tenancy.kcp.io/phase"
    cluster = admin.get(path).json["spec"]["cluster"]

    def phases() -> set[str]:
        objects = admin.get(path).json, admin.at(cluster).get(CLUSTER).json
        return {each["status"]["phase"] for each in objects} | {each["metadata"]["labels"][label] for each in objects}

    for value, phase in (("true", "Inactive"), (None, "Ready")):
        admin.at(cluster).patch(CLUSTER, {"metadata": {"annotations": {annotation: value}}})
        admin.at(cluster).get(CONFIGMAPS, expect=403 if value else 200)
        eventually(lambda phase=phase: phases() == {phase}, phase)  # type: ignore[misc]
        listed = admin.get(f"{WORKSPACES}?labelSelector={label}={phase}").json["items"]
        assert name in {each["metadata"]["name"] for each in listed}
    admin.at(cluster).patch(CLUSTER, {"metadata": {"annotations": {annotation: "true"}}})
    eventually(lambda: phases() == {"Inactive"}, "inactive again")
    admin.delete(path)
    eventually(lambda: admin.get(path, expect=0).code == 404, "an inactive workspace deleted")


# --- wildcards ---


def test_masters_list_and_watch_all_clusters_at_once(api: Api, master: Api) -> None:
    api.post(CONFIGMAPS, configmap("wild", labels={"wild": "yes"}))
    everywhere = master.at("*")
    listed = everywhere.get("/api/v1/configmaps?labelSelector=wild").json["items"]
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    assert [item["metadata"]["annotations"]["kcp.io/cluster"] for item in listed] == [cluster]
    with everywhere.watch("/api/v1/configmaps?watch=1&labelSelector=wild") as events:
        assert events.next().name == "wild"
        api.patch(f"{CONFIGMAPS}/wild", {"data": {"k": "1"}})
        assert events.next().type == "MODIFIED"


def test_a_wildcard_is_for_reading_collections_by_masters(admin: Api, master: Api) -> None:
    everywhere = master.at("*")
    for method, path in (("GET", f"{CONFIGMAPS}/a"), ("POST", CONFIGMAPS), ("DELETE", f"{CONFIGMAPS}/a")):
        answer = everywhere.send(method, path, configmap("a") if method == "POST" else None, expect=405)
        assert answer.message.endswith(" in the `*` logical cluster")
    admin.at("*").get("/api/v1/configmaps", expect=403)
    everywhere.get("/apis/shapes.example.com/v1/circles", expect=404)


def test_exported_kinds_are_listed_everywhere_by_their_identity(api: Api, master: Api) -> None:
    binding = next(b for b in api.get(BINDINGS).json["items"] if b["metadata"]["name"].startswith("tenancy"))
    resources = binding["status"]["boundResources"]
    identity = next(each["schema"]["identityHash"] for each in resources if each["resource"] == "workspaces")
    everywhere = master.at("*")
    found = everywhere.get(f"{WORKSPACES}:{identity}").json["items"]
    assert api.cluster.removeprefix("root:") in {item["metadata"]["name"] for item in found}
    assert master.at(api.cluster).get(f"{WORKSPACES}:{identity}").json["kind"] == "WorkspaceList"
    api.get(f"{WORKSPACES}:{identity}", expect=403)
    everywhere.get(f"{WORKSPACES}:{'0' * 64}", expect=404)
    assert "missing identity" in everywhere.get(f"{WORKSPACES}:", expect=500).message
    everywhere.get(WORKSPACES, expect=404)


def test_a_wildcard_of_metadata_finds_the_custom_objects_of_every_cluster(api: Api, master: Api) -> None:
    define(api, crd("circles"))
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "here"}}
    api.post("/apis/shapes.example.com/v1/namespaces/default/circles", body)
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    found = master.at("*").get("/apis/shapes.example.com/v1/circles", accept=accept).json["items"]
    assert "here" in {item["metadata"]["name"] for item in found}


# --- deletion ---


def test_a_workspace_goes_with_its_content_and_its_children(admin: Api, master: Api) -> None:
    path = workspace_under(admin)
    inner = admin.at(path)
    inner.post(WORKSPACES, workspace("child"))
    child = ready(inner, "child")["spec"]["cluster"]
    admin.at(child).post(CONFIGMAPS, configmap("deep"))
    cluster = inner.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    name = path.removeprefix("root:")
    admin.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "the workspace is gone")
    for gone in (cluster, child):
        for kind in ("/api/v1/configmaps", "/api/v1/namespaces", f"{RBAC}/clusterrolebindings", BINDINGS):
            assert master.at(gone).get(kind).json["items"] == [], (gone, kind)
        admin.at(gone).get(CONFIGMAPS, expect=403)


def test_a_workspace_waits_for_what_finalizers_hold_and_says_so(admin: Api) -> None:
    path = workspace_under(admin, type_="universal")
    inner, name = admin.at(path), path.removeprefix("root:")
    inner.post(CONFIGMAPS, configmap("held", finalizers=["example.com/hold"]))
    admin.delete(f"{WORKSPACES}/{name}")

    def reported() -> bool:
        found = admin.get(f"{WORKSPACES}/{name}").json
        return any(
            c["type"] == "WorkspaceContentDeleted" and c["status"] == "False"
            for c in found["status"].get("conditions", [])
        )

    eventually(reported, "progress is mirrored")
    assert admin.get(f"{WORKSPACES}/{name}").json["status"]["phase"] == "Deleting"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "late"}}
    inner.post(f"{RBAC}/clusterroles", role, expect=403)
    inner.patch(f"{CONFIGMAPS}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "the workspace is gone")


def test_a_workspace_waits_for_a_binding_that_somebody_else_holds(admin: Api) -> None:
    path = workspace_under(admin, type_="universal")
    inner, name = admin.at(path), path.removeprefix("root:")
    binding = inner.get(BINDINGS).json["items"][0]["metadata"]
    held = [*binding["finalizers"], "example.com/hold"]
    inner.patch(f"{BINDINGS}/{binding['name']}", {"metadata": {"finalizers": held}})
    admin.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: remaining(admin, name) and "apibindings.apis.kcp.io has 1" in remaining(admin, name), "told")
    assert inner.get(f"{BINDINGS}/{binding['name']}").json["metadata"]["finalizers"] == ["example.com/hold"]
    inner.patch(f"{BINDINGS}/{binding['name']}", {"metadata": {"finalizers": None}})
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "the workspace is gone")


def test_a_workspace_waits_for_a_child_that_somebody_else_holds(admin: Api, master: Api) -> None:
    path = workspace_under(admin)
    inner, name = admin.at(path), path.removeprefix("root:")
    cluster = inner.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    for child in ("held", "free"):
        inner.post(WORKSPACES, workspace(child))
    gone = [ready(inner, child)["spec"]["cluster"] for child in ("held", "free")]
    inner.patch(f"{WORKSPACES}/held", {"metadata": {"finalizers": ["core.kcp.io/logicalcluster", "example.com/hold"]}})
    admin.delete(f"{WORKSPACES}/{name}")
    for child in gone:
        inner = master.at(child)
        eventually(partial(lambda at: at.get(CLUSTER, expect=0).code == 404, inner), "its cluster goes all the same")
    inside = admin.at(cluster)
    eventually(lambda: names(inside.get(WORKSPACES).json) == ["held"], "one is left")
    held = inside.get(f"{WORKSPACES}/held").json
    assert (held["metadata"]["finalizers"], held["status"]["phase"]) == (["example.com/hold"], "Deleting")
    eventually(lambda: "workspaces.tenancy.kcp.io has" in remaining(admin, name), "the parent says what it waits for")
    inside.patch(f"{WORKSPACES}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "the workspace is gone")


def names(found: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


def remaining(admin: Api, name: str) -> str:
    """The message of a Workspace about content that is not deleted yet."""
    found = admin.get(f"{WORKSPACES}/{name}").json["status"].get("conditions", [])
    return next((str(c["message"]) for c in found if c["type"] == "WorkspaceContentDeleted"), "")


def test_a_workspace_can_be_made_again_under_its_name_and_is_another(admin: Api) -> None:
    path = workspace_under(admin, type_="universal")
    name = path.removeprefix("root:")
    first = admin.get(f"{WORKSPACES}/{name}").json["spec"]["cluster"]
    admin.at(path).post(CONFIGMAPS, configmap("old"))
    admin.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "gone")
    admin.post(WORKSPACES, workspace(name, "universal"))
    assert ready(admin, name)["spec"]["cluster"] != first
    admin.at(path).get(f"{CONFIGMAPS}/old", expect=404)


# --- service accounts ---


def token_of(api: Api, account: str = "robot") -> str:
    path = "/api/v1/namespaces/default/serviceaccounts"
    api.post(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(api.post(f"{path}/{account}/token", body).json["status"]["token"])


def allow(api: Api, subject: dict[str, str]) -> None:
    """Let a subject read ConfigMaps in the workspace."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [rule]}
    api.post(f"{RBAC}/clusterroles", role)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "reader"},
        "subjects": [subject],
    }
    api.post(f"{RBAC}/clusterrolebindings", binding)


def test_a_service_accounts_token_is_good_in_its_workspace_and_in_no_other(api: Api) -> None:
    token = token_of(api)
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert claims["kubernetes.io"]["clusterName"] == cluster
    robot = Api(api.shard, api.cluster, token=token)
    robot.get(CONFIGMAPS, expect=403)
    allow(api, {"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
    assert robot.get(CONFIGMAPS).json["kind"] == "ConfigMapList"
    assert robot.at("root").get("/api/v1/configmaps", expect=0).code in {401, 403}
    other = workspace_under(api.at("root"), type_="universal")
    assert robot.at(other).get(CONFIGMAPS, expect=0).code in {401, 403}


def test_a_request_without_a_cluster_goes_to_the_tokens_own(api: Api) -> None:
    token = token_of(api)
    allow(api, {"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
    api.post(CONFIGMAPS, configmap("mine"))
    bare = Api(api.shard, "", token=token)
    assert bare.get(f"{CONFIGMAPS}/mine").json["metadata"]["name"] == "mine"
    assert Api(api.shard, "").get(CONFIGMAPS, expect=0).code in {403, 404}


def test_a_token_dies_with_its_account(api: Api) -> None:
    token = token_of(api)
    robot = Api(api.shard, api.cluster, token=token)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert robot.post(path, body).json["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    api.delete("/api/v1/namespaces/default/serviceaccounts/robot")
    robot.post(path, body, expect=401)


# --- audit ---


def test_what_was_done_is_in_the_audit_log_with_its_workspace(api: Api, audit_path: Path, shard: ShardProcess) -> None:
    identifier = "audit-" + api.cluster.removeprefix("root:")
    api.send("POST", CONFIGMAPS, configmap("a"), headers={"Audit-ID": identifier}, expect=201)

    def events() -> list[dict[str, Any]]:
        return [event for event in audit_events(audit_path) if event["auditID"] == identifier]

    event = eventually(lambda: [e for e in events() if e["stage"] == "ResponseComplete"], "the event")[0]
    assert (event["kind"], event["apiVersion"], event["level"]) == ("Event", "audit.k8s.io/v1", "Metadata")
    assert (event["auditID"], event["verb"], event["responseStatus"]["code"]) == (identifier, "create", 201)
    assert event["user"]["username"] == "kcp-admin"
    assert event["requestURI"] == f"/clusters/{api.cluster}{CONFIGMAPS}"
    reference = event["objectRef"]
    assert (reference["resource"], reference["namespace"], reference["apiVersion"]) == ("configmaps", "default", "v1")
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    annotations = event["annotations"]
    assert annotations["tenancy.kcp.io/workspace"] == cluster
    assert annotations["kcp.io/cluster"] == cluster
    assert annotations["kcp.io/path"] == api.cluster
    assert annotations["authorization.k8s.io/decision"] == "allow"
    assert "requestObject" not in event
