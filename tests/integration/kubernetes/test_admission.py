"""What kube-apiserver's own admission and storage do to Pods, Jobs, volumes and their bounds, over HTTP."""

from __future__ import annotations

import pytest

from harness.clients.api import APPLY, MERGE, STRATEGIC, Api, Object

NAMESPACE = "/api/v1/namespaces/default"
PODS, CLAIMS, RANGES = f"{NAMESPACE}/pods", f"{NAMESPACE}/persistentvolumeclaims", f"{NAMESPACE}/limitranges"
ACCOUNTS, VOLUMES, NODES = f"{NAMESPACE}/serviceaccounts", "/api/v1/persistentvolumes", "/api/v1/nodes"
JOBS, DAEMONS = "/apis/batch/v1/namespaces/default/jobs", "/apis/apps/v1/namespaces/default/daemonsets"
CLASSES, PRIORITIES = "/apis/storage.k8s.io/v1/storageclasses", "/apis/scheduling.k8s.io/v1/priorityclasses"


def of(api_version: str, kind: str, name: str, **fields: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def pod(name: str = "web", resources: Object | None = None, **spec: object) -> Object:
    container = {"name": "main", "image": "web:1", **({"resources": resources} if resources else {})}
    return of("v1", "Pod", name, spec={"containers": [container], **spec})


def limits(kind: str, **amounts: object) -> Object:
    return of("v1", "LimitRange", "limits", spec={"limits": [{"type": kind, **amounts}]})


def claim(storage: str = "1Gi", **spec: object) -> Object:
    resources = {"requests": {"storage": storage}}
    return of(
        "v1", "PersistentVolumeClaim", "data", spec={"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
    )


def test_a_new_pod_is_as_kube_apiserver_makes_it(kube: Api) -> None:
    made = kube.post(PODS, pod(serviceAccountName="default")).json
    spec = made["spec"]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (spec["serviceAccount"], spec["priority"], spec["preemptionPolicy"]) == (
        "default",
        0,
        "PreemptLowerPriority",
    )
    assert [each["tolerationSeconds"] for each in spec["tolerations"]] == [300, 300]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/var/run/secrets/kubernetes.io/serviceaccount")
    again = kube.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC).json
    assert (again["spec"], again["status"]) == (spec, made["status"])


def test_what_the_client_says_of_a_status_does_not_count(kube: Api) -> None:
    body = {**pod(), "status": {"phase": "Running"}}
    assert kube.post(PODS, body).json["status"]["phase"] == "Pending"
    body = {**claim(), "status": {"phase": "Bound"}}
    assert kube.post(CLAIMS, body).json["status"] == {"phase": "Pending"}


def test_a_new_node_keeps_what_its_client_says_of_its_status(kube: Api) -> None:
    status = {"capacity": {"cpu": "4"}, "phase": "Running", "config": {"error": "old"}}
    made = kube.post(NODES, of("v1", "Node", "south", status=status)).json
    kept = {name: value for name, value in made["status"].items() if name in {*status, "allocatable"}}
    assert kept == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "phase": "Running"}
    refused = of("v1", "Node", "west", status={"capacity": {"cpu": "-4"}})
    assert "status.capacity.cpu" in kube.post(NODES, refused, expect=422).message
    changed = {"status": {"phase": "Terminated", "config": {"error": "old"}}}
    kube.patch(f"{NODES}/south", changed, MERGE)
    assert kube.get(f"{NODES}/south").json["status"] == made["status"]
    assert "config" not in kube.patch(f"{NODES}/south/status", changed, MERGE).json["status"]


def test_an_applied_pod_is_admitted_too(kube: Api) -> None:
    body = pod(serviceAccountName="robot")
    path = f"{PODS}/web?fieldManager=test"
    assert 'serviceaccount "robot" not found' in kube.patch(path, body, APPLY, expect=403).message
    kube.post(ACCOUNTS, of("v1", "ServiceAccount", "robot", imagePullSecrets=[{"name": "key"}]))
    made = kube.patch(path, body, APPLY, expect=201).json
    assert made["spec"]["imagePullSecrets"] == [{"name": "key"}]
    assert made["status"]["qosClass"] == "BestEffort"


