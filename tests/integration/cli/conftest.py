"""One shard for the tests of this folder, and a kubectl of each kind with a kubeconfig of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.kubectl import SCRIPTS, Kubectl, kubectls
from harness.shard import ShardProcess


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard")) as shard:
        yield shard


@pytest.fixture(params=kubectls(), ids=lambda path: "pypi" if path.parent == SCRIPTS else "path")
def kubectl(request: pytest.FixtureRequest, shard: ShardProcess, tmp_path: Path) -> Kubectl:
    own = tmp_path / "admin.kubeconfig"
    shutil.copy(shard.kubeconfig, own)
    return Kubectl(tmp_path, own, request.param)
