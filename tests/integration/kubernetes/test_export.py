"""The export `kubernetes` of root: a workspace of its type takes Deployments as a Kubernetes cluster does."""

from __future__ import annotations

from harness.clients.api import Api, Object

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str = "web", **spec: object) -> Object:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_a_workspace_of_type_kubernetes_takes_a_deployment(kube: Api) -> None:
    made = kube.post(DEPLOYMENTS, deployment()).json
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert made["metadata"]["generation"] == 1
    assert kube.get(DEPLOYMENTS).json["items"][0].keys() == {"metadata", "spec", "status"}
