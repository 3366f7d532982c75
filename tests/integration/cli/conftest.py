"""One shard for the tests of this folder, with a user `bob` without rights; each kubectl has its own kubeconfig."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl, each_kubectl
from harness.servers.shard_process import ShardProcess


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory = tmp_path_factory.mktemp("shard")
    (directory / "tokens.csv").write_text("bob-token,bob,u-bob\n")
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv")) as shard:
        yield shard


@pytest.fixture(params=each_kubectl())
def kubectl(request: pytest.FixtureRequest, shard: ShardProcess, tmp_path: Path) -> Kubectl:
    own = tmp_path / "admin.kubeconfig"
    shutil.copy(shard.kubeconfig, own)
    return Kubectl(tmp_path, own, request.param)
