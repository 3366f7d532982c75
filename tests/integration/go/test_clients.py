"""Programs built on client-go and controller-runtime, with their own defaults: tests/go, cmd/clients and
cmd/controller.

The programs name their checks. These tests run by default; on a machine with an empty Go cache the first test of a run
also downloads and compiles, which takes two minutes on two cores.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.go_programs import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, following, verified
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S))

CLIENTS = {
    "typed bodies are protobuf",
    "configmap",
    "secret",
    "namespace",
    "event",
    "access review",
    "token request",
    "patches",
    "apply",
    "watch",
    "leader election",
    "informer",
    "metadata informer",
    "dynamic client",
    "dynamic informer",
    "deployments",
    "discovery",
    "REST mapper",
    "openapi v2",
    "openapi v3",
    "pages",
}
CONTROLLER = {"definition", "manager", "reconcile", "update", "child", "scale", "no-op", "finalizer"}


def test_client_go_works_with_its_defaults(workspace: Path) -> None:
    assert verified("clients", workspace).keys() == CLIENTS


@pytest.mark.long
def test_client_go_works_without_watch_lists(workspace: Path) -> None:
    assert verified("clients", workspace, environment={"KUBE_FEATURE_WatchListClient": "false"}).keys() == CLIENTS


@pytest.mark.long
def test_client_go_works_with_workers(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--workers", "2") as shard:
        Kubectl(tmp_path, shard.kubeconfig).ok("create", "workspace", "go", "--enter")
        assert verified("clients", shard.kubeconfig).keys() == CLIENTS


def test_a_manager_of_controller_runtime_reconciles_a_custom_resource(workspace: Path) -> None:
    assert verified("controller", workspace).keys() == CONTROLLER


@pytest.mark.long
def test_typed_informers_follow_deployments_also_while_their_connections_are_cut(kubernetes_workspace: Path) -> None:
    assert verified("clients", kubernetes_workspace, "workloads").keys() == {"protobuf informer", "JSON informer"}


@pytest.mark.long
def test_an_informer_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        kubectl.ok("create", "workspace", "go", "--enter")
        # Of the administrators' tokens only this one stays valid after a restart.
        kubectl.ok("config", "set-context", "--current", "--user=shard-admin")
        kubectl.ok("create", "configmap", "before")
        with following(shard.kubeconfig) as informer:
            informer.until("synced")
            informer.until("added before")
            shard.kill()
            shard.start()
            kubectl.ok("create", "configmap", "after")
            informer.until("added after")
            kubectl.ok("delete", "configmap", "before")
            informer.until("deleted before")
            # No event came twice: the watch resumed at its last revision.
            assert informer.seen.count("added before") == 1
