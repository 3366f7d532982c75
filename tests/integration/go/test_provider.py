"""A provider's controller built on controller-runtime, through the virtual workspace: tests/go, cmd/provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.go_programs import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, verified
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S))

PROVIDER = {
    "export",
    "first binding",
    "empty",
    "consumers",
    "manager",
    "reconcile",
    "update",
    "later",
    "stranger",
    "unbind",
}


@pytest.mark.long
def test_a_manager_of_controller_runtime_serves_ten_consumers_of_an_export(workspace: Path) -> None:
    found = verified("provider", workspace)
    assert found.keys() == PROVIDER
    # One consumer left and one joined later.
    assert (found["reconcile"], found["unbind"]) == (10, 10)


@pytest.mark.long
def test_a_manager_of_controller_runtime_reconciles_the_claimed_deployments_of_ten_consumers(workspace: Path) -> None:
    found = verified("provider", workspace, "workloads")
    assert found.keys() == {"export", "consumers", "manager", "reconcile", "scale", "rejected", "delete"}
    # An eleventh has a Deployment too, and rejects the claim.
    assert (found["consumers"], found["reconcile"]) == (11, 10)


@pytest.mark.long
def test_a_manager_of_controller_runtime_serves_them_with_workers(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--workers", "2") as shard:
        Kubectl(tmp_path, shard.kubeconfig).ok("create", "workspace", "go", "--enter")
        assert verified("provider", shard.kubeconfig).keys() == PROVIDER
