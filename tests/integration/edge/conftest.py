"""A shard with the edge service and its controllers, shared by the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.clients.kubectl import Kubectl
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import EdgeControllers, edge_init
from harness.servers.mutant_shard import MutantShard
from integration.edge.placed import BUILT_IN


@pytest.fixture(scope="package")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredNats]:
    """The NATS server with the changes of the shard."""
    with ConfiguredNats(tmp_path_factory.mktemp("nats"), "--shards", "root", "--edge", "edge-0,edge-1") as running:
        yield running


@pytest.fixture(scope="package")
def edge(nats: ConfiguredNats, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    with MutantShard(tmp_path_factory.mktemp("edge"), *nats.flags("shard-root")) as running:
        edge_init(running, running.root.parent / "edge.kubeconfig")
        yield running


def are_ready(api: Api, *names: str) -> bool:
    found = [api.get(f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}").json for name in names]
    return all(each["status"]["phase"] == "Ready" for each in found)


@pytest.fixture(scope="package", autouse=True)
def controllers(nats: ConfiguredNats, edge: MutantShard) -> Iterator[EdgeControllers]:
    directory = edge.root.parent
    flags = (*nats.flags("edge-0"), "--edge-resources", BUILT_IN)
    with EdgeControllers(directory / "controllers", directory / "edge.kubeconfig", *flags) as running:
        api = Api(edge, "root")
        eventually(lambda: are_ready(api, "imw1", "wmw1"), "the workspaces are initialized")
        api.close()
        yield running


@pytest.fixture(scope="package")
def root(edge: MutantShard) -> Iterator[Api]:
    """kcp-admin in `root`."""
    api = Api(edge, "root")
    yield api
    api.close()


@pytest.fixture
def kubectl(edge: MutantShard, tmp_path: Path) -> Kubectl:
    """kubectl in the workspace for workloads."""
    found = Kubectl(tmp_path, tmp_path / "kubeconfig")
    found.kubeconfig.write_bytes(edge.kubeconfig.read_bytes())
    found.ok("ws", "root:wmw1")
    return found
