"""A center with the edge service, and plain Kubernetes clusters beside it, shared by the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.clients.api import Api, eventually
from harness.clients.kubectl import Kubectl
from harness.servers.edge_service import GROUP
from harness.servers.shard_process import ShardProcess
from integration.journeys.fleet import Clusters, Edge, Side

#: Names of the clusters, and of what they are registered as.
NAMES = {"florin": "one", "guilder": "two", "krone": "three"}


@pytest.fixture(scope="package")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    made = Clusters(tmp_path_factory.mktemp("clusters"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="package")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    """`atoll start --edge`, whose inventory is initialized."""
    with ShardProcess(tmp_path_factory.mktemp("center"), "--edge", "true") as running:
        inventory = Api(running, "root:imw1")
        eventually(lambda: inventory.send("GET", f"{GROUP}/synctargets").code == 200, "the inventory is initialized")
        inventory.close()
        yield running


@pytest.fixture(scope="package")
def in_center(center: ShardProcess, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Side]:
    """kubectl in a workspace of the center, with a kubeconfig of its own."""

    def entered(path: str) -> Side:
        directory = tmp_path_factory.mktemp("kubectl")
        made = Side(Kubectl(directory, directory / "kubeconfig"))
        made.kubectl.kubeconfig.write_bytes(center.kubeconfig.read_bytes())
        made.ok("ws", path)
        return made

    return entered


@pytest.fixture(scope="package")
def register(
    clusters: Clusters, in_center: Callable[[str], Side], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Edge]]:
    """Registers clusters of these names that are not yet, and returns them."""
    root, found = in_center("root"), dict[str, Edge]()

    def registered(*names: str) -> list[Edge]:
        for cluster, name in zip(clusters.named(*names), names, strict=True):
            if name not in found:
                found[name] = Edge(NAMES[name], Kubectl(tmp_path_factory.mktemp(name), cluster.kubeconfig), root)
                found[name].register("fleet=all")
        return [found[name] for name in names]

    return registered


@pytest.fixture(scope="package")
def fleet(register: Callable[..., list[Edge]]) -> list[Edge]:
    """Three clusters, registered."""
    return register(*NAMES)


@pytest.fixture(scope="package")
def edge(register: Callable[..., list[Edge]]) -> Edge:
    """One cluster, registered."""
    return register("florin")[0]


@pytest.fixture
def workspace(in_center: Callable[[str], Side], request: pytest.FixtureRequest) -> Iterator[Callable[[str], Side]]:
    """Makes workspaces for workloads, which are gone after the test."""
    root, made = in_center("root"), []

    def workload(name: str) -> Side:
        made.append(name)
        root.ok("kubestellar", "ensure", "wmw", name)
        return in_center(f"root:{name}")

    yield workload
    for name in made:
        root.ok("kubestellar", "remove", "wmw", name)
