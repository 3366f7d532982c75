"""Clients of kcp, written in Go, on a site: tests/go, cmd/kcpclients."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api
from harness.clients.go_programs import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, go, verified
from harness.clients.site_workspaces import ready, workspace
from harness.servers.site import Site

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S + RUN_TIMEOUT_S))

CLIENTS = {
    "workspaces",
    "logical clusters",
    "export",
    "bindings",
    "endpoints",
    "older version",
    "wildcard list",
    "wildcard watch",
    "shards",
    "discovery",
    "conflict",
    "delete",
}


@pytest.fixture
def home(site: Site, admin: Api, tmp_path: Path) -> Path:
    """The site's kubeconfig, in a new workspace."""
    go()
    name = ready(admin, workspace(admin))["metadata"]["name"]
    document = yaml.safe_load(site.kubeconfig.read_text())
    current = next(each for each in document["clusters"] if each["name"] == document["current-context"])
    current["cluster"]["server"] += f":{name}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    kubeconfig.chmod(0o600)
    return kubeconfig


def addresses(site: Site, *names: str) -> list[str]:
    return [f"{name}={site.shards[name].url}" for name in names]


def test_cluster_aware_clients_of_kcp_work_over_two_shards(site: Site, home: Path) -> None:
    assert verified("kcpclients", home, *addresses(site, "shard-1", "root")).keys() == CLIENTS
