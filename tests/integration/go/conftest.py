"""One shard for the Go programs of this folder, and a workspace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.go_programs import go
from harness.clients.kubectl import entered
from harness.servers.shard_process import ShardProcess


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    go()
    with ShardProcess(tmp_path_factory.mktemp("shard")) as running:
        yield running


@pytest.fixture
def workspace(shard: ShardProcess, tmp_path: Path) -> Path:
    """A kubeconfig whose current context is a new workspace."""
    return entered(shard.kubeconfig, tmp_path)


@pytest.fixture
def kubernetes_workspace(shard: ShardProcess, tmp_path: Path) -> Path:
    """The same of a workspace that serves Deployments, Services and Kubernetes' other kinds."""
    return entered(shard.kubeconfig, tmp_path, "--type=root:kubernetes")
