"""What is set before defaults: selectors of Jobs, pairs of fields, phases, generations."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.strategies import prepare_create, prepare_update

Object = dict[str, Any]
JOB, CLAIM = "io.k8s.api.batch.v1.Job", "io.k8s.api.core.v1.PersistentVolumeClaim"
DEPLOYMENT, SLICE = "io.k8s.api.apps.v1.Deployment", "io.k8s.api.discovery.v1.EndpointSlice"


def created(component: str, obj: Object) -> Object:
    prepare_create(component)(obj)
    once = copy.deepcopy(obj)
    prepare_create(component)(obj)
    assert obj == once
    return obj


def updated(component: str, obj: Object, old: Object) -> Object:
    prepare_update(component)(obj, old)
    return obj


def test_a_job_selects_its_pods_by_its_uid() -> None:
    spec = created(JOB, {"metadata": {"name": "a", "uid": "u"}, "spec": {"template": {"spec": {}}}})["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "job-name": "a",
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": "u",
        "batch.kubernetes.io/controller-uid": "u",
    }
    manual = {"metadata": {"name": "a", "uid": "u"}, "spec": {"manualSelector": True}}
    assert created(JOB, copy.deepcopy(manual)) == manual


def test_an_account_has_both_of_its_names() -> None:
    spec = {"template": {"spec": {"serviceAccount": "robot"}}}
    assert created(DEPLOYMENT, {"spec": spec})["spec"]["template"]["spec"] == {
        "serviceAccount": "robot",
        "serviceAccountName": "robot",
    }


def test_a_claim_is_pending_and_its_source_has_both_names() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "a"}
    made = created(CLAIM, {"spec": {"dataSource": source}})
    assert made["status"] == {"phase": "Pending"}
    assert made["spec"]["dataSourceRef"] == source
    assert created(CLAIM, {"spec": {"dataSourceRef": source}})["spec"]["dataSource"] == source
    elsewhere = {"dataSourceRef": {**source, "namespace": "b"}}
    assert created(CLAIM, {"spec": elsewhere})["spec"] == elsewhere
    unknown = {"dataSource": {"apiGroup": "example.com", "kind": "A", "name": "a"}}
    assert created(CLAIM, {"spec": dict(unknown)})["spec"] == {}
    assert "dataSource" in updated(CLAIM, {"spec": dict(unknown)}, {"spec": unknown})["spec"]


def test_annotations_of_a_deployment_and_labels_of_a_slice_count_as_a_generation() -> None:
    old = {"metadata": {"generation": 3, "annotations": {"a": "1", "kcp.io/cluster": "here"}}}
    same = {"metadata": {"generation": 3, "annotations": {"a": "1"}}}
    assert updated(DEPLOYMENT, same, old)["metadata"]["generation"] == 3
    other = {"metadata": {"generation": 3, "annotations": {"a": "2"}}}
    assert updated(DEPLOYMENT, other, old)["metadata"]["generation"] == 4
    labelled = {"metadata": {"generation": 3, "labels": {"a": "1"}}}
    assert updated(SLICE, labelled, {"metadata": {"generation": 3}})["metadata"]["generation"] == 4


def test_labels_of_a_former_version_are_dropped_from_new_endpoints_of_a_slice() -> None:
    endpoint = {"addresses": ["10.0.0.1"], "deprecatedTopology": {"a": "b"}}
    assert created(SLICE, {"endpoints": [dict(endpoint)]})["endpoints"] == [{"addresses": ["10.0.0.1"]}]
    old: Object = {"metadata": {}, "endpoints": [endpoint | {"conditions": {}}]}
    assert updated(SLICE, {"endpoints": [dict(endpoint)]}, old)["endpoints"] == [endpoint]
    moved = updated(SLICE, {"endpoints": [{**endpoint, "addresses": ["10.0.0.2"]}]}, old)
    assert moved["endpoints"] == [{"addresses": ["10.0.0.2"]}]


@pytest.mark.parametrize("component", [JOB, CLAIM, DEPLOYMENT, SLICE])
@pytest.mark.parametrize("shape", [None, [], "a", {"template": [], "selector": "a", "dataSource": 1}])
def test_other_shapes_are_left_to_the_schema(component: str, shape: Any) -> None:
    created(component, {"metadata": {"name": "a", "uid": "u"}, "spec": shape})
    updated(component, {"metadata": {}, "spec": shape}, {"metadata": {}, "spec": {}})
