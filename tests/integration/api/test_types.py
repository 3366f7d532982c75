"""WorkspaceTypes: inheritance, access, allowed parents and children, and failed scheduling."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, eventually, workspace_under

GROUP = "tenancy.kcp.io/v1alpha1"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
SHARD = "/apis/core.kcp.io/v1alpha1/shards/root"
UNSCHEDULABLE = "experimental.core.kcp.io/unschedulable"


def make_type(api: Api, name: str, *bases: str, expect: int = 201, **spec: Any) -> Any:
    extend = {"with": [{"name": base.rpartition(":")[2], "path": base.rpartition(":")[0]} for base in bases]}
    body = {"apiVersion": GROUP, "kind": "WorkspaceType", "metadata": {"name": name}}
    return api.post(TYPES, {**body, "spec": {"extend": extend, **spec}}, expect=expect).json


def make(api: Api, name: str, type: str = "", expect: int = 201, **spec: Any) -> Any:
    path, _, short = type.rpartition(":")
    if type:
        spec["type"] = {"name": short, **({"path": path} if path else {})}
    body = {"apiVersion": GROUP, "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    return api.post(WORKSPACES, body, expect=expect).json


def ready(api: Api, name: str) -> Any:
    eventually(lambda: api.get(f"{WORKSPACES}/{name}").json.get("status", {}).get("phase") == "Ready", f"{name} Ready")
    return api.get(f"{WORKSPACES}/{name}").json


def test_a_type_brings_what_it_extends(api: Api) -> None:
    make_type(api, "base", "root:universal", additionalWorkspaceLabels={"tier": "gold"})
    make_type(api, "leaf", f"{api.cluster}:base", additionalWorkspaceLabels={"own": "1"})
    make(api, "w", "leaf")
    found = ready(api, "w")
    assert found["spec"]["type"] == {"name": "leaf", "path": api.cluster}
    assert found["metadata"]["labels"]["own"] == "1"
    inside = api.at(found["spec"]["cluster"])
    annotations = inside.get(CLUSTER).json["metadata"]["annotations"]
    assert annotations["internal.tenancy.kcp.io/type"] == f"{api.cluster}:leaf"
    names = {item["metadata"]["name"] for item in inside.get("/api/v1/namespaces").json["items"]}
    assert names == {"default", "kube-system"}, "what universal initializes"


def test_a_type_is_looked_for_upwards(api: Api) -> None:
    make_type(api, "near", "root:universal")
    make(api, "outer", "near")
    ready(api, "outer")
    outer = api.at(f"{api.cluster}:outer")
    make(outer, "inner", "near")
    assert ready(outer, "inner")["spec"]["type"]["path"] == api.cluster


def test_limits_hold_by_aliases_above_and_below(api: Api) -> None:
    here = api.cluster
    make_type(api, "lonely", "root:universal", limitAllowedChildren={"none": True})
    make_type(api, "team-like", "root:universal")
    make_type(api, "squad", f"{here}:team-like")
    make_type(api, "club", "root:universal", limitAllowedChildren={"types": [{"name": "team-like", "path": here}]})
    make_type(api, "picky", "root:universal", limitAllowedParents={"types": [{"name": "club", "path": here}]})
    for name, type in (("lonely", "lonely"), ("club", "club")):
        make(api, name, type)
        ready(api, name)
    lonely, club = api.at(f"{here}:lonely"), api.at(f"{here}:club")
    assert "cannot have any children" in make(lonely, "x", f"{here}:team-like", expect=403)["message"]
    make(club, "squad", f"{here}:squad")
    ready(club, "squad")
    assert "only allows" in make(club, "other", "root:universal", expect=403)["message"]
    assert f"{here}:picky only allows" in make(api, "picky", "picky", expect=403)["message"]


def test_types_that_go_in_circles_or_lead_nowhere_make_nothing(api: Api) -> None:
    here = api.cluster
    make_type(api, "a", f"{here}:b")
    make_type(api, "b", f"{here}:a")
    make_type(api, "lost", f"{here}:nothing")
    assert "circular dependency" in make(api, "w", "a", expect=403)["message"]
    assert f"unable to find inherited workspace type {here}:nothing" in make(api, "w", "lost", expect=403)["message"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"defaultChildWorkspaceType": {"name": "x"}}, "spec.defaultChildWorkspaceType.path must be set"),
        ({"limitAllowedChildren": {"types": [{"name": "x"}]}}, "spec.limitAllowedChildren.types[0].path must be set"),
        ({"defaultAPIBindings": [{"path": "root:no", "export": "e"}]}, "no permission to bind to export root:no:e"),
    ],
)
def test_a_type_that_is_not_whole_is_forbidden(api: Api, spec: dict[str, Any], text: str) -> None:
    assert text in make_type(api, "t", "root:universal", expect=403, **spec)["message"]


@pytest.mark.parametrize("name", ["any", "system", "root"])
def test_reserved_names_are_no_types(api: Api, name: str) -> None:
    refused = make_type(api, name, "root:universal", expect=0)
    assert refused["code"] == (403 if name == "root" else 422), refused


def test_whoever_makes_a_workspace_must_be_allowed_to_use_the_type_and_its_bases(api: Api, alice: Api) -> None:
    here = api.cluster
    make_type(api, "base", "root:universal")
    make_type(api, "leaf", f"{here}:base")
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}

    def allow(name: str, rules: list[dict[str, Any]]) -> None:
        api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [user], "roleRef": reference})

    tenancy = {"apiGroups": ["tenancy.kcp.io"]}
    allow(
        "make",
        [
            {**tenancy, "resources": ["workspaces"], "verbs": ["create", "get"]},
            {"nonResourceURLs": ["/"], "verbs": ["access"]},
        ],
    )
    message = make(alice, "w", "leaf", expect=403)["message"]
    assert f"unable to use workspace type {here}:base: missing verb='use' permission on workspacetype" in message
    allow("base", [{**tenancy, "resources": ["workspacetypes"], "resourceNames": ["base"], "verbs": ["use"]}])
    assert f"unable to use workspace type {here}:leaf" in make(alice, "w", "leaf", expect=403)["message"]
    allow("leaf", [{**tenancy, "resources": ["workspacetypes"], "resourceNames": ["leaf"], "verbs": ["use"]}])
    make(alice, "w", "leaf")
    assert ready(api, "w")["spec"]["cluster"]


def test_the_views_of_a_type_are_in_its_status(api: Api) -> None:
    make_type(api, "t", "root:universal")
    eventually(lambda: api.get(f"{TYPES}/t").json.get("status", {}).get("virtualWorkspaces"), "URLs")
    status = api.get(f"{TYPES}/t").json["status"]
    cluster = api.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    assert status["virtualWorkspaces"] == [
        {"type": kind, "url": f"{api.shard.url}/services/{kind}workspaces/{cluster}:t"}
        for kind in ("initializing", "terminating")
    ]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Ready": "True",
        "VirtualWorkspaceURLsReady": "True",
    }


def test_a_workspace_without_a_shard_says_so_and_is_made_once_there_is_one(api: Api, master: Api) -> None:
    make(api, "w", "root:universal", location={"selector": {"matchLabels": {"region": "moon"}}})

    def refused() -> Any:
        status = api.get(f"{WORKSPACES}/w").json.get("status", {})
        return next((c for c in status.get("conditions", []) if c["type"] == "WorkspaceScheduled"), None)

    condition = eventually(refused, "a word on the Workspace")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "No available shards to schedule the workspace"

    def reported() -> list[Any]:
        events = api.get("/api/v1/namespaces/default/events").json["items"]
        return [each for each in events if each["involvedObject"]["name"] == "w"]

    (event,) = eventually(reported, "an Event on the Workspace")
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Unschedulable", condition["message"])
    shards = master.at("root")
    shards.patch(SHARD, {"metadata": {"labels": {"region": "moon"}}})
    try:
        assert ready(api, "w")["metadata"]["labels"]["region"] == "moon"
    finally:
        shards.patch(SHARD, {"metadata": {"labels": {"region": None}}})


def test_a_path_that_no_workspace_leads_to_is_found_by_its_annotation(master: Api, admin: Api) -> None:
    name = workspace_under(admin)
    template = admin.at(name).get(CLUSTER).json
    there = master.at("strange-cluster")
    body = {
        "apiVersion": template["apiVersion"],
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": {"kcp.io/path": "partner:site:one"}},
        "spec": {},
        "status": {"phase": "Ready"},
    }
    there.post(CLUSTER.rpartition("/")[0], body)
    there.patch(f"{CLUSTER}/status", {"status": {"phase": "Ready"}})
    by_path = master.at("partner:site:one")
    by_path.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    found = by_path.get("/api/v1/namespaces/default").json
    assert found["metadata"]["annotations"]["kcp.io/cluster"] == "strange-cluster"
    for path in ("partner:site", "partner:site:two", "partner"):
        assert master.at(path).get("/api/v1/namespaces/default", expect=0).code in {403, 404}
    there.patch(CLUSTER, {"metadata": {"annotations": {"kcp.io/path": "partner:moved:one"}}})
    by_path.get("/api/v1/namespaces/default", expect=404)
    master.at("partner:moved:one").get("/api/v1/namespaces/default")


def test_a_cluster_that_is_deleted_directly_takes_its_workspace_along(api: Api, master: Api) -> None:
    make(api, "w", "root:universal")
    cluster = ready(api, "w")["spec"]["cluster"]
    master.at(cluster).patch(CLUSTER, {"spec": {"directlyDeletable": True}})
    api.at(cluster).delete(CLUSTER)
    eventually(lambda: api.send("GET", f"{WORKSPACES}/w").code == 404, "the Workspace is gone")
    api.at(cluster).get("/api/v1/namespaces", expect=403)
