"""A workspace of type `kubernetes`, which serves Kubernetes' own kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, workspace_under
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess


@pytest.fixture
def kube(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace of type `kubernetes`."""
    here = admin.at(workspace_under(admin, type_="kubernetes"))
    yield here
    here.close()


@pytest.fixture
def kubectl(kube: Api, shard: ShardProcess, tmp_path: Path) -> Kubectl:
    """kubectl in that workspace."""
    kubeconfig = tmp_path / "kubeconfig"
    config = yaml.safe_load(shard.kubeconfig.read_text())
    for each in config["clusters"]:
        base = each["cluster"]["server"].partition("/clusters/")[0]
        each["cluster"]["server"] = f"{base}/clusters/{kube.cluster}"
    kubeconfig.write_text(yaml.safe_dump(config))
    kubeconfig.chmod(0o600)
    return Kubectl(tmp_path, kubeconfig)
