"""Kubernetes' kinds on the wire: tables, watches, protobuf, subresources, both versions of autoscalers."""

from __future__ import annotations

import pytest

from harness.clients.api import MERGE, STRATEGIC, Api
from harness.data.kubernetes_objects import (
    DEPLOYMENTS,
    PODS,
    REVISIONS,
    SCALERS_V1,
    SCALERS_V2,
    autoscaler,
    deployment,
    pod,
)

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
FLOW = "flowcontrol.apiserver.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def test_a_table_has_kubernetes_columns(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment(replicas=2))
    table = kube.get(DEPLOYMENTS, accept=TABLE).json
    names = [each["name"] for each in table["columnDefinitions"]]
    assert names == ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]
    assert table["rows"][0]["cells"][:4] == ["web", "0/2", 0, 0]


def test_a_watch_sees_each_change(kube: Api) -> None:
    with kube.watch(f"{DEPLOYMENTS}?watch=1&resourceVersion=0") as events:
        kube.post(DEPLOYMENTS, deployment())
        kube.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}})
        kube.delete(f"{DEPLOYMENTS}/web")
        seen = [events.next() for _ in range(3)]
    assert [each.type for each in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[1].object["spec"]["replicas"] == 3
    assert seen[1].object["kind"] == "Deployment"


def test_protobuf_is_answered_to_those_who_accept_nothing_else(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment())
    assert kube.get(f"{DEPLOYMENTS}/web", accept=PROTOBUF).body.startswith(b"k8s\x00")
    assert kube.get(f"{DEPLOYMENTS}/web", accept=f"{PROTOBUF},application/json").json["kind"] == "Deployment"


def test_a_strategic_patch_merges_by_kubernetes_keys(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment())
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    changed = kube.patch(f"{DEPLOYMENTS}/web", patch, STRATEGIC).json
    assert [each["name"] for each in changed["spec"]["template"]["spec"]["containers"]] == ["side", "main"]


def test_annotations_of_a_deployment_count_as_a_change(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment())
    noted = kube.patch(f"{DEPLOYMENTS}/web", {"metadata": {"annotations": {"a": "1"}}}).json
    assert noted["metadata"]["generation"] == 2
    labelled = kube.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "1"}}}).json
    assert labelled["metadata"]["generation"] == 2


def test_a_priority_class_keeps_its_generation_and_a_driver_has_none_before_its_first_change(kube: Api) -> None:
    priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
    kube.post(priorities, {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    described = kube.patch(f"{priorities}/high", {"description": "first"}).json
    assert described["metadata"]["generation"] == 1
    drivers = "/apis/storage.k8s.io/v1/csidrivers"
    made = kube.post(drivers, {"kind": "CSIDriver", "metadata": {"name": "a.example.com"}, "spec": {}}).json
    assert "generation" not in made["metadata"]
    changed = kube.patch(f"{drivers}/a.example.com", {"spec": {"requiresRepublish": True}}).json
    assert changed["metadata"]["generation"] == 1


def test_what_a_typed_client_writes_as_null_is_accepted_and_what_it_leaves_out_is_a_zero(kube: Api) -> None:
    nodes = "/apis/storage.k8s.io/v1/csinodes"
    made = kube.post(nodes, {"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": None}}).json
    assert made["spec"] == {}
    services = "/api/v1/namespaces/default/services"
    kube.post(services, {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    condition = {"type": "A", "status": "True", "lastTransitionTime": None}
    changed = kube.patch(f"{services}/s/status", {"status": {"conditions": [condition]}}).json
    assert changed["status"]["conditions"] == [{"type": "A", "status": "True", "reason": "", "message": ""}]
    nameless = {"metadata": {"name": "p"}, "spec": {"containers": [{"image": "a"}]}}
    refused = kube.post(PODS, {"kind": "Pod", **nameless}, expect=422).json
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.containers[0].name"]


def test_status_takes_annotations_and_leaves_spec_and_labels(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment())
    body = {"metadata": {"labels": {"a": "1"}, "annotations": {"a": "1"}}, "spec": {"replicas": 9}}
    changed = kube.patch(f"{DEPLOYMENTS}/web/status", {**body, "status": {"readyReplicas": 1, "replicas": 1}}).json
    assert changed["status"]["readyReplicas"] == 1
    assert changed["spec"]["replicas"] == 1
    assert changed["metadata"]["annotations"]["a"] == "1"
    assert "labels" not in changed["metadata"]


def test_scale_has_the_selector_of_the_deployment(kube: Api) -> None:
    kube.post(DEPLOYMENTS, deployment(replicas=2))
    scale = kube.get(f"{DEPLOYMENTS}/web/scale").json
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    kube.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}})
    assert kube.get(f"{DEPLOYMENTS}/web").json["spec"]["replicas"] == 5


