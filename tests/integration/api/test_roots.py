"""Roots: a LogicalCluster that an administrator creates becomes a whole cluster, as its type says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from atoll.machinery.meta import hashes
from harness.clients.api import Api, configmap, eventually, workspace_under

CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
CLUSTER = f"{CLUSTERS}/cluster"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"
ADMINISTRATOR = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def body(path: str = "", kind: str = "root:organization", **spec: Any) -> dict[str, Any]:
    annotations = {"kcp.io/path": path} if path else {}
    if kind:
        annotations["internal.tenancy.kcp.io/type"] = kind
    metadata = {"name": "cluster", "annotations": annotations}
    return {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": metadata, "spec": spec}


def path_of_its_own() -> str:
    return f"tenant:t-{uuid.uuid4().hex[:8]}"


def reach(api: Api, phase: str = "Ready") -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = api.get(CLUSTER).json
        return dict(found) if (found.get("status") or {}).get("phase") == phase else None

    return dict(eventually(look, phase))


def test_a_root_is_built_by_its_type_and_found_by_its_path(master: Api) -> None:
    path = path_of_its_own()
    root = master.at(hashes.root_cluster_name(path))
    root.post(CLUSTERS, body(path, createdBy={"username": "owner-of-a-root"}))
    made = reach(root)
    assert made["status"]["URL"] == f"{master.shard.url}/clusters/{root.cluster}"
    assert made["metadata"]["annotations"]["core.kcp.io/shard"] == "root"
    assert made["spec"]["initializers"] == ["root:universal", "system:apibindings"]
    assert "initializers" not in made["status"]
    assert root.get(ADMINISTRATOR).json["subjects"][0]["name"] == "owner-of-a-root"
    assert {each["spec"]["reference"]["export"]["name"] for each in root.get(BINDINGS).json["items"]} >= {
        "tenancy.kcp.io"
    }
    by_path = master.at(path)
    by_path.post(CONFIGMAPS, configmap("inside"))
    child = master.at(f"{path}:{_child(by_path)}")
    assert child.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/path"].startswith(f"{path}:")


def _child(api: Api) -> str:
    name = f"w-{uuid.uuid4().hex[:8]}"
    metadata = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    api.post(WORKSPACES, metadata)
    eventually(lambda: api.get(f"{WORKSPACES}/{name}").json["status"].get("phase") == "Ready", f"{name} Ready")
    return name


def test_initializers_of_spec_are_copied_and_waited_for(master: Api) -> None:
    root = master.at(hashes.root_cluster_name(path_of_its_own()))
    root.post(CLUSTERS, body("", "", initializers=["root:mine", "root:universal"]))
    made = reach(root, "Initializing")
    assert (made["status"]["initializers"], made["status"]["URL"][-16:]) == (["root:mine"], root.cluster)
    assert root.get("/api/v1/namespaces/default").code == 200
    made["status"]["initializers"] = []
    root.put(f"{CLUSTER}/status", made)
    assert reach(root)["spec"]["initializers"] == ["root:mine", "root:universal"]


def test_a_cluster_without_a_type_is_ready_with_nothing_in_it(master: Api) -> None:
    root = master.at(uuid.uuid4().hex[:16])
    root.post(CLUSTERS, body("", ""))
    made = reach(root)
    assert "internal.tenancy.kcp.io/type" not in made["metadata"]["annotations"]
    assert root.get(BINDINGS).json["items"] == []


def test_what_was_made_before_the_root_is_built_stays(master: Api) -> None:
    root = master.at(hashes.root_cluster_name(path_of_its_own()))
    scheduling = {**body("", "root:universal"), "status": {"phase": "Scheduling"}}
    root.post(CLUSTERS, scheduling)
    reach(root)
    assert root.get(f"{CONFIGMAPS}/kube-root-ca.crt").code == 200


@pytest.mark.parametrize("token", ["", "alice-token"], ids=["kcp-admin", "alice"])
def test_others_create_no_root(master: Api, token: str) -> None:
    user = "" if token else "kcp-admin"
    stranger = Api(master.shard, hashes.root_cluster_name(path_of_its_own()), user, token)
    assert stranger.send("POST", CLUSTERS, body("tenant:taken")).code == 403
    below = Api(master.shard, workspace_under(master), user, token)
    assert below.send("POST", CLUSTERS, body("tenant:taken")).code in {403, 409}