def test_a_pod_is_refused_for_a_class_that_does_not_exist(kube: Api) -> None:
    said = kube.post(PODS, pod(priorityClassName="no"), expect=403).message
    assert said == 'pods "web" is forbidden: no PriorityClass with name no was found'
    said = kube.post(PODS, pod(runtimeClassName="no"), expect=403).message
    assert said == 'pods "web" is forbidden: pod rejected: RuntimeClass "no" not found'
    kube.post(PRIORITIES, of("scheduling.k8s.io/v1", "PriorityClass", "usual", value=7, globalDefault=True))
    assert kube.post(PODS, pod()).json["spec"]["priorityClassName"] == "usual"
    second = of("scheduling.k8s.io/v1", "PriorityClass", "second", value=7, globalDefault=True)
    assert "Only one default can exist" in kube.post(PRIORITIES, second, expect=403).message


def test_a_limit_range_completes_and_bounds_pods(kube: Api) -> None:
    kube.post(RANGES, limits("Container", default={"cpu": "500m"}, max={"cpu": "1"}))
    made = kube.post(PODS, pod()).json
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].startswith("LimitRanger plugin set: cpu")
    assert made["status"]["qosClass"] == "Burstable"
    said = kube.post(PODS, pod("big", {"limits": {"cpu": "2"}}), expect=403).message
    assert said == 'pods "big" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    grown = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}}
    said = kube.patch(f"{PODS}/web/resize", grown, STRATEGIC, expect=403).message
    assert said == 'pods "web" is forbidden: maximum cpu usage per Container is 1, but limit is 2'


def bind(kube: Api) -> None:
    """What a controller of volumes does: only then may a claim grow."""
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    kube.patch(f"{CLAIMS}/data/status", {"status": status}, MERGE)


def test_a_limit_range_bounds_claims(kube: Api) -> None:
    kube.post(RANGES, limits("PersistentVolumeClaim", max={"storage": "1Gi"}))
    said = kube.post(CLAIMS, claim("2Gi"), expect=403).message
    assert said.endswith("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")
    kube.post(CLAIMS, claim())
    bind(kube)
    grown = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    assert "maximum storage usage" in kube.patch(f"{CLAIMS}/data", grown, MERGE, expect=403).message


def test_a_claim_gets_the_default_class_and_grows_where_that_allows_it(kube: Api) -> None:
    body = of("storage.k8s.io/v1", "StorageClass", "fast", provisioner="example.com/disk")
    body["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    kube.post(CLASSES, body)
    assert kube.post(CLAIMS, claim()).json["spec"]["storageClassName"] == "fast"
    grown = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    assert "is immutable" in kube.patch(f"{CLAIMS}/data", grown, MERGE, expect=422).message
    bind(kube)
    said = kube.patch(f"{CLAIMS}/data", grown, MERGE, expect=403).message
    assert "the storageclass that provisions the pvc must support resize" in said
    kube.patch(f"{CLASSES}/fast", {"allowVolumeExpansion": True}, MERGE)
    made = kube.patch(f"{CLAIMS}/data", grown, MERGE).json
    assert made["spec"]["resources"]["requests"] == {"storage": "3Gi"}


def test_a_volume_notes_when_its_phase_changed(kube: Api) -> None:
    source = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
    status = kube.post(VOLUMES, of("v1", "PersistentVolume", "disk", spec=source)).json["status"]
    assert status.keys() == {"phase", "lastPhaseTransitionTime"}
    assert status["phase"] == "Pending"


def test_a_job_selects_its_own_pods(kube: Api) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "web:1"}]}}
    made = kube.post(JOBS, of("batch/v1", "Job", "once", spec={"template": template})).json
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "once"


def test_a_daemon_set_counts_its_templates_and_a_node_is_not_ready_at_first(kube: Api) -> None:
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    counter = "deprecated.daemonset.template.generation"
    made = kube.post(DAEMONS, of("apps/v1", "DaemonSet", "agent", spec=spec)).json
    assert made["metadata"]["annotations"][counter] == "1"
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}}
    assert kube.patch(f"{DAEMONS}/agent", image, STRATEGIC).json["metadata"]["annotations"][counter] == "2"
    taints = kube.post(NODES, of("v1", "Node", "north")).json["spec"]["taints"]
    assert taints == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


@pytest.mark.parametrize("path", [PODS, JOBS])
def test_a_body_without_a_spec_is_the_clients_error(kube: Api, path: str) -> None:
    body = of("v1", "Pod", "a") if path == PODS else of("batch/v1", "Job", "a")
    kube.post(path, body, expect=422)
