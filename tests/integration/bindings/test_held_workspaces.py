"""Workspaces whose LogicalCluster has a foreign finalizer: emptied at once, kept until it is removed, not rewritten."""

from __future__ import annotations

from harness.clients.api import Api, configmap, eventually, workspace_under

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
HOLD, OURS, OWNERS = "example.com/hold", "core.kcp.io/logicalcluster-deletion", "core.kcp.io/logicalcluster"


def test_a_held_workspace_is_emptied_and_goes_when_it_is_released(api: Api) -> None:
    root = api.at("root")
    inside = root.at(workspace_under(root))
    path = f"{WORKSPACES}/{inside.cluster.rsplit(':', 1)[1]}"
    inside.post(CONFIGMAPS, configmap("content"))
    inside.patch(CLUSTER, {"metadata": {"finalizers": [OURS, HOLD]}})
    root.delete(path)
    eventually(lambda: inside.get(CLUSTER).json["metadata"]["finalizers"] == [HOLD], "our finalizer gone")
    held = inside.get(CLUSTER).json
    assert held["status"]["phase"] == "Deleting"
    (said,) = [each for each in held["status"]["conditions"] if each["type"] == "WorkspaceContentDeleted"]
    assert said["status"] == "True"
    assert said["message"].endswith(f"finalizers remaining: {HOLD}")
    assert inside.get(CONFIGMAPS, expect=0).json.get("items", []) == []

    def mirrored() -> bool:
        shown = root.get(path).json
        conditions = {each["type"]: each for each in shown["status"]["conditions"]}
        is_said = conditions.get("WorkspaceContentDeleted", {}).get("message") == said["message"]
        return is_said and bool(shown["metadata"].get("deletionTimestamp"))

    eventually(mirrored, "the Workspace says so")
    shown = root.get(path).json
    assert (shown["status"]["phase"], shown["metadata"]["finalizers"]) == ("Deleting", [OWNERS])
    # The owner of the finalizer removes it by the workspace's path, and the workspace is deleted.
    inside.patch(CLUSTER, {"metadata": {"finalizers": None}})
    eventually(lambda: root.get(path, expect=0).code == 404, "the Workspace gone")
