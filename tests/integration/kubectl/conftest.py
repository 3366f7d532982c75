"""One shard, and kubectl: the newest of PyPI, and in the long tier the one on PATH, each named with its version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl, each_kubectl, kubectls
from harness.data.manifests import manifests_folder, sources
from harness.servers.shard_process import ShardProcess


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard")) as running:
        yield running


def _version(binary: Path) -> str:
    told = subprocess.run([binary, "version", "--client", "-o", "json"], capture_output=True, check=True, text=True)
    return str(json.loads(told.stdout)["clientVersion"]["gitVersion"])


@pytest.fixture(scope="module", params=each_kubectl())
def kubectl(request: pytest.FixtureRequest, shard: ShardProcess, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl with a copy of the administrator's kubeconfig, so that its current workspace is its own."""
    directory = tmp_path_factory.mktemp("kubectl")
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(shard.kubeconfig.read_text())
    kubeconfig.chmod(0o600)
    print(f"{request.param} is {_version(request.param)}")
    return Kubectl(directory, kubeconfig, request.param)


@pytest.fixture(scope="module")
def manifests(kubectl: Kubectl) -> Path:
    """The folder of real projects' manifests: of one source with the first kubectl, of the other with the second."""
    found = sources()
    return manifests_folder(found[0] if kubectl.binary == str(kubectls()[0]) else found[-1])
