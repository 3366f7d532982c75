"""Rights that come with a workspace, and the fields of Workspaces that only the system writes, by each verb."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.clients.api import APPLY, JSON_PATCH, MERGE, Answer, Api, Object, eventually
from harness.clients.exports import BINDINGS, make_export, schema
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, TENANCY, Scene, allow, bind, token_file, user
from harness.servers.shard_process import ShardProcess

WORKSPACES = f"{TENANCY}/workspaces"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TYPE = {"name": "universal", "path": "root"}
MOUNT = {"ref": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}
GROUPS = "authorization.kcp.io/required-groups"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("rights")
    with ShardProcess(directory, *token_file(directory)) as shard:
        yield Api(shard, "root")


@pytest.fixture
def scene(root: Api) -> Scene:
    return Scene(root)


def workspace(name: str, **spec: object) -> Object:
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    return {**body, "spec": spec or {"type": TYPE}}


def account(api: Api, name: str) -> str:
    """The token of a new service account."""
    api.post(ACCOUNTS, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(f"{ACCOUNTS}/{name}/token", request).json["status"]["token"])


def account_subject(name: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, "namespace": "default"}


def global_name(scene: Scene, name: str) -> str:
    """By which workspaces other than the scene's know an account of it."""
    return f"system:kcp:serviceaccount:{scene.cluster}:default:{name}"


# --- a workspace made by a service account ---


def test_a_service_account_administers_the_workspace_that_it_made_by_its_global_name(scene: Scene) -> None:
    token = account(scene.helper, "robot")
    bind(scene.here, "cluster-admin", account_subject("robot"))
    robot = Api(scene.root.shard, scene.here.cluster, token=token)
    robot.post(WORKSPACES, workspace("w"))
    child = scene.reach("w", "Ready")
    binding = scene.root.at(child).get(f"{RBAC}/clusterrolebindings/workspace-admin").json
    assert [each["name"] for each in binding["subjects"]] == [
        f"system:kcp:serviceaccount:{scene.cluster}:default:robot"
    ]
    inside = Api(scene.root.shard, child, token=token)
    bind(inside, "system:kcp:workspace:access", user("alice"))
    # An account of the same local name in the child is another one.
    twin = Api(scene.root.shard, child, token=account(inside, "robot"))
    for path in (CONFIGMAPS, f"{RBAC}/clusterrolebindings"):
        assert twin.send("GET", path).code == 403, path


def test_so_does_one_that_somebody_impersonated(scene: Scene) -> None:
    account(scene.helper, "robot")
    bind(scene.here, "cluster-admin", account_subject("robot"))
    as_robot = {"Impersonate-User": "system:serviceaccount:default:robot"}
    for api, name in ((scene.helper, "v"), (scene.master, "w")):
        answer = api.send("POST", WORKSPACES, workspace(name), headers=as_robot)
        assert answer.code == 201, answer.body
        child = scene.reach(name, "Ready")
        binding = scene.root.at(child).get(f"{RBAC}/clusterrolebindings/workspace-admin").json
        assert binding["subjects"][0]["name"] == global_name(scene, "robot")


# --- fields of Workspaces ---


def writes(api: Api, path: str, field: str, value: object) -> Iterator[tuple[str, Answer]]:
    """Every verb that changes a field of a Workspace's spec."""
    found = api.get(path).json
    whole = {**found, "spec": {**found["spec"], field: value}}
    applied = {**workspace("w"), "spec": {"type": TYPE, field: value}}
    yield "update", api.send("PUT", path, whole)
    yield "merge patch", api.send("PATCH", path, {"spec": {field: value}}, kind=MERGE)
    patch = [{"op": "add", "path": f"/spec/{field}", "value": value}]
    yield "JSON patch", api.send("PATCH", path, patch, kind=JSON_PATCH)
    query = "?fieldManager=me&force=true"
    yield "apply", api.send("PATCH", path + query, json.dumps(applied).encode(), kind=APPLY)


@pytest.mark.parametrize(
    ("field", "value"), [("URL", "https://192.0.2.1/clusters/root"), ("cluster", "root"), ("mount", MOUNT)]
)
def test_where_a_workspace_leads_is_not_its_administrators_to_change(scene: Scene, field: str, value: object) -> None:
    scene.helper.post(WORKSPACES, workspace("w"))
    scene.reach("w", "Ready")
    path = f"{WORKSPACES}/w"
    before = scene.master.get(path).json["spec"]
    for verb, answer in writes(scene.helper, path, field, value):
        assert answer.code in {403, 422}, (verb, answer.body)
    assert scene.master.get(path).json["spec"] == before
    if field != "mount":
        assert scene.helper.send("POST", WORKSPACES, workspace("v", type=TYPE, **{field: value})).code == 403


def test_a_mount_is_not_taken_away_and_nobody_adds_one(scene: Scene) -> None:
    scene.helper.post(WORKSPACES, workspace("w", mount=MOUNT))
    for api in (scene.helper, scene.master):
        answer = api.send("PATCH", f"{WORKSPACES}/w", {"spec": {"mount": None}}, kind=MERGE)
        assert (answer.code, "spec.mount is immutable" in answer.message) == (403, True), answer.body


def test_required_groups_are_those_of_the_children_of_who_is_no_master(scene: Scene) -> None:
    scene.master.patch(CLUSTER, {"metadata": {"annotations": {GROUPS: "directors"}}})
    director = {"Impersonate-User": "helper", "Impersonate-Group": "directors"}
    assert scene.master.send("POST", WORKSPACES, workspace("w"), headers=director).code == 201
    path = f"{WORKSPACES}/w"
    eventually(lambda: scene.master.get(path).json.get("status", {}).get("phase") == "Ready", "w Ready")
    child = scene.by("master", scene.master.get(path).json["spec"]["cluster"])
    assert child.get(CLUSTER).json["metadata"]["annotations"][GROUPS] == "directors"
    assert child.send("GET", CONFIGMAPS, headers={"Impersonate-User": "helper"}).code == 403
    assert child.send("GET", CONFIGMAPS, headers=director).code == 200


# --- exports of one's own workspace ---


def test_an_export_of_ones_own_workspace_is_bound_by_whoever_may_bind_it(scene: Scene) -> None:
    make_export(scene.here, "shapes", schema("circles"))
    allow(scene.here, "author", "alice", apiGroups=["apis.kcp.io"], resources=["apibindings"], verbs=["*"])
    for reference in ({"name": "shapes"}, {"name": "shapes", "path": scene.here.cluster}):
        body: Object = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "shapes"}}
        body["spec"] = {"reference": {"export": reference}}
        for verb, answer in (
            ("create", scene.alice.send("POST", BINDINGS, body)),
            (
                "apply",
                scene.alice.send("PATCH", f"{BINDINGS}/shapes?fieldManager=me", json.dumps(body).encode(), kind=APPLY),
            ),
        ):
            assert answer.code == 403, (verb, reference)
            assert "no permission to bind to export" in answer.message
    rule = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "resourceNames": ["shapes"], "verbs": ["bind"]}
    allow(scene.here, "binder", "alice", **rule)
    body["spec"] = {"reference": {"export": {"name": "shapes"}}}
    eventually(lambda: scene.alice.send("POST", BINDINGS, body).code == 201, "bound")
