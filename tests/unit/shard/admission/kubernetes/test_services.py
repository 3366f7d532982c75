"""Addresses and node ports of Services: given out once, kept, released, and refused with kube-apiserver's texts."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.cluster_defaults import CIDRS
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.status import Forbidden, InternalError, Invalid
from atoll.machinery.meta.types import NODE_PORTS
from atoll.machinery.storage.contract import RevisionConflict
from atoll.shard.admission.kubernetes.ip_addresses import HeldAddresses
from atoll.shard.admission.kubernetes.services import Services
from harness.models.kubernetes_workspace import CLUSTER, KubernetesWorkspace

Object = dict[str, Any]
NETWORKING = "networking.k8s.io"
ADDRESS = "10.96.0.20"


@pytest.fixture
def here() -> KubernetesWorkspace:
    return KubernetesWorkspace([HeldAddresses(), Services()])


def service(type: str = "ClusterIP", *ports: Object, **spec: Any) -> Object:
    return {"spec": {"type": type, "ports": list(ports) or [{"port": 80, "protocol": "TCP"}], **spec}}


def address_key(here: KubernetesWorkspace, address: str) -> ObjectKey:
    return here.key("ipaddresses", address, group=NETWORKING, namespace="")


def port_key(port: int) -> ObjectKey:
    return ObjectKey(NODE_PORTS, CLUSTER, "", str(port))


def given(made: Object) -> list[int]:
    return [port["nodePort"] for port in made["spec"]["ports"]]


def changed(made: Object, **spec: Any) -> Object:
    return {"spec": {**made["spec"], **spec}}


def test_a_service_gets_an_address_of_the_range_and_an_ipaddress_names_it(here: KubernetesWorkspace) -> None:
    spec = here.create("services", "web", service())["spec"]
    assert ip_address(spec["clusterIP"]) in ip_network(CIDRS[0])
    assert (spec["clusterIPs"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == (
        [spec["clusterIP"]],
        ["IPv4"],
        "SingleStack",
    )
    record = here.stored(address_key(here, spec["clusterIP"]))
    assert record["spec"]["parentRef"] == {"group": "", "resource": "services", "namespace": "default", "name": "web"}
    assert record["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io"


def test_a_service_that_prefers_two_families_gets_an_address_of_each(here: KubernetesWorkspace) -> None:
    spec = here.create("services", "web", service(ipFamilyPolicy="PreferDualStack"))["spec"]
    assert spec["ipFamilies"] == ["IPv4", "IPv6"]
    assert [ip_address(each).version for each in spec["clusterIPs"]] == [4, 6]


def test_headless_and_external_services_get_no_address(here: KubernetesWorkspace) -> None:
    headless = here.create("services", "a", service(clusterIP="None", selector={"a": "b"}))["spec"]
    assert (headless["clusterIPs"], headless["ipFamilies"]) == (["None"], ["IPv4"])
    unselected = here.create("services", "b", service(clusterIP="None"))["spec"]
    assert (unselected["ipFamilyPolicy"], unselected["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])
    external = here.create("services", "c", {"spec": {"type": "ExternalName", "externalName": "a.example"}})["spec"]
    assert not external.keys() & {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
    assert {key.type.resource for key in here.records} == {"services"}


def test_an_address_that_is_asked_for_is_given_once(here: KubernetesWorkspace) -> None:
    here.create("services", "web", service(clusterIP="10.96.0.20"))
    said = r'spec\.clusterIPs: Invalid value: \["10\.96\.0\.20"\]: failed to allocate IP 10\.96\.0\.20: provided IP is'
    with pytest.raises(Invalid, match=said + " already allocated"):
        here.create("services", "other", service(clusterIP="10.96.0.20"))
    with pytest.raises(Invalid, match="the provided network does not match the current range"):
        here.create("services", "other", service(clusterIP="192.168.0.1"))


def test_two_writers_of_one_address_conflict_in_the_store(here: KubernetesWorkspace) -> None:
    """The second one was planned before the first was stored."""
    key = here.key("services", "late")
    metadata = {"name": "late", "namespace": "default", "uid": "0" * 32}
    late = here.review(key, "create", {"metadata": metadata, **service(clusterIP="10.96.0.20")}, None)
    frozen = KubernetesWorkspace(here.plugins)
    late.view = frozen
    here._run(late)
    here.create("services", "web", service(clusterIP="10.96.0.20"))
    with pytest.raises(RevisionConflict):
        here._apply(late.writes)


def test_a_record_that_is_taken_between_choice_and_validation_is_not_replaced(here: KubernetesWorkspace) -> None:
    metadata = {"name": "late", "namespace": "default", "uid": "0" * 32}
    late = here.review(
        here.key("services", "late"), "create", {"metadata": metadata, **service(clusterIP=ADDRESS)}, None
    )
    Services().mutate(late)
    here.create("services", "web", service(clusterIP=ADDRESS))
    Services().validate(late)
    with pytest.raises(RevisionConflict):
        here._apply(late.writes)


def test_an_address_is_released_with_its_service_and_with_its_type(here: KubernetesWorkspace) -> None:
    here.create("services", "web", service(clusterIP="10.96.0.20"))
    here.remove(here.key("services", "web"))
    assert not here.records
    made = here.create("services", "web", service(clusterIP="10.96.0.20"))
    spec = here.update(here.key("services", "web"), changed(made, type="ExternalName", externalName="a.example"))[
        "spec"
    ]
    assert not spec.keys() & {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
    assert address_key(here, "10.96.0.20") not in here.records


def test_a_service_under_deletion_releases_with_its_last_finalizer(here: KubernetesWorkspace) -> None:
    made = here.create("services", "web", {**service(clusterIP="10.96.0.20"), "metadata": {"finalizers": ["a/b"]}})
    key, going = here.key("services", "web"), {**made["metadata"], "deletionTimestamp": "2026-11-26T12:00:00Z"}
    here.update(key, {**made, "metadata": going})
    assert address_key(here, "10.96.0.20") in here.records
    here.update(key, {**made, "metadata": {**going, "finalizers": []}}, "status")
    assert address_key(here, "10.96.0.20") not in here.records


def test_an_address_whose_service_went_without_admission_is_free(here: KubernetesWorkspace) -> None:
    here.create("services", "web", service(clusterIP="10.96.0.20"))
    del here.records[here.key("services", "web")]
    here.create("services", "next", service(clusterIP="10.96.0.20"))
    assert here.stored(address_key(here, "10.96.0.20"))["spec"]["parentRef"]["name"] == "next"


def test_an_address_that_somebody_reserved_is_taken(here: KubernetesWorkspace) -> None:
    parent = {"group": "example.com", "resource": "gates", "name": "north"}
    here.add(address_key(here, "10.96.0.20"), {"spec": {"parentRef": parent}})
    with pytest.raises(Invalid, match="already allocated"):
        here.create("services", "web", service(clusterIP="10.96.0.20"))


def test_an_ipaddress_stays_as_long_as_a_service_holds_it(here: KubernetesWorkspace) -> None:
    here.create("services", "web", service(clusterIP="10.96.0.20"))
    with pytest.raises(Forbidden, match="Service default/web has this address"):
        here.remove(address_key(here, "10.96.0.20"))
    del here.records[here.key("services", "web")]
    here.remove(address_key(here, "10.96.0.20"))


def test_addresses_come_from_every_servicecidr_that_stays(here: KubernetesWorkspace) -> None:
    here.add(here.key("servicecidrs", "a", group=NETWORKING, namespace=""), {"spec": {"cidrs": ["10.1.0.0/30"]}})
    going = {"metadata": {"deletionTimestamp": "2026-11-26T12:00:00Z"}, "spec": {"cidrs": ["10.2.0.0/24"]}}
    here.add(here.key("servicecidrs", "b", group=NETWORKING, namespace=""), going)
    found = {here.create("services", name, service())["spec"]["clusterIP"] for name in ("a", "b")}
    assert found == {"10.1.0.1", "10.1.0.2"}
    with pytest.raises(InternalError, match='failed to allocate a serviceIP for Service "c": range is full'):
        here.create("services", "c", service())


def test_a_second_family_is_added_and_released_on_request_only(here: KubernetesWorkspace) -> None:
    made, key = here.create("services", "web", service()), here.key("services", "web")
    both = here.update(key, changed(made, ipFamilyPolicy="PreferDualStack"))
    assert len(both["spec"]["clusterIPs"]) == 2
    with pytest.raises(Invalid, match="must be 'SingleStack' to release the secondary cluster IP"):
        here.update(key, changed(both, clusterIPs=both["spec"]["clusterIPs"][:1]))
    one = here.update(key, changed(both, ipFamilyPolicy="SingleStack"))
    assert one["spec"]["clusterIPs"] == made["spec"]["clusterIPs"]
    assert address_key(here, both["spec"]["clusterIPs"][1]) not in here.records


def test_the_same_manifest_again_keeps_what_was_given_out(here: KubernetesWorkspace) -> None:
    manifest = service("NodePort", {"name": "a", "port": 80}, {"name": "b", "port": 81})
    made = here.create("services", "web", manifest)
    again = here.update(here.key("services", "web"), manifest)
    assert again["spec"] == made["spec"]


def test_node_ports_are_given_once_and_released_with_the_type(here: KubernetesWorkspace) -> None:
    made = here.create("services", "web", service("NodePort", {"port": 80, "nodePort": 30080}, {"port": 81}))
    assert given(made)[0] == 30080
    assert 30086 <= given(made)[1] <= 32767
    said = r"spec\.ports\[0\]\.nodePort: Invalid value: 30080: provided port is already allocated"
    with pytest.raises(Invalid, match=said):
        here.create("services", "other", service("NodePort", {"port": 80, "nodePort": 30080}))
    bare = here.update(here.key("services", "web"), changed(made, type="ClusterIP"))
    assert all("nodePort" not in port for port in bare["spec"]["ports"])
    assert port_key(30080) not in here.records


def test_a_node_port_outside_of_the_range_is_refused(here: KubernetesWorkspace) -> None:
    said = "provided port is not in the valid range. The range of valid ports is 30000-32767"
    with pytest.raises(Invalid, match=said):
        here.create("services", "web", service("NodePort", {"port": 80, "nodePort": 80}))


def test_ports_of_one_number_and_several_protocols_share_a_node_port(here: KubernetesWorkspace) -> None:
    ports = ({"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"})
    assert len(set(given(here.create("services", "dns", service("NodePort", *ports))))) == 1


def test_a_load_balancer_may_go_without_node_ports(here: KubernetesWorkspace) -> None:
    made = here.create("services", "web", service("LoadBalancer", allocateLoadBalancerNodePorts=False))
    assert "nodePort" not in made["spec"]["ports"][0]


def test_a_health_check_port_comes_and_goes_with_the_policy(here: KubernetesWorkspace) -> None:
    made = here.create("services", "web", service("LoadBalancer", externalTrafficPolicy="Local"))
    port = made["spec"]["healthCheckNodePort"]
    assert port_key(port) in here.records
    taken = service("LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=port)
    with pytest.raises(InternalError, match=f"failed to allocate requested HealthCheck NodePort {port}: provided port"):
        here.create("services", "other", taken)
    without = here.update(here.key("services", "web"), changed(made, externalTrafficPolicy="Cluster"))
    assert "healthCheckNodePort" not in without["spec"]
    assert port_key(port) not in here.records


def test_a_thousand_services_share_no_number(here: KubernetesWorkspace) -> None:
    made = [here.create("services", f"s{number}", service("NodePort")) for number in range(1000)]
    assert len({each["spec"]["clusterIP"] for each in made}) == len({given(each)[0] for each in made}) == 1000


def test_a_service_may_have_as_many_ports_as_there_are_and_no_more(here: KubernetesWorkspace) -> None:
    ports = [{"name": str(number), "port": number} for number in range(1, 2769)]
    assert len(set(given(here.create("services", "web", service("NodePort", *ports))))) == len(ports)
    with pytest.raises(InternalError, match="failed to allocate a nodePort: range is full"):
        here.create("services", "other", service("NodePort"))


def test_the_kinds_of_another_export_are_left_alone() -> None:
    elsewhere = KubernetesWorkspace([Services()], builtin=False)
    assert "clusterIP" not in elsewhere.create("services", "web", service())["spec"]
