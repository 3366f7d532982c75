"""A site whose processes are scraped, shared by the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import eventually
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site
from integration.monitoring.scraped import MAPS, WAIT_S


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    flags: dict[str, object] = {
        "audit_log_path": "-",
        "workers": 1,
        "egress_allow_cidr": "127.0.0.0/8",
        "logical_cluster_object_count_scan_interval": "1s",
    }
    with Site(tmp_path_factory.mktemp("site"), shards=2, flags=flags) as running:
        running.gateway.start()
        yield running


@pytest.fixture(scope="package")
def place(site: Site) -> str:
    """The path of a workspace on shard-1, to which the proxy leads."""
    root = site.proxy.api("root")
    path = f"root:{ready(root, workspace(root, selector=on('shard-1')))['metadata']['name']}"
    eventually(lambda: site.proxy.api(path).get(MAPS, expect=0).code == 200, "the proxy leads to it", WAIT_S)
    return path