def test_a_pod_is_resized_and_gets_ephemeral_containers_through_subresources_alone(kube: Api) -> None:
    small = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}
    kube.post(PODS, pod(containers=[small]))
    container = {"name": "main", "image": "other:1", "resources": {"requests": {"cpu": "2"}}}
    resized = kube.patch(f"{PODS}/one/resize", {"spec": {"containers": [container]}}, STRATEGIC).json
    assert resized["spec"]["containers"][0]["image"] == "web:1"
    assert resized["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert resized["metadata"]["generation"] == 2
    debug = {"name": "debug", "image": "debug:1"}
    patch = {"spec": {"ephemeralContainers": [debug], "nodeName": "n"}}
    changed = kube.patch(f"{PODS}/one/ephemeralcontainers", patch, STRATEGIC).json
    assert [each["name"] for each in changed["spec"]["ephemeralContainers"]] == ["debug"]
    assert "nodeName" not in changed["spec"]


def test_pods_are_selected_by_kubernetes_fields(kube: Api) -> None:
    for name, node in (("one", "a"), ("two", "b")):
        kube.post(PODS, pod(name, nodeName=node))
    found = kube.get(f"{PODS}?fieldSelector=spec.nodeName%3Db,status.phase!%3DRunning").json["items"]
    assert [each["metadata"]["name"] for each in found] == ["two"]
    refused = kube.get(f"{PODS}?fieldSelector=spec.priority%3D1", expect=400)
    assert refused.message == "field label not supported: spec.priority"


def test_autoscalers_are_the_same_objects_in_both_versions(kube: Api) -> None:
    kube.post(SCALERS_V1, autoscaler("v1", targetCPUUtilizationPercentage=70))
    read = kube.get(f"{SCALERS_V2}/web").json
    target = {"type": "Utilization", "averageUtilization": 70}
    assert read["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    external = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}
    metrics = [{"type": "External", "external": external}, *read["spec"]["metrics"]]
    kube.patch(f"{SCALERS_V2}/web", {"spec": {"metrics": metrics}})
    old = kube.get(f"{SCALERS_V1}/web").json
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "queue" in old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"]
    old["spec"]["maxReplicas"] = 9
    kube.put(f"{SCALERS_V1}/web", old)
    assert kube.get(f"{SCALERS_V2}/web").json["spec"]["metrics"] == metrics
    assert [each["spec"]["maxReplicas"] for each in kube.get(SCALERS_V1).json["items"]] == [9]
    kube.patch(f"{SCALERS_V1}/web", {"spec": {"minReplicas": 2}}, MERGE)
    assert kube.get(f"{SCALERS_V2}/web").json["spec"]["minReplicas"] == 2


def test_the_data_of_a_revision_may_be_any_object_also_in_lists(kube: Api) -> None:
    data = {"a": None, "kind": "ControllerRevision", "metadata": {"name": "inner"}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "r"},
        "revision": 1,
        "data": data,
    }
    kube.post(REVISIONS, body)
    assert kube.get(f"{REVISIONS}/r").json["data"] == data
    assert kube.get(REVISIONS).json["items"][0]["data"] == data
    assert "kind" not in kube.get(REVISIONS).json["items"][0]


def test_a_revision_is_patched_updated_listed_and_deleted_with_its_collection(kube: Api) -> None:
    owner = kube.post("/apis/apps/v1/namespaces/default/daemonsets", {**deployment(), "kind": "DaemonSet"}).json
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "first", "labels": {"app": "web"}, "ownerReferences": [{**reference, "controller": True}]}
    data = {"spec": {"template": owner["spec"]["template"]}}
    first = kube.post(REVISIONS, {"kind": "ControllerRevision", "metadata": metadata, "revision": 1, "data": data}).json
    second = {"kind": "ControllerRevision", "metadata": {**metadata, "name": "second"}, "revision": 2, "data": data}
    kube.post(REVISIONS, second)
    patched = kube.patch(f"{REVISIONS}/first", {"metadata": {"labels": {"is": "patched"}}}, STRATEGIC).json
    assert (patched["metadata"]["labels"], patched["data"]) == ({"app": "web", "is": "patched"}, data)
    put = kube.put(f"{REVISIONS}/first", {**patched, "revision": 3}).json
    assert put["revision"] == 3
    assert kube.put(f"{REVISIONS}/first", {**put, "data": {"a": 1}}, expect=422).json["reason"] == "Invalid"
    found = kube.get("/apis/apps/v1/controllerrevisions?labelSelector=app%3Dweb").json["items"]
    assert [each["metadata"]["name"] for each in found] == ["first", "second"]
    kube.delete(f"{REVISIONS}?labelSelector=is%3Dpatched")
    assert kube.get(f"{REVISIONS}/first", expect=404).json["details"]["name"] == first["metadata"]["name"]
    kube.get(f"{REVISIONS}/second")


