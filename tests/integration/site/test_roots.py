"""Roots beside `root`: a path and an id through the proxy, children on two shards, restarts, and a shard that lies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from atoll.machinery.meta import hashes
from harness.clients.api import Api, configmap, eventually
from harness.clients.kubectl import Kubectl
from harness.clients.site_workspaces import CLUSTER, CLUSTERS, on, ready, shard_of, workspace
from harness.servers.site import Site

pytestmark = pytest.mark.long

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SHARDS = "/apis/core.kcp.io/v1alpha1/shards"
ROOTS = "shards.atoll.dev/roots"


class Tenant(NamedTuple):
    """A root on shard-1, with a child on each shard, by shard."""

    path: str
    cluster: str
    owner: str
    children: dict[str, str]


@pytest.fixture(scope="module")
def kubectl(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(tmp_path_factory.mktemp("kubectl"), site.kubeconfig)


@pytest.fixture(scope="module")
def tenant(site: Site, kubectl: Kubectl) -> Iterator[Tenant]:
    path, owner = f"tenant:t-{uuid.uuid4().hex[:8]}", "owner-of-acme"
    said = kubectl.ok("atoll", "root", "create", path, "--shard", "shard-1", "--owner", owner)
    assert f'Root "{path}" (type root:organization) is ready on shard shard-1.' in said
    cluster = hashes.root_cluster_name(path)
    by_path = site.proxy.api(path, owner)
    served(by_path)
    children = {shard: workspace(by_path, selector=on(shard)) for shard in ("shard-1", "shard-2")}
    for shard, name in children.items():
        assert shard_of(ready(by_path, name)) == shard
    yield Tenant(path, cluster, owner, children)


def served(api: Api) -> None:
    eventually(lambda: api.send("GET", CONFIGMAPS).code == 200, f"{api.cluster} is served", 60.0)


def test_path_and_id_lead_to_it_through_the_proxy(site: Site, tenant: Tenant) -> None:
    by_path, by_id = (site.proxy.api(where, tenant.owner) for where in (tenant.path, tenant.cluster))
    by_path.post(CONFIGMAPS, configmap("inside"))
    assert by_id.get(f"{CONFIGMAPS}/inside").json["metadata"]["annotations"]["kcp.io/cluster"] == tenant.cluster
    made = by_id.get(CLUSTER).json
    assert made["status"]["URL"] == f"{site.proxy.url}/clusters/{tenant.cluster}"
    assert made["metadata"]["annotations"]["core.kcp.io/shard"] == "shard-1"
    assert site.proxy.api(tenant.path, "somebody").send("GET", CONFIGMAPS).code == 403


def test_children_lie_on_two_shards_below_its_path(site: Site, tenant: Tenant) -> None:
    for shard, name in tenant.children.items():
        child = site.proxy.api(f"{tenant.path}:{name}", tenant.owner)
        served(child)
        found = child.get(CLUSTER).json["metadata"]["annotations"]
        assert (found["kcp.io/path"], found["core.kcp.io/shard"]) == (f"{tenant.path}:{name}", shard)


def test_running_the_command_again_changes_nothing_and_another_shard_is_refused(
    kubectl: Kubectl, tenant: Tenant
) -> None:
    kubectl.ok("atoll", "root", "create", tenant.path, "--shard", "shard-1")
    refused = kubectl.run("atoll", "root", "create", tenant.path, "--shard", "shard-2")
    assert (refused.code, f'shard shard-1 holds root "{tenant.path}"' in refused.stderr) == (1, True)
    for path in ("tenant", "root:tenant", "user:tenant", "system:tenant", "a:B"):
        assert kubectl.run("atoll", "root", "create", path, "--shard", "shard-1").code == 1


def test_a_root_outlives_restarts_and_a_wiped_nats(site: Site, tenant: Tenant) -> None:
    for process in (site.proxy, site.shards["shard-1"], site.root):
        process.restart()
    site.nats.stop()
    site.nats.delete_store()
    site.nats.start()
    for name in tenant.children.values():
        served(site.proxy.api(f"{tenant.path}:{name}", tenant.owner))
    late = workspace(site.proxy.api(tenant.path, tenant.owner), selector=on("shard-2"))
    ready(site.proxy.api(tenant.path, tenant.owner), late)
    served(site.proxy.api(f"{tenant.path}:{late}", tenant.owner))


def test_a_shard_that_claims_a_path_it_may_not_have_is_ignored_and_noticed(site: Site, master: Api) -> None:
    path = f"tenant:s-{uuid.uuid4().hex[:8]}"
    cluster = hashes.root_cluster_name(path)
    annotations = {"kcp.io/path": path, "internal.tenancy.kcp.io/type": "root:universal"}
    body = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations},
    }
    stranger = site.shards["shard-2"].api(cluster, "shard-admin")
    before = refused(site)
    stranger.post(CLUSTERS, body)
    eventually(lambda: stranger.get(CLUSTER).json["status"].get("phase") == "Ready", "it stands on its shard")
    eventually(lambda: refused(site) > before, "the proxy counts it", 80.0)
    assert "shard claims a logical cluster that it may not have" in site.proxy.log()
    for where in (path, cluster):
        assert site.proxy.api(where).send("GET", CONFIGMAPS).code == 403
    # The operator says that it may: from then on it is served, and until he takes it back.
    shard = f"{SHARDS}/shard-2"
    master.patch(shard, {"metadata": {"annotations": {ROOTS: path}}})
    served(site.proxy.api(path))
    served(site.proxy.api(cluster))
    master.patch(shard, {"metadata": {"annotations": {ROOTS: None}}})
    eventually(lambda: site.proxy.api(path).send("GET", CONFIGMAPS).code == 403, "it is served no more")


def refused(site: Site) -> float:
    """How many rows of strangers the proxy has counted."""
    text = site.proxy.api("", "kcp-admin").get("/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("atoll_replication_refused_rows_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'reason="stranger"' in line)


@pytest.fixture(autouse=True)
def _running(site: Site, tmp_path: Path) -> Iterator[None]:
    yield
    for process in reversed(site.processes):
        if not process.running:
            process.start()
