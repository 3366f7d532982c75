"""The seat of a home that does not exist yet: a shard that claims it gets nothing, and its user has it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from atoll.machinery.kcp.sharding.scheduling import NO_SHARDS
from atoll.machinery.kcp.sharding.shards import UNSCHEDULABLE
from atoll.machinery.meta import hashes
from harness.clients.api import Api, eventually
from harness.clients.site_workspaces import CLUSTER, CLUSTERS, marked
from harness.servers.mutant_shard import altered
from harness.servers.site import Site

HOME = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CLOSED = {UNSCHEDULABLE: "a test"}
#: The first row of a home counts, whoever sends it.
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


def taken(site: Site, user: str) -> Api:
    """The home of a user, as shard-2 makes it by itself."""
    cluster = hashes.home_cluster_name(user)
    annotations = {"kcp.io/path": f"user:{user}", "internal.tenancy.kcp.io/type": "root:home"}
    body = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations},
        "spec": {"createdBy": {"username": user}},
    }
    thief = site.shards["shard-2"].api(cluster, "shard-admin")
    thief.post(CLUSTERS, body)
    eventually(lambda: thief.get(CLUSTER).json["status"].get("phase") == "Ready", "it stands on its shard")
    return thief


@pytest.mark.long
def test_a_home_that_does_not_exist_yet_cannot_be_taken(site: Site, master: Api) -> None:
    user = f"victim-{uuid.uuid4().hex[:8]}"
    thief = taken(site, user)
    eventually(lambda: thief.cluster in site.proxy.log(), "the proxy names the stranger", 80.0)
    assert site.proxy.api(thief.cluster, user).send("GET", CONFIGMAPS).code == 403
    assert site.proxy.api(f"user:{user}", user).send("GET", CONFIGMAPS).code == 403
    person = site.proxy.api("root", user)
    with marked(master, "root", annotations=CLOSED), marked(master, "shard-1", annotations=CLOSED):
        eventually(lambda: _refusal(person) == NO_SHARDS, "none but the thief's shard is left", 60.0)
    home = eventually(lambda: _home(person), f"the home of {user}")
    assert home["spec"]["cluster"] == thief.cluster
    mine = site.proxy.api(thief.cluster, user)
    eventually(lambda: mine.send("GET", CONFIGMAPS).code == 200, "the home is served")
    found = mine.get(CLUSTER).json["metadata"]
    assert found["uid"] != thief.get(CLUSTER).json["metadata"]["uid"]


def _refusal(person: Api) -> str:
    answer = person.send("GET", HOME)
    assert answer.code == 429, "it has no home"
    return answer.message


def _home(person: Api) -> dict[str, object] | None:
    answer = person.send("GET", HOME)
    return dict(answer.json) if answer.code == 200 else None


@pytest.mark.long
def test_the_guard_of_the_seat_taken_out_of_a_proxy_is_missed(site: Site, tmp_path: Path) -> None:
    user = f"victim-{uuid.uuid4().hex[:8]}"
    with altered(site.proxy, tmp_path, FIRST_ROW_COUNTS):
        thief = taken(site, user)
        stolen = site.proxy.api(thief.cluster, user)
        eventually(lambda: stolen.send("GET", CONFIGMAPS).code == 200, "the proxy leads to the thief")
        thief.patch(CLUSTER, {"spec": {"directlyDeletable": True}})
        thief.delete(CLUSTER)
        eventually(lambda: stolen.send("GET", CONFIGMAPS).code == 403, "it is gone")
