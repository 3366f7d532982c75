"""Kubernetes' kinds in protobuf: what typed clients send is stored, and the answer is the object that JSON shows."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds.native_schemas import drop_nulls
from atoll.machinery.kinds.protobuf_encoder import encode
from harness.clients.api import Api, Object, eventually

PROTOBUF = "application/vnd.kubernetes.protobuf"
LABELS = {"app": "web"}
POD: Object = {"containers": [{"name": "main", "image": "web:1", "ports": [{"containerPort": 80}]}]}
TEMPLATE: Object = {"metadata": {"labels": LABELS}, "spec": POD}
SELECTED: Object = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
STORAGE = {"storage": "1Gi"}
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}
PATHS = {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
ONCE: Object = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
NAMED_PORT = {"name": "http", "port": 80, "targetPort": "web"}

#: Group and version, kind, plural, and the fields of an object.
CASES: list[tuple[str, str, str, Object]] = [
    ("v1", "Pod", "pods", {"spec": POD}),
    ("v1", "Service", "services", {"spec": {"selector": LABELS, "ports": [NAMED_PORT]}}),
    (
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": STORAGE}}},
    ),
    ("v1", "LimitRange", "limitranges", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
    ("v1", "PodTemplate", "podtemplates", {"template": TEMPLATE}),
    ("v1", "ReplicationController", "replicationcontrollers", {"spec": {"selector": LABELS, "template": TEMPLATE}}),
    ("apps/v1", "Deployment", "deployments", {"spec": SELECTED}),
    ("apps/v1", "ReplicaSet", "replicasets", {"spec": SELECTED}),
    ("apps/v1", "StatefulSet", "statefulsets", {"spec": {**SELECTED, "serviceName": "web"}}),
    ("apps/v1", "DaemonSet", "daemonsets", {"spec": SELECTED}),
    ("batch/v1", "Job", "jobs", {"spec": ONCE}),
    ("batch/v1", "CronJob", "cronjobs", {"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": ONCE}}}),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, "metrics": [METRIC]}},
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        {"spec": {"minAvailable": "50%", "selector": {"matchLabels": LABELS}}},
    ),
    ("networking.k8s.io/v1", "Ingress", "ingresses", {"spec": {"rules": [{"host": "example.com", "http": PATHS}]}}),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", {"spec": {"podSelector": {}, "ingress": [{}]}}),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"name": "http", "port": 80}]},
    ),
]


def path_of(version: str, plural: str) -> str:
    return f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/default/{plural}"


def plain(obj: Any) -> Object:
    drop_nulls(obj)
    return dict(obj)


@pytest.mark.parametrize(("version", "kind", "plural", "fields"), CASES, ids=[case[1] for case in CASES])
def test_a_body_is_stored_and_answered(kube: Api, version: str, kind: str, plural: str, fields: Object) -> None:
    eventually(lambda: kube.get("/api/v1/namespaces/default/serviceaccounts/default", expect=0).code == 200, "account")
    path = path_of(version, plural)
    sent = {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "labels": LABELS}, **fields}
    made = kube.send("POST", path, encode(sent), expect=201, kind=PROTOBUF, accept=PROTOBUF)
    assert made.header("content-type") == PROTOBUF
    read = kube.get(f"{path}/web", accept=PROTOBUF)
    assert read.header("content-type") == PROTOBUF
    found = protobuf.decode(read.body)
    assert found == protobuf.decode(made.body)
    assert found == plain(kube.get(f"{path}/web").json)
    assert (found["apiVersion"], found["kind"], found["metadata"]["labels"]) == (version, kind, LABELS)
    # What was read is put back without a change.
    again = kube.send("PUT", f"{path}/web", read.body, expect=200, kind=PROTOBUF, accept=PROTOBUF)
    assert protobuf.decode(again.body)["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
