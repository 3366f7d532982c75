"""Kubernetes' kinds in protobuf: what typed clients send is stored, and the answer is the object that JSON shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds import protobuf_wire as wire
from atoll.machinery.kinds.native_schemas import drop_nulls
from atoll.machinery.kinds.protobuf_encoder import encode
from atoll.machinery.kinds.protobuf_table import message_of
from harness.clients.api import Api, Object, eventually
from harness.data.kubernetes_objects import PODS, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"
MACHINERY, POD_KIND = "io.k8s.apimachinery.pkg.apis.meta.v1.", {"apiVersion": "v1", "kind": "Pod"}
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


def list_of(body: bytes) -> tuple[tuple[str, str], Object, list[Object]]:
    """Group and version with kind, metadata and items of a list, with the type of the items."""
    parts = protobuf._spans_by_number(body, 4, len(body))
    meta = protobuf._spans_by_number(body, *parts[1])
    version, kind = wire.text(body, *meta[1]), wire.text(body, *meta[2])
    fields = protobuf._spans_by_number(body, *parts[2])
    metadata = protobuf._read_message(protobuf._plan(f"{MACHINERY}ListMeta"), body, *fields[1], {}, 0)
    items = []
    for start, end in wire.spans(body, *parts[2], 2):
        message = message_of(version, kind.removesuffix("List"))
        assert message is not None
        item: Object = {"apiVersion": version, "kind": kind.removesuffix("List")}
        items.append(protobuf._read_message(protobuf._plan(message), body, start, end, item, 0))
    return (version, kind), metadata, items


@contextlib.contextmanager
def events_of(api: Api, path: str, form: str = "") -> Iterator[Callable[[], tuple[str, Object]]]:
    """What reads the next event of a watch in protobuf."""
    connection = api.open()
    with contextlib.closing(connection):
        connection.request("GET", api.prefix + path, headers=api.headers(f"{PROTOBUF}{form}"))
        response = connection.getresponse()
        assert response.headers["content-type"] == f"{PROTOBUF};stream=watch", response.read()[:2000]

        def read() -> tuple[str, Object]:
            event = response.read(int.from_bytes(response.read(4), "big"))
            parts = protobuf._spans_by_number(event, 0, len(event))
            raw = protobuf._spans_by_number(event, *parts[2])[1]
            return wire.text(event, *parts[1]), protobuf.decode(event[slice(*raw)])

        yield read


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


def test_a_list_is_the_one_that_json_shows(kube: Api) -> None:
    for name in ("one", "two", "three"):
        kube.post(PODS, pod(name))
    for query in ("", "?limit=2", "?labelSelector=a%3Db"):
        answer = kube.get(f"{PODS}{query}", accept=PROTOBUF)
        assert answer.header("content-type") == PROTOBUF
        kind, metadata, items = list_of(answer.body)
        expected = kube.get(f"{PODS}{query}").json
        assert kind == ("v1", "PodList")
        assert [plain(each) for each in items] == [plain({**POD_KIND, **each}) for each in expected["items"]]
        assert metadata["resourceVersion"] == expected["metadata"]["resourceVersion"]
        assert metadata.get("remainingItemCount") == expected["metadata"].get("remainingItemCount")
    after = list_of(kube.get(f"{PODS}?limit=2", accept=PROTOBUF).body)[1]["continue"]
    assert [each["metadata"]["name"] for each in list_of(kube.get(f"{PODS}?continue={after}", accept=PROTOBUF).body)[2]]
    partial = kube.get(PODS, accept=f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    kind, _, found = list_of(partial.body)
    assert kind == ("meta.k8s.io/v1", "PartialObjectMetadataList")
    assert [each["metadata"] for each in found] == [each["metadata"] for each in kube.get(PODS).json["items"]]
    kube.get(PODS, accept=f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", expect=406)
    assert kube.get(PODS, accept=f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/json").json["kind"] == "PodList"


def test_a_watch_sends_each_event_after_its_length(kube: Api) -> None:
    kube.post(PODS, pod("one"))
    path = f"{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with events_of(kube, path) as read:
        assert read() == ("ADDED", plain(kube.get(f"{PODS}/one").json))
        bookmark = read()
        assert bookmark[0] == "BOOKMARK"
        assert bookmark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        changed = kube.patch(f"{PODS}/one", {"metadata": {"labels": {"a": "b"}}}).json
        assert read() == ("MODIFIED", plain(changed))
        gone = kube.delete(f"{PODS}/one").json
        assert [read()[0], read()] == ["MODIFIED", ("DELETED", plain(gone))]
    with events_of(kube, f"{PODS}?watch=1", ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1") as read:
        made = kube.post(PODS, pod("two")).json
        type, found = read()
        assert (type, found["kind"], found["metadata"]) == ("ADDED", "PartialObjectMetadata", plain(made)["metadata"])