def test_a_budget_takes_a_status_and_is_deleted_with_its_collection(kube: Api) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    for name in ("one", "two"):
        kube.post(
            budgets, {"kind": "PodDisruptionBudget", "metadata": {"name": name, "labels": {"a": name}}, "spec": spec}
        )
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    told = kube.patch(
        f"{budgets}/one/status", {"status": {**status, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}}
    ).json
    assert (told["spec"], told["status"]["disruptedPods"]) == (spec, {"p": "2026-01-01T00:00:00Z"})
    put = kube.put(f"{budgets}/one/status", {**told, "status": {**status, "disruptionsAllowed": 0}}).json
    assert put["status"]["disruptionsAllowed"] == 0
    changed = kube.patch(f"{budgets}/one", {"spec": {"minAvailable": "50%"}}).json
    assert (changed["spec"]["minAvailable"], changed["metadata"]["generation"]) == ("50%", 2)
    assert changed["status"] == put["status"]
    assert len(kube.get("/apis/policy/v1/poddisruptionbudgets").json["items"]) == 2
    kube.delete(f"{budgets}?labelSelector=a%3Done")
    assert [each["metadata"]["name"] for each in kube.get(budgets).json["items"]] == ["two"]


@pytest.mark.parametrize("subresource", ["log", "eviction", "binding", "exec", "attach", "portforward", "proxy/a/b"])
def test_what_only_nodes_serve_is_not_found(kube: Api, subresource: str) -> None:
    kube.post(PODS, pod())
    found = kube.send(
        "POST" if subresource in ("eviction", "binding") else "GET", f"{PODS}/one/{subresource}", {}, expect=404
    )
    assert "there are no nodes" in found.message


def test_there_are_no_component_statuses_and_nothing_behind_services_and_nodes(kube: Api) -> None:
    statuses = "/api/v1/componentstatuses"
    assert kube.get(statuses).json["items"] == []
    kube.get(f"{statuses}/etcd-0", expect=404)
    body = {"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": "etcd-0"}}
    for verb, path in (("POST", statuses), ("PUT", f"{statuses}/etcd-0"), ("DELETE", f"{statuses}/etcd-0")):
        kube.send(verb, path, body, expect=405)
    for path in ("/api/v1/namespaces/default/services/kubernetes/proxy", "/api/v1/nodes/one/proxy/metrics"):
        assert "there are no nodes" in kube.get(path, expect=404).message


def test_a_body_of_a_wrong_type_cannot_be_handled(kube: Api) -> None:
    refused = kube.post(DEPLOYMENTS, deployment(replicas="many"), expect=400)
    assert refused.message.startswith('Deployment in version "v1" cannot be handled as a Deployment')


def test_flow_control_is_stored_with_a_warning(kube: Api) -> None:
    spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}
    kind = "PriorityLevelConfiguration"
    body = {"apiVersion": f"{FLOW}/v1", "kind": kind, "metadata": {"name": "mine"}, "spec": spec}
    made = kube.post(f"/apis/{FLOW}/v1/prioritylevelconfigurations", body)
    assert any("do not steer this server" in each for each in made.warnings)
