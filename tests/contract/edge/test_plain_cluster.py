"""The plain Kubernetes cluster of the tests: its Pods run, it outlives a power failure, and can begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.servers.edge_cluster import EdgeCluster

CONFIGMAPS, DEPLOYMENTS = "/api/v1/namespaces/default/configmaps", "/apis/apps/v1/namespaces/default/deployments"
SYSTEM = "/api/v1/namespaces/kube-system"


def deployment(name: str, replicas: int) -> Object:
    """A Deployment whose image nobody pulls."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/main"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.mark.long
def test_a_deployment_becomes_available_and_a_killed_cluster_comes_back_as_it_was(tmp_path: Path) -> None:
    with EdgeCluster(tmp_path) as cluster:
        api = Api(cluster)
        api.post(DEPLOYMENTS, deployment("web", 2))
        api.post(CONFIGMAPS, configmap("c", {"a": "1"}))

        def available() -> bool:
            status = api.get(f"{DEPLOYMENTS}/web").json.get("status") or {}
            return bool(status.get("availableReplicas") == 2)

        eventually(available, "both Pods run")
        uid = api.get(SYSTEM).json["metadata"]["uid"]
        cluster.kill()
        cluster.start()
        assert api.get(f"{CONFIGMAPS}/c").json["data"] == {"a": "1"}
        api.delete(f"{DEPLOYMENTS}/web")
        eventually(lambda: not api.get("/api/v1/pods").json["items"], "what the Deployment had is gone")
        cluster.reset()
        assert api.get(SYSTEM).json["metadata"]["uid"] != uid
        assert api.get(f"{CONFIGMAPS}/c", expect=404)
