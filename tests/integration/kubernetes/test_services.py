"""Services over HTTP: each address and node port is given out once in a workspace, kept, and released."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.clients.api import APPLY, MERGE, STRATEGIC, Api, Object, eventually, workspace_under
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
NAMESPACES = "/api/v1/namespaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"
WRITERS, EACH = 8, 5


def service(name: str, type: str = "ClusterIP", *, node_port: int = 0, **spec: object) -> Object:
    port = {"port": 80, **({"nodePort": node_port} if node_port else {})}
    spec = {"type": type, "selector": {"app": name}, "ports": [port], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def address(kube: Api, name: str = "web") -> str:
    return str(kube.get(f"{SERVICES}/{name}").json["spec"]["clusterIP"])


def owners(kube: Api) -> dict[str, str]:
    """The names of the Services that hold an address, by address; without that of the API itself."""
    found = kube.get(ADDRESSES).json["items"]
    names = {each["metadata"]["name"]: each["spec"]["parentRef"]["name"] for each in found}
    return {address: name for address, name in names.items() if name != "kubernetes"}


def test_an_address_comes_with_a_service_and_goes_with_it(kube: Api) -> None:
    made = kube.post(SERVICES, service("web")).json["spec"]
    assert made["clusterIPs"] == [made["clusterIP"]]
    assert (made["ipFamilies"], made["ipFamilyPolicy"], made["sessionAffinity"]) == (["IPv4"], "SingleStack", "None")
    assert owners(kube) == {made["clusterIP"]: "web"}
    kube.delete(f"{SERVICES}/web")
    assert owners(kube) == {}
    kube.post(SERVICES, service("next", clusterIP=made["clusterIP"]))
    assert owners(kube) == {made["clusterIP"]: "next"}


def test_numbers_that_are_taken_or_out_of_range_are_refused(kube: Api) -> None:
    kube.post(SERVICES, service("web", "NodePort", node_port=30080, clusterIP="10.96.0.20"))
    said = kube.post(SERVICES, service("a", clusterIP="10.96.0.20"), expect=422).message
    assert said == (
        'Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.20"]: failed to allocate IP 10.96.0.20: '
        "provided IP is already allocated"
    )
    said = kube.post(SERVICES, service("a", "NodePort", node_port=30080), expect=422).message
    assert said == (
        'Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated'
    )
    assert "not in the valid range" in kube.post(SERVICES, service("a", "NodePort", node_port=80), expect=422).message
    kube.post(SERVICES, service("a"))
    port = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}
    for media_type in (MERGE, STRATEGIC):
        assert "already allocated" in kube.patch(f"{SERVICES}/a", port, media_type, expect=422).message
    assert len(owners(kube)) == 2


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC, APPLY])
def test_every_way_to_write_gives_and_releases(kube: Api, media_type: str) -> None:
    kube.post(SERVICES, service("web"))
    before, path = address(kube), f"{SERVICES}/web"
    query = "?fieldManager=test&force=true" if media_type == APPLY else ""

    def change(**spec: object) -> Object:
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        changed: Object = kube.patch(path + query, body, media_type).json["spec"]
        return changed

    ported = change(type="NodePort", ports=[{"port": 80, "protocol": "TCP"}])
    assert 30000 <= ported["ports"][0]["nodePort"] <= 32767
    assert ported["clusterIP"] == before
    assert "nodePort" not in change(type="ClusterIP", ports=[{"port": 80, "protocol": "TCP"}])["ports"][0]
    bare = change(type="ExternalName", externalName="a.example", ports=[{"port": 80, "protocol": "TCP"}])
    assert not bare.keys() & {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
    assert owners(kube) == {}


def test_the_same_manifest_again_changes_nothing(kube: Api) -> None:
    made = kube.post(SERVICES, service("web", "NodePort")).json
    manifest = service("web", "NodePort")
    manifest["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    again = kube.put(f"{SERVICES}/web", manifest).json
    assert again["spec"] == made["spec"]
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_dry_run_takes_nothing(kube: Api) -> None:
    assert kube.post(f"{SERVICES}?dryRun=All", service("web", "NodePort")).json["spec"]["clusterIP"]
    assert owners(kube) == {}


def test_collections_and_namespaces_release_what_their_services_hold(kube: Api) -> None:
    for number in range(3):
        kube.post(SERVICES, service(f"s{number}", "NodePort", node_port=30080 + number))
    kube.delete(SERVICES + "?labelSelector=!provider")
    assert owners(kube) == {}
    kube.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "away"}})
    kube.post(SERVICES.replace("default", "away"), service("web", "NodePort", node_port=30080))
    kube.delete(f"{NAMESPACES}/away")
    eventually(lambda: owners(kube) == {}, "the address of a Service in a deleted namespace is released")
    kube.post(SERVICES, service("web", "NodePort", node_port=30080))


def test_an_ipaddress_that_a_service_holds_stays(kube: Api) -> None:
    kube.post(SERVICES, service("web"))
    said = kube.delete(f"{ADDRESSES}/{address(kube)}", expect=403).message
    assert said.endswith("is forbidden: Service default/web has this address")


def test_workspaces_have_numbers_of_their_own(kube: Api, admin: Api) -> None:
    kube.post(SERVICES, service("web", "NodePort", node_port=30080, clusterIP="10.96.0.20"))
    other = admin.at(workspace_under(admin, type_="kubernetes"))
    other.post(SERVICES, service("web", "NodePort", node_port=30080, clusterIP="10.96.0.20"))
    other.close()


def test_a_binding_that_goes_leaves_no_number_taken(kube: Api) -> None:
    wish = service("web", "NodePort", node_port=30080, clusterIP="10.96.0.20")
    kube.post(SERVICES, wish)
    (binding,) = (
        each for each in kube.get(BINDINGS).json["items"] if each["spec"]["reference"]["export"]["name"] == "kubernetes"
    )
    path = f"{BINDINGS}/{binding['metadata']['name']}"
    kube.delete(path)
    eventually(lambda: kube.send("GET", path).code == 404, "the binding goes")
    again = {key: binding[key] for key in ("apiVersion", "kind", "spec")}
    kube.post(BINDINGS, {**again, "metadata": {"name": "again"}})
    eventually(lambda: kube.send("GET", SERVICES).code == 200, "the kinds are served again")
    kube.post(SERVICES, wish)


def test_kubectl_exposes_a_deployment(kube: Api, shard: ShardProcess, tmp_path: Path) -> None:
    kubectl, server = Kubectl(tmp_path, shard.kubeconfig), f"--server={shard.url}{kube.prefix}"
    kubectl.ok(server, "create", "deployment", "web", "--image=web:1", "--port=80")
    kubectl.ok(server, "expose", "deployment", "web", "--type=NodePort")
    assert address(kube) in kubectl.ok(server, "get", "service", "web")


# --- many writers


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("workers"), "--workers", "2") as running:
        yield running


def race(server: ShardProcess, cluster: str) -> None:
    """Writers of one workspace create Services at the same time, some with the same wishes.

    What they wish lies in the low ranges, from which nothing is given out while the high ones have room.
    """

    def write(writer: int) -> list[int]:
        api = Api(server, cluster)
        codes = [api.send("POST", SERVICES, service(f"w{writer}-{at}", "NodePort")).code for at in range(EACH)]
        wish = service(f"w{writer}", "NodePort", node_port=30050, clusterIP="10.96.0.77")
        codes.append(api.send("POST", SERVICES, wish).code)
        api.close()
        return codes

    with ThreadPoolExecutor(WRITERS) as pool:
        answered = list(pool.map(write, range(WRITERS)))
    assert all(codes[:-1] == [201] * EACH for codes in answered)
    assert sorted(codes[-1] for codes in answered) == [201, *[422] * (WRITERS - 1)]
    kube = Api(server, cluster)
    made = [each["spec"] for each in kube.get(SERVICES).json["items"] if each["metadata"]["name"] != "kubernetes"]
    assert len(made) == WRITERS * EACH + 1
    assert (
        len({each["clusterIP"] for each in made}) == len({each["ports"][0]["nodePort"] for each in made}) == len(made)
    )
    assert owners(kube).keys() == {each["clusterIP"] for each in made}
    kube.close()


def test_writers_at_the_same_time_share_no_number(kube: Api, shard: ShardProcess) -> None:
    race(shard, kube.cluster)


@pytest.mark.long
def test_writers_at_several_workers_share_no_number(workers: ShardProcess) -> None:
    admin = Api(workers, "root")
    race(workers, workspace_under(admin, type_="kubernetes"))
    admin.close()
