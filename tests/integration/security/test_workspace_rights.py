"""Rights in a workspace by each verb that could go round them, and what of Workspaces only the system writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from atoll.machinery.process import pki
from harness.clients.api import APPLY, JSON_PATCH, MERGE, Answer, Api, Object, eventually
from harness.clients.exports import BINDINGS, make_export, schema
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, TENANCY, Scene, allow, bind, token_file, user
from harness.data.kind_samples import certificate_request
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
    """The name of a workspace's account in other workspaces."""
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


# --- RBAC ---

ROLES = ("clusterroles", "namespaces/default/roles")
BINDINGS_OF = {"clusterroles": "clusterrolebindings", "namespaces/default/roles": "namespaces/default/rolebindings"}
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
READING = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]


def editor(scene: Scene) -> Api:
    """alice, who may write all RBAC objects, and read what READING says."""
    for resource in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
        verbs = ["get", "create", "update", "patch"]
        allow(scene.here, f"edits-{resource}", "alice", apiGroups=[RBAC[6:-3]], resources=[resource], verbs=verbs)
    allow(scene.here, "reads", "alice", **READING[0])
    return scene.alice


def rewritten(api: Api, path: str, field: str, value: object, kind: str) -> Iterator[tuple[str, Answer]]:
    """Every verb that changes a field of an RBAC object."""
    found = api.get(path).json
    yield "update", api.send("PUT", path, {**found, field: value})
    yield "merge patch", api.send("PATCH", path, {field: value}, kind=MERGE)
    patch = [{"op": "replace", "path": f"/{field}", "value": value}]
    yield "JSON patch", api.send("PATCH", path, patch, kind=JSON_PATCH)
    applied = {"apiVersion": RBAC[6:], "kind": kind, "metadata": {"name": found["metadata"]["name"]}, field: value}
    applied |= {"roleRef": found["roleRef"]} if "roleRef" in found else {}
    query = "?fieldManager=me&force=true"
    yield "apply", api.send("PATCH", path + query, json.dumps(applied).encode(), kind=APPLY)


@pytest.mark.parametrize("plural", ROLES)
def test_nobody_widens_a_role_beyond_his_own_rights(scene: Scene, plural: str) -> None:
    alice, kind = editor(scene), "ClusterRole" if plural == "clusterroles" else "Role"
    path = f"{RBAC}/{plural}"
    alice.post(path, {"metadata": {"name": "mine"}, "rules": READING})
    for verb, answer in rewritten(alice, f"{path}/mine", "rules", EVERYTHING, kind):
        assert (answer.code, "attempting to grant RBAC permissions" in answer.message) == (403, True), verb
    assert alice.send("POST", path, {"metadata": {"name": "more"}, "rules": EVERYTHING}).code == 403
    assert alice.send("PUT", f"{path}/more", {"metadata": {"name": "more"}, "rules": EVERYTHING}).code == 403
    assert scene.here.get(f"{path}/mine").json["rules"] == READING


@pytest.mark.parametrize("plural", ROLES)
def test_nobody_puts_himself_into_a_binding_of_more_than_his_own_rights(scene: Scene, plural: str) -> None:
    alice, path = editor(scene), f"{RBAC}/{BINDINGS_OF[plural]}"
    kind = "ClusterRoleBinding" if plural == "clusterroles" else "RoleBinding"
    role = {"apiGroup": RBAC[6:-3], "kind": "ClusterRole", "name": "cluster-admin"}
    scene.here.post(path, {"metadata": {"name": "power"}, "subjects": [user("helper")], "roleRef": role})
    before = scene.here.get(f"{path}/power").json["subjects"]
    for verb, answer in rewritten(alice, f"{path}/power", "subjects", [user("alice")], kind):
        assert answer.code == 403, (verb, answer.body)
    body = {"metadata": {"name": "mine"}, "subjects": [user("alice")], "roleRef": role}
    assert alice.send("POST", path, body).code == 403
    assert alice.send("PUT", f"{path}/mine", body).code == 403
    assert scene.here.get(f"{path}/power").json["subjects"] == before


@pytest.mark.parametrize(
    ("group", "path", "plural"),
    [
        ("coordination.k8s.io/v1", "namespaces/default/leases", "leases"),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "clusterroles"),
        ("rbac.authorization.k8s.io/v1", "namespaces/default/rolebindings", "rolebindings"),
    ],
)
def test_an_update_that_creates_needs_the_right_to_create(scene: Scene, group: str, path: str, plural: str) -> None:
    rule = {"apiGroups": [group.partition("/")[0]], "resources": [plural]}
    allow(scene.here, "updates", "alice", **rule, verbs=["update", "bind", "escalate"])
    role = {"apiGroup": RBAC[6:-3], "kind": "ClusterRole", "name": "updates"}
    body: Object = {"metadata": {"name": "new"}}
    body |= {"roleRef": role} if plural == "rolebindings" else {}
    place = f"/apis/{group}/{path}/new"
    eventually(lambda: "cannot create it by an update" in scene.alice.send("PUT", place, body).message, "refused")
    allow(scene.here, "creates", "alice", **rule, verbs=["create"])
    allow(scene.here, "binds", "alice", apiGroups=["*"], resources=["clusterroles"], verbs=["bind"])
    eventually(lambda: scene.alice.send("PUT", place, body).code == 201, "created")


# --- certificates ---

CERTIFICATES = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "example.com/things"


def test_a_certificate_is_approved_and_signed_by_whoever_may_for_its_signer(scene: Scene) -> None:
    pair, group = pki.make_ca("any"), "certificates.k8s.io"
    request = certificate_request()
    spec = {"request": request, "signerName": SIGNER, "usages": ["client auth"]}
    forged = {"username": "root", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}}
    body = {"metadata": {"name": "one"}, "spec": {**spec, **forged}}
    made = scene.helper.post(CERTIFICATES, body).json
    assert made["spec"]["username"] == "helper"
    assert "extra" not in made["spec"] and "system:masters" not in made["spec"]["groups"]
    parts = [f"certificatesigningrequests{each}" for each in ("", "/approval", "/status")]
    allow(scene.here, "writes", "alice", apiGroups=[group], resources=parts, verbs=["get", "update", "patch"])
    approved = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]}}
    issued = {"status": {"certificate": base64.b64encode(pair.certificate).decode()}}
    for part, verb, patch, text in (
        ("approval", "approve", approved, "approve requests"),
        ("status", "sign", issued, "sign requests"),
    ):
        path = f"{CERTIFICATES}/one/{part}"
        found = scene.alice.get(f"{CERTIFICATES}/one").json
        whole = {**found, "status": {**found.get("status", {}), **patch["status"]}}
        for answer in (scene.alice.send("PATCH", path, patch, kind=MERGE), scene.alice.send("PUT", path, whole)):
            assert (answer.code, text in answer.message) == (403, True), answer.body
        signers = {"apiGroups": [group], "resources": ["signers"], "verbs": [verb]}
        allow(scene.here, f"{verb}s-others", "alice", **signers, resourceNames=["other.com/*", "example.com/other"])
        assert scene.alice.send("PATCH", path, patch, kind=MERGE).code == 403
        name = SIGNER if part == "status" else "example.com/*"
        allow(scene.here, f"{verb}s", "alice", **signers, resourceNames=[name])
        assert scene.alice.send("PATCH", path, patch, kind=MERGE).code == 200
