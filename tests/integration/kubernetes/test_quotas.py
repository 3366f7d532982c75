"""ResourceQuotas of what Pods, Services and claims use, over the wire: exact, and refused in Kubernetes' words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.clients.api import MERGE, Api, Object, eventually

NAMESPACE = "/api/v1/namespaces/default"
PODS, SERVICES, CLAIMS = (f"{NAMESPACE}/{plural}" for plural in ("pods", "services", "persistentvolumeclaims"))
QUOTAS = f"{NAMESPACE}/resourcequotas"
PROMPT_S = 60.0


@pytest.fixture
def api(kube: Api) -> Api:
    eventually(lambda: kube.get(f"{NAMESPACE}/serviceaccounts/default", expect=0).code == 200, "its account")
    return kube


def pod(name: str, requests: Object | None = None, limits: Object | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "web:1", "resources": {"requests": requests or {}, "limits": limits or {}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def service(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}, **spec}}


def quota(api: Api, name: str = "q", **spec: Any) -> None:
    api.post(QUOTAS, {"metadata": {"name": name}, "spec": spec})


def shows(api: Api, used: dict[str, str], name: str = "q") -> None:
    def status() -> Object:
        return dict(api.get(f"{QUOTAS}/{name}").json.get("status") or {})

    eventually(lambda: status().get("used") == used, f"{name} shows {used}", PROMPT_S)


def test_what_pods_request_is_summed_and_refused_in_kubernetes_words(api: Api) -> None:
    hard = {"requests.cpu": "1", "limits.memory": "1Gi", "pods": "5", "requests.example.com/gpu": "1"}
    quota(api, hard=hard)
    zero = {"limits.memory": "0", "pods": "0", "requests.cpu": "0", "requests.example.com/gpu": "0"}
    shows(api, zero)
    assert api.post(PODS, pod("bare"), expect=403).message == (
        'pods "bare" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )
    limits = {"memory": "512Mi", "example.com/gpu": "1"}
    api.post(PODS, pod("a", {"cpu": "600m"}, limits))
    shows(api, {**zero, "limits.memory": "512Mi", "pods": "1", "requests.cpu": "600m", "requests.example.com/gpu": "1"})
    for query in ("?dryRun=All", ""):
        assert api.post(PODS + query, pod("b", {"cpu": "500m"}, limits), expect=403).message == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=500m,requests.example.com/gpu=1, '
            "used: requests.cpu=600m,requests.example.com/gpu=1, limited: requests.cpu=1,requests.example.com/gpu=1"
        )
    api.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, MERGE)
    shows(api, zero)
    api.post(PODS, pod("b", {"cpu": "500m"}, limits))
    api.delete(f"{PODS}/b?gracePeriodSeconds=0")
    shows(api, zero)


def test_many_writers_use_exactly_what_is_allowed(api: Api) -> None:
    quota(api, hard={"requests.cpu": "1"})

    def write(number: int) -> int:
        own = api.at(api.cluster)
        code = own.post(PODS, pod(f"p{number}", {"cpu": "100m"}), expect=0).code
        own.close()
        return code

    with ThreadPoolExecutor(16) as writers:
        codes = list(writers.map(write, range(16)))
    assert (codes.count(201), codes.count(403)) == (10, 6)
    shows(api, {"requests.cpu": "1"})


def test_scopes_tell_best_effort_terminating_and_important_pods_apart(api: Api) -> None:
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    quota(api, "best", hard={"pods": "1"}, scopes=["BestEffort"])
    quota(api, "ends", hard={"pods": "9"}, scopes=["Terminating"])
    high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota(api, "high", hard={"pods": "0"}, scopeSelector={"matchExpressions": [high]})
    api.post(PODS, pod("a"))
    api.post(PODS, pod("b", {"cpu": "1"}, activeDeadlineSeconds=60))
    shows(api, {"pods": "1"}, "best")
    shows(api, {"pods": "1"}, "ends")
    assert "exceeded quota: best, " in api.post(PODS, pod("c"), expect=403).message
    important = pod("d", {"cpu": "1"}, priorityClassName="high")
    assert "exceeded quota: high, " in api.post(PODS, important, expect=403).message


def test_services_use_ports_of_nodes_and_load_balancers_also_when_their_type_changes(api: Api) -> None:
    quota(api, hard={"services.nodeports": "1", "services.loadbalancers": "1"})
    api.post(SERVICES, service("a"))
    api.post(SERVICES, service("b", type="NodePort"))
    shows(api, {"services.nodeports": "1", "services.loadbalancers": "0"})
    refused = api.patch(f"{SERVICES}/a", {"spec": {"type": "LoadBalancer"}}, MERGE, expect=403).message
    assert refused == (
        'services "a" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, '
        "limited: services.nodeports=1"
    )
    api.patch(f"{SERVICES}/b", {"spec": {"type": "ClusterIP"}}, MERGE)
    api.patch(f"{SERVICES}/a", {"spec": {"type": "LoadBalancer"}}, MERGE)
    shows(api, {"services.nodeports": "1", "services.loadbalancers": "1"})


def test_storage_of_claims_is_limited_in_all_and_by_class(api: Api) -> None:
    gold = "gold.storageclass.storage.k8s.io/"
    quota(api, hard={"requests.storage": "5Gi", f"{gold}requests.storage": "1Gi", f"{gold}persistentvolumeclaims": "9"})

    def claim(name: str, storage: str, **spec: str) -> Object:
        resources = {"requests": {"storage": storage}}
        return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}

    api.post(CLAIMS, claim("a", "1Gi", storageClassName="gold"))
    api.post(CLAIMS, claim("b", "3Gi", storageClassName="iron"))
    used = {"requests.storage": "4Gi", f"{gold}requests.storage": "1Gi", f"{gold}persistentvolumeclaims": "1"}
    shows(api, used)
    refused = api.post(CLAIMS, claim("c", "2Gi", storageClassName="gold"), expect=403).message
    assert refused == (
        'persistentvolumeclaims "c" is forbidden: exceeded quota: q, '
        f"requested: {gold}requests.storage=2Gi,requests.storage=2Gi, "
        f"used: {gold}requests.storage=1Gi,requests.storage=4Gi, "
        f"limited: {gold}requests.storage=1Gi,requests.storage=5Gi"
    )
