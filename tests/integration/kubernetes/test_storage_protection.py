"""Claims and volumes that are in use stay until they are not; others go at once."""

from __future__ import annotations

from harness.clients.api import MERGE, Api, Object, eventually

CORE = "/api/v1"
CLAIMS, PODS = f"{CORE}/namespaces/default/persistentvolumeclaims", f"{CORE}/namespaces/default/pods"
VOLUMES, CLASSES = f"{CORE}/persistentvolumes", "/apis/storage.k8s.io/v1/volumeattributesclasses"


def claim(name: str = "data", **spec: object) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def pod(node: str) -> Object:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "web:1"}], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}


def gone(api: Api, path: str) -> bool:
    return api.send("GET", path).code == 404


def test_a_claim_that_no_running_pod_mounts_goes_at_once(kube: Api) -> None:
    made = kube.post(CLAIMS, claim()).json
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    kube.delete(f"{CLAIMS}/data")
    eventually(lambda: gone(kube, f"{CLAIMS}/data"), "the claim is released")


def test_a_claim_stays_while_a_pod_on_a_node_mounts_it(kube: Api) -> None:
    kube.post(CLAIMS, claim())
    kube.post(CLAIMS, claim("other"))
    kube.post(PODS, pod("north"))
    for name in ("data", "other"):
        kube.delete(f"{CLAIMS}/{name}")
    eventually(lambda: gone(kube, f"{CLAIMS}/other"), "the other claim is released")
    assert kube.get(f"{CLAIMS}/data").json["metadata"]["deletionTimestamp"]
    kube.patch(f"{PODS}/web/status", {"status": {"phase": "Succeeded"}}, MERGE)
    eventually(lambda: gone(kube, f"{CLAIMS}/data"), "the claim is released with the end of its pod")


def test_a_bound_volume_stays_until_it_is_released(kube: Api) -> None:
    source = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
    kube.post(VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": source})
    kube.patch(f"{VOLUMES}/disk/status", {"status": {"phase": "Bound"}}, MERGE)
    kube.delete(f"{VOLUMES}/disk")
    assert kube.get(f"{VOLUMES}/disk").json["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    kube.patch(f"{VOLUMES}/disk/status", {"status": {"phase": "Released"}}, MERGE)
    eventually(lambda: gone(kube, f"{VOLUMES}/disk"), "the volume is released")


def test_a_class_stays_while_a_claim_has_it(kube: Api) -> None:
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "fast"}}
    kube.post(CLASSES, {**body, "driverName": "example.com", "parameters": {"a": "b"}})
    kube.post(CLAIMS, claim(volumeAttributesClassName="fast"))
    kube.delete(f"{CLASSES}/fast")
    assert kube.get(f"{CLASSES}/fast").json["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
    kube.delete(f"{CLAIMS}/data")
    eventually(lambda: gone(kube, f"{CLASSES}/fast"), "the class is released with its claim")


def test_a_namespace_with_claims_goes(kube: Api) -> None:
    kube.post(f"{CORE}/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "away"}})
    kube.post(CLAIMS.replace("default", "away"), claim())
    kube.delete(f"{CORE}/namespaces/away")
    eventually(lambda: gone(kube, f"{CORE}/namespaces/away"), "the namespace goes")
