"""What a workspace with Kubernetes' kinds has from its start."""

from __future__ import annotations

from harness.clients.api import Api, eventually

DEFAULT = "/api/v1/namespaces/default"
SERVICE, SLICES = f"{DEFAULT}/services/kubernetes", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CIDR = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_the_api_is_a_service_of_its_workspace(kube: Api) -> None:
    eventually(lambda: kube.send("GET", SERVICE).code == 200, "the Service is made")
    spec = kube.get(SERVICE).json["spec"]
    assert (spec["clusterIP"], spec["ports"][0]["name"]) == ("10.96.0.1", "https")
    cidr = kube.get(CIDR).json
    assert cidr["spec"]["cidrs"] == ["10.96.0.0/12", "fd00:10:96::/112"]
    assert [(each["type"], each["status"]) for each in cidr["status"]["conditions"]] == [("Ready", "True")]
    assert kube.get(f"{SLICES}/kubernetes").json["ports"] == [
        {"name": "https", "port": spec["ports"][0]["targetPort"], "protocol": "TCP"}
    ]
    kube.get(f"{DEFAULT}/endpoints/kubernetes")
    holder = kube.get("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1").json["spec"]["parentRef"]
    assert (holder["namespace"], holder["name"]) == ("default", "kubernetes")


def test_the_classes_of_the_system_are_there_and_what_is_deleted_stays_so(kube: Api) -> None:
    eventually(lambda: len(kube.get(CLASSES).json["items"]) == 2, "the classes are made")
    values = {each["metadata"]["name"]: each["value"] for each in kube.get(CLASSES).json["items"]}
    assert values == {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
    kube.delete(SERVICE)
    kube.get(SERVICE, expect=404)
