"""Small objects of Kubernetes' kinds, and the paths of their collections in namespace default."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
PODS = "/api/v1/namespaces/default/pods"
SCALERS_V1, SCALERS_V2 = (
    f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers" for version in ("v1", "v2")
)


def deployment(name: str = "web", **spec: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def pod(name: str = "one", **spec: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "web:1"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def autoscaler(version: str, **spec: Any) -> Object:
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 4, **spec}
    kind = "HorizontalPodAutoscaler"
    return {"apiVersion": f"autoscaling/{version}", "kind": kind, "metadata": {"name": "web"}, "spec": spec}
