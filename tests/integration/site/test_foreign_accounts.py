"""Service accounts of a workspace that no other shard needs: wherever they call, their own shard says who they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.machinery.meta import hashes
from harness.clients.api import Api, configmap, eventually
from harness.clients.site_workspaces import CLUSTER, CLUSTERS, gone, led_to, on, ready, workspace
from harness.servers.mutant_shard import altered
from harness.servers.site import Site

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MAPS = "/api/v1/namespaces/default/configmaps"
ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
PATIENCE_S = 60.0
#: A home belongs to whoever first says that it has it.
FIRST_ROW_COUNTS = """
from atoll.machinery.kcp.sharding import ownership_resolver as module

guarded = module.OwnershipResolver._resolve_cluster


def first(self, origin, cluster):
    standing = self._record(origin, cluster)
    if standing is not None and standing.is_home and self._seat(cluster) is None:
        yield from self._decide(cluster, module.Owner(origin, 0))
    yield from guarded(self, origin, cluster)


module.OwnershipResolver._resolve_cluster = first
"""


@pytest.fixture(scope="module")
def consumer(site: Site) -> Api:
    """A workspace on shard-2, at its shard."""
    parent = site.proxy.api("root")
    return site.shards["shard-2"].api(ready(parent, workspace(parent, selector=on("shard-2")))["spec"]["cluster"])


@pytest.fixture
def visitor(site: Site) -> Iterator[tuple[str, Api]]:
    """A workspace on shard-1 whose Workspace is there too, so that shard-2 has no row of it; with its name."""
    root = site.proxy.api("root")
    parent = led_to(site.proxy.api(ready(root, workspace(root, selector=on("shard-1")))["spec"]["cluster"]))
    name = workspace(parent, selector=on("shard-1"))
    cluster = ready(parent, name)["spec"]["cluster"]
    eventually(lambda: site.proxy.api(cluster).send("GET", MAPS).code == 200, "the proxy leads to it", PATIENCE_S)
    yield name, site.shards["shard-1"].api(cluster)
    parent.send("DELETE", f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}")
    gone(parent, name)


def account_token(api: Api) -> str:
    """The token of a new service account."""
    name = f"bot-{uuid.uuid4().hex[:6]}"
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(f"{ACCOUNTS}/{name}/token", body).json["status"]["token"])


def allow(consumer: Api, cluster: str) -> None:
    """Let every service account of a cluster do everything."""
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:cluster:{cluster}"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    metadata = {"name": f"visitors-{cluster}"}
    consumer.post(ROLE_BINDINGS, {"metadata": metadata, "subjects": [group], "roleRef": role})


def codes(api: Api, wanted: int, others: set[int]) -> None:
    """Wait for a status; until then only these others may be seen."""

    api = api.at_once()

    def look() -> bool:
        code = api.send("GET", MAPS).code
        assert code in {wanted, *others}, code
        return code == wanted

    eventually(look, f"{wanted}", PATIENCE_S)


@pytest.mark.long
def test_an_account_of_a_workspace_that_a_shard_does_not_need_is_known_there(
    site: Site, consumer: Api, visitor: tuple[str, Api]
) -> None:
    _, home = visitor
    allow(consumer, home.cluster)
    token, deleted = account_token(home), account_token(home)
    for door in (site.shards["shard-2"], site.proxy):
        bot = door.with_token(token, consumer.cluster)
        # Until the streams are read it is not known who can say.
        codes(bot, 200, {401, 503})
        assert bot.send("POST", MAPS, configmap(f"of-{door.name}")).code == 201
        assert door.with_token(token[:-6] + "AAAAAA", consumer.cluster).send("GET", MAPS).code == 401
    bot = site.shards["shard-2"].with_token(deleted, consumer.cluster)
    codes(bot, 200, {503})
    for each in home.get(ACCOUNTS).json["items"]:
        if each["metadata"]["name"].startswith("bot-"):
            home.delete(f"{ACCOUNTS}/{each['metadata']['name']}")
    codes(bot, 401, {200, 503})


@pytest.mark.long
def test_an_account_is_not_refused_while_its_shard_is_away_and_refused_when_its_workspace_is_gone(
    site: Site, consumer: Api, visitor: tuple[str, Api]
) -> None:
    name, home = visitor
    allow(consumer, home.cluster)
    token = account_token(home)
    bot, late = (site.shards["shard-2"].with_token(each, consumer.cluster) for each in (token, account_token(home)))
    codes(bot, 200, {401, 503})
    parent = site.proxy.api(home.get(CLUSTER).json["spec"]["owner"]["cluster"])
    site.shards["shard-1"].stop()
    try:
        # Its answer counts for seconds; then nobody can say, which is no refusal.
        codes(bot, 503, {200})
        late.get(MAPS, expect=503)
    finally:
        site.shards["shard-1"].start()
    codes(bot, 200, {503})
    eventually(lambda: parent.send("GET", MAPS).code == 200, "the proxy leads to it again", PATIENCE_S)
    parent.delete(f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}")
    gone(parent, name)
    codes(bot, 401, {200, 503})


@pytest.mark.long
def test_a_shard_that_claims_a_cluster_makes_no_accounts_of_it(site: Site, consumer: Api, tmp_path: Path) -> None:
    user = f"victim-{uuid.uuid4().hex[:8]}"
    thief = taken(site, user)
    allow(consumer, thief.cluster)
    door = site.shards["shard-2"]
    bot = door.with_token(account_token(thief), consumer.cluster)
    codes(bot, 401, {503})
    with altered(door, tmp_path, FIRST_ROW_COUNTS):
        thief.patch(CLUSTER, {"metadata": {"labels": {"arrives": "again"}}})
        codes(bot, 200, {401, 503})
        thief.patch(CLUSTER, {"spec": {"directlyDeletable": True}})
        thief.delete(CLUSTER)
        codes(bot, 401, {200, 503})


def taken(site: Site, user: str) -> Api:
    """The home of a user who has none, as shard-1 makes it by itself."""
    cluster = hashes.home_cluster_name(user)
    annotations = {"kcp.io/path": f"user:{user}", "internal.tenancy.kcp.io/type": "root:home"}
    body = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations},
        "spec": {"createdBy": {"username": user}},
    }
    thief = site.shards["shard-1"].api(cluster, "shard-admin")
    thief.post(CLUSTERS, body)
    eventually(lambda: thief.get(CLUSTER).json["status"].get("phase") == "Ready", "it stands on its shard")
    return thief
