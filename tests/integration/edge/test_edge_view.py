"""The edge view: what is made in it has no effect on the workspace, and the workspace's own objects are not in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import APPLY, TABLE, Api, Object, configmap, eventually, workspace_under
from harness.servers.edge_service import GROUP
from integration.edge.mailbox_world import RBAC, MailboxWorld, namespaced, view

V1, DEFAULT = "/api/v1", "/api/v1/namespaces/default"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
HELD = {"finalizers": ["example.com/held"]}


@pytest.fixture(scope="module")
def own(root: Api) -> Iterator[Api]:
    """The workspace itself."""
    found = root.at(workspace_under(root, type_="kubernetes"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def data(own: Api) -> Api:
    """The workspace as data."""
    return view(own, cluster(own), service="edge-view")


def cluster(api: Api) -> str:
    return str(
        api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json["metadata"]["annotations"]["kcp.io/cluster"]
    )


def rbac(kind: str, name: str, **more: object) -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **more}


def core(kind: str, name: str, metadata: Object | None = None, **more: object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **(metadata or {})}, **more}


def names(api: Api, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in api.get(path).json["items"]}


def test_roles_of_the_view_grant_nothing_and_share_names_with_the_workspaces_own(own: Api, data: Api) -> None:
    own.post(f"{RBAC}/clusterroles", rbac("ClusterRole", "both", rules=[]))
    data.post(f"{RBAC}/clusterroles", rbac("ClusterRole", "both", rules=EVERYTHING))
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "both"}
    everyone = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]
    data.post(f"{RBAC}/clusterrolebindings", rbac("ClusterRoleBinding", "all", roleRef=reference, subjects=everyone))
    assert (
        own.get(f"{RBAC}/clusterroles/both").json["rules"] is None
        or own.get(f"{RBAC}/clusterroles/both").json["rules"] == []
    )
    assert data.get(f"{RBAC}/clusterroles/both").json["rules"] == EVERYTHING
    assert names(data, f"{RBAC}/clusterroles") == {"both"}
    assert names(data, f"{RBAC}/clusterrolebindings") == {"all"}
    assert "all" not in names(own, f"{RBAC}/clusterrolebindings")
    # Who may write roles in the view gains nothing, so nobody asks what they may grant.
    editor = rbac(
        "ClusterRole",
        "roles-editor",
        rules=[
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
                "verbs": ["create", "get", "delete"],
            },
            {"nonResourceURLs": ["/"], "verbs": ["access"]},
        ],
    )
    own.post(f"{RBAC}/clusterroles", editor)
    subject = {"kind": "ServiceAccount", "name": "editor", "namespace": "default"}
    own.post(f"{DEFAULT}/serviceaccounts", core("ServiceAccount", "editor"))
    bound = {**reference, "name": "roles-editor"}
    own.post(f"{RBAC}/clusterrolebindings", rbac("ClusterRoleBinding", "editor", roleRef=bound, subjects=[subject]))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = own.post(f"{DEFAULT}/serviceaccounts/editor/token", request).json["status"]["token"]
    editing, outside = view(own, cluster(own), token, "edge-view"), Api(own.shard, own.cluster, token=token)
    outside.post(f"{RBAC}/clusterroles", rbac("ClusterRole", "power", rules=EVERYTHING), expect=403)
    editing.post(f"{RBAC}/clusterroles", rbac("ClusterRole", "power", rules=EVERYTHING))
    for path in (f"{DEFAULT}/secrets", f"{RBAC}/clusterrolebindings", f"{DEFAULT}/configmaps"):
        editing.get(path, expect=403)
        outside.get(path, expect=403)
    data.delete(f"{RBAC}/clusterroles/power")


def test_accounts_quotas_and_admission_of_the_view_do_nothing(own: Api, data: Api) -> None:
    data.post(f"{DEFAULT}/resourcequotas", core("ResourceQuota", "none", spec={"hard": {"count/configmaps": "0"}}))
    data.post(
        f"{DEFAULT}/limitranges", core("LimitRange", "tiny", spec={"limits": [{"type": "Pod", "max": {"cpu": "1m"}}]})
    )
    hook = {
        "name": "deny.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [RULE],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    config = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    data.post(
        f"{ADMISSION}/validatingwebhookconfigurations", {**config, "metadata": {"name": "deny"}, "webhooks": [hook]}
    )
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "deny"},
        "spec": {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "false"}]},
    }
    data.post(f"{ADMISSION}/validatingadmissionpolicies", policy)
    data.post(
        f"{ADMISSION}/validatingadmissionpolicybindings",
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "deny"},
            "spec": {"policyName": "deny", "validationActions": ["Deny"]},
        },
    )
    for api in (own, data):
        api.post(f"{DEFAULT}/configmaps", configmap(f"of-{api.prefix.split('/')[1]}", {"a": "b"}))
    assert not data.get(f"{DEFAULT}/resourcequotas/none").json.get("status")
    own.get(f"{DEFAULT}/resourcequotas/none", expect=404)
    account = data.post(f"{DEFAULT}/serviceaccounts", core("ServiceAccount", "robot")).json
    own.get(f"{DEFAULT}/serviceaccounts/robot", expect=404)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert data.send("POST", f"{DEFAULT}/serviceaccounts/default/token", request).code == 404
    assert "secrets" not in account
    of_account = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    secret = core("Secret", "token", of_account, type="kubernetes.io/service-account-token")
    data.post(f"{DEFAULT}/secrets", secret, expect=403)
    pod = core("Pod", "uses", spec={"serviceAccountName": "robot", "containers": [{"name": "a", "image": "b"}]})
    made = data.post(f"{DEFAULT}/pods", pod).json
    assert [each["name"] for each in made["spec"].get("volumes", [])] == []
    own.post(f"{DEFAULT}/pods", {**pod, "metadata": {"name": "lacks"}}, expect=403)


def test_a_service_of_the_view_gets_no_addresses(own: Api, data: Api) -> None:
    before = names(own, "/apis/networking.k8s.io/v1/ipaddresses")
    spec = {"ports": [{"port": 80}], "type": "NodePort"}
    made = data.post(f"{DEFAULT}/services", core("Service", "plain", spec=spec)).json
    assert not made["spec"].get("clusterIP")
    assert not made["spec"]["ports"][0].get("nodePort")
    data.patch(f"{DEFAULT}/services/plain", {"metadata": {"labels": {"a": "b"}}})
    assert not own.get(f"{DEFAULT}/services/plain").json["spec"].get("clusterIP")
    given = own.post(f"{DEFAULT}/services", core("Service", "given", spec={"ports": [{"port": 80}]})).json
    assert given["spec"]["clusterIP"] in names(own, "/apis/networking.k8s.io/v1/ipaddresses") - before
    data.delete(f"{DEFAULT}/services/given")
    data.delete(f"{DEFAULT}/services/plain")
    assert names(own, "/apis/networking.k8s.io/v1/ipaddresses") == before


def test_kinds_that_a_workspace_lacks_are_there_and_those_of_the_center_are_not(root: Api) -> None:
    own = root.at(workspace_under(root, type_="universal"))
    data = view(own, cluster(own), service="edge-view")
    level = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration"}
    limited = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    data.post(f"{FLOW}/prioritylevelconfigurations", {**level, "metadata": {"name": "a"}, "spec": limited})
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.a.example.com"},
    }
    spec = {"group": "a.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}
    spec |= {"service": {"namespace": "default", "name": "a"}, "insecureSkipTLSVerify": True}
    data.post("/apis/apiregistration.k8s.io/v1/apiservices", {**service, "spec": spec})
    data.post(f"{DEFAULT}/limitranges", core("LimitRange", "a", spec={"limits": [{"type": "Pod"}]}))
    own.get("/apis/apiregistration.k8s.io/v1/apiservices", expect=404)
    assert data.get("/apis/apiregistration.k8s.io/v1/apiservices", accept=TABLE).json["kind"] == "Table"
    groups = {each["name"] for each in data.get("/apis").json["groups"]}
    assert {"apiregistration.k8s.io", "rbac.authorization.k8s.io"} <= groups
    hidden = {"tenancy.kcp.io", "core.kcp.io", "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io"}
    assert not hidden & groups
    assert not {"events", "bindings", "nodes"} & {each["name"] for each in data.get(V1).json["resources"]}
    for path in (
        f"{DEFAULT}/events",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/apis.kcp.io/v1alpha1/apiresourceschemas",
        "/apis/core.kcp.io/v1alpha1/logicalclusters",
        "/apis/tenancy.kcp.io/v1alpha1/workspaces",
    ):
        data.get(path, expect=404)
    data.get("/apis/apis.kcp.io/v1alpha2/apibindings")
    assert "kube-root-ca.crt" not in names(data, f"{DEFAULT}/configmaps")
    data.get(f"{DEFAULT}/configmaps/kube-root-ca.crt", expect=404)
    own.close()


def test_control_kinds_are_in_the_view_of_a_workload_workspace(root: Api) -> None:
    there = root.at("root:wmw1")
    data = view(there, cluster(there), service="edge-view")
    assert data.get(f"{GROUP}/edgeplacements").json["kind"] == "EdgePlacementList"
    assert view(there, "root:wmw1", service="edge-view").get(f"{DEFAULT}/configmaps").code == 200
    there.close()


def test_objects_of_the_view_go_with_their_owners_and_namespaces(own: Api, data: Api) -> None:
    data.post(f"{V1}/namespaces", core("Namespace", "short"))
    there = f"{RBAC}/namespaces/short"
    owner = data.post(f"{there}/roles", rbac("Role", "owner", rules=[])).json
    own.post(f"{there}/roles", rbac("Role", "owner", rules=[]))
    reference = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = configmap("owned", {"a": "b"})
    owned["metadata"]["ownerReferences"] = [reference]
    data.post(f"{V1}/namespaces/short/configmaps", owned)
    held = {**rbac("Role", "held", rules=[]), "metadata": {"name": "held", **HELD}}
    data.post(f"{there}/roles", held)
    dependent = core("ServiceAccount", "dependent", {"ownerReferences": [reference]})
    data.post(f"{V1}/namespaces/short/serviceaccounts", dependent)
    # The garbage collector looked at both when they came; it looks again after this one.
    data.patch(f"{V1}/namespaces/short/configmaps/owned", {"data": {"a": "c"}})
    data.delete(f"{there}/roles/owner")
    for path in (f"{V1}/namespaces/short/configmaps/owned", f"{V1}/namespaces/short/serviceaccounts/dependent"):
        eventually(lambda at=path: data.send("GET", at).code == 404, f"{path} goes with its owner")  # type: ignore[misc]
    assert own.get(f"{there}/roles/owner").code == 200
    data.delete(f"{V1}/namespaces/short")
    eventually(lambda: "deletionTimestamp" in data.get(f"{there}/roles/held").json["metadata"], "its deletion begins")
    data.patch(f"{there}/roles/held", {"metadata": {"finalizers": None}})
    eventually(lambda: own.send("GET", f"{V1}/namespaces/short").code == 404, "the namespace goes with its content")


def test_a_workspace_with_objects_of_the_view_is_deleted(root: Api) -> None:
    path = workspace_under(root, type_="universal")
    own = root.at(path)
    data = view(own, cluster(own), service="edge-view")
    data.post(f"{RBAC}/clusterroles", rbac("ClusterRole", "plain", rules=[]))
    applied = rbac("ClusterRole", "applied", rules=EVERYTHING)
    data.patch(f"{RBAC}/clusterroles/applied?fieldManager=a", applied, APPLY, expect=201)
    name = path.rpartition(":")[2]
    root.delete(f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}")
    gone = f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}"
    eventually(lambda: root.send("GET", gone).code == 404, "the workspace goes")
    own.close()


def test_denatured_copies_of_a_mailbox_go_down_as_what_they_are(root: Api) -> None:
    world = MailboxWorld(root)
    data = view(root, world.cluster, service="edge-view")
    data.post(f"{RBAC}/namespaces/default/roles", rbac("Role", "far", rules=EVERYTHING))
    world.admin.post(f"{RBAC}/namespaces/default/roles", rbac("Role", "near", rules=[]))
    world.carry(namespaced("rbac.authorization.k8s.io", "roles", "default", "far", "near"))
    roles = [name for name in world.items() if name.startswith("roles.")]
    assert roles == ["roles.rbac.authorization.k8s.io:default:far"]
    assert world.items()[roles[0]]["object"]["rules"] == EVERYTHING
