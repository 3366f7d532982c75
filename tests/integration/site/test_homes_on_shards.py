"""Homes on every shard: placed by region and load, one for two first uses at once, and served while root is down."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from atoll.machinery.kcp.sharding.shards import UNSCHEDULABLE
from harness.clients.api import Api, configmap, eventually
from harness.clients.site_workspaces import CLUSTER, CLUSTERS, clusters, marked, on, ready, shard_of, workspace
from harness.servers.site import Site

HOME = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def new_user() -> str:
    return f"person-{uuid.uuid4().hex[:8]}"


def home_of(site: Site, user: str, query: str = "") -> dict[str, Any]:
    person = site.proxy.api("root", user)

    def look() -> dict[str, Any] | None:
        answer = person.send("GET", HOME + query)
        return dict(answer.json) if answer.code == 200 else None

    return dict(eventually(look, f"the home of {user}", 60.0))


def served(site: Site, user: str, cluster: str) -> Api:
    inside = site.proxy.api(cluster, user)
    eventually(lambda: inside.send("GET", CONFIGMAPS).code == 200, f"the home of {user} is served", 60.0)
    return inside


def shard(site: Site, user: str, cluster: str) -> str:
    return shard_of(served(site, user, cluster).get(CLUSTER).json)


@pytest.fixture
def without_root(master: Api) -> Iterator[None]:
    """Homes are placed on shard-1 and shard-2 only."""
    with marked(master, "root", annotations={UNSCHEDULABLE: "a test"}):
        yield


def test_homes_are_placed_on_all_shards_and_are_whole(site: Site) -> None:
    users = [new_user() for _ in range(14)]
    found = Counter[str]()
    for user in users:
        home = home_of(site, user)
        assert (home["metadata"]["name"], home["status"]["phase"]) == ("cluster", "Ready")
        inside = served(site, user, home["spec"]["cluster"])
        obj = inside.get(CLUSTER).json
        assert "owner" not in obj["spec"]
        assert obj["spec"]["createdBy"]["username"] == user
        assert obj["metadata"]["annotations"]["kcp.io/path"] == f"user:{user}"
        assert home["spec"]["URL"] == obj["status"]["URL"]
        found[shard_of(obj)] += 1
    assert len(found) > 1, found


@pytest.mark.usefixtures("without_root")
def test_a_home_elsewhere_is_reached_by_path_and_id_with_children_on_two_shards(site: Site) -> None:
    user = new_user()
    cluster = home_of(site, user)["spec"]["cluster"]
    served(site, user, cluster).post(CONFIGMAPS, configmap("mine"))
    by_path = site.proxy.api(f"user:{user}", user)
    assert by_path.get(f"{CONFIGMAPS}/mine").json["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    for where in ("shard-1", "shard-2"):
        name = workspace(by_path, selector=on(where))
        assert shard_of(ready(by_path, name)) == where
        served(site, user, f"user:{user}:{name}")
    assert site.proxy.api(cluster, new_user()).send("GET", CONFIGMAPS).code == 403


@pytest.mark.usefixtures("without_root")
def test_first_uses_at_once_make_one_home(site: Site) -> None:
    for _ in range(5):
        user = new_user()
        with ThreadPoolExecutor(8) as pool:
            homes = list(pool.map(lambda _, user=user: home_of(site, user), range(8)))
        assert len({(home["spec"]["cluster"], home["metadata"]["uid"]) for home in homes}) == 1


@pytest.mark.long
def test_a_home_is_placed_in_the_region_that_its_user_came_in_at(site: Site, master: Api) -> None:
    label = f"eu-{uuid.uuid4().hex[:4]}"
    with marked(master, "shard-2", labels={"region": label}):
        for _ in range(4):
            user = new_user()
            cluster = home_of(site, user, f"?region={label}")["spec"]["cluster"]
            assert shard(site, user, cluster) == "shard-2"
        user = new_user()
        served(site, user, home_of(site, user, "?region=unheard-of")["spec"]["cluster"])


@pytest.mark.long
@pytest.mark.usefixtures("without_root")
def test_a_home_is_served_while_root_is_down_and_after_restarts(site: Site) -> None:
    user = new_user()
    cluster = home_of(site, user)["spec"]["cluster"]
    served(site, user, cluster).post(CONFIGMAPS, configmap("kept"))
    site.root.stop()
    try:
        assert home_of(site, user)["spec"]["cluster"] == cluster
        assert site.proxy.api(cluster, user).get(f"{CONFIGMAPS}/kept").code == 200
        site.proxy.restart()
        assert home_of(site, user)["spec"]["cluster"] == cluster
        assert site.proxy.api(f"user:{user}", user).get(f"{CONFIGMAPS}/kept").code == 200
    finally:
        site.root.start()
    assert home_of(site, user)["spec"]["cluster"] == cluster


@pytest.mark.usefixtures("without_root")
def test_a_home_that_is_deleted_takes_its_marker_along_and_is_placed_anew(site: Site, master: Api) -> None:
    user = new_user()
    home = home_of(site, user)
    cluster, uid = home["spec"]["cluster"], home["metadata"]["uid"]
    at_root = master.at(cluster)
    marker = at_root.get(CLUSTER).json
    owner = site.shards[shard(site, user, cluster)].api(cluster, "shard-admin")
    owner.patch(CLUSTER, {"spec": {"directlyDeletable": True}})
    owner.delete(CLUSTER)
    eventually(lambda: cluster not in clusters(master.at("*")), "the marker is gone")
    again = home_of(site, user)
    assert again["spec"]["cluster"] == cluster and again["metadata"]["uid"] != uid
    served(site, user, cluster)
    generation = "internal.atoll.dev/moved-generation"
    assert int(annotation(at_root.get(CLUSTER).json, generation)) >= int(annotation(marker, generation))


def annotation(obj: dict[str, Any], key: str) -> str:
    return str(obj["metadata"]["annotations"][key])


@pytest.mark.long
@pytest.mark.usefixtures("without_root")
def test_a_home_of_a_choice_that_was_given_up_goes(site: Site) -> None:
    """As a shard makes it that was silent for too long, here by hand."""
    user = new_user()
    home = home_of(site, user)
    cluster = home["spec"]["cluster"]
    lies = shard(site, user, cluster)
    (other,) = {"shard-1", "shard-2"} - {lies}
    annotations = {"kcp.io/path": f"user:{user}", "internal.tenancy.kcp.io/type": "root:home"}
    body: dict[str, Any] = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": {**annotations, "internal.atoll.dev/moved-generation": "1"}},
        "spec": {"createdBy": {"username": user}},
    }
    late = site.shards[other].api(cluster, "shard-admin")
    late.post(CLUSTERS, body)
    everywhere = site.shards[other].api("*", "shard-admin")
    eventually(lambda: cluster not in clusters(everywhere), "the late one is gone", 240.0)
    assert home_of(site, user)["metadata"]["uid"] == home["metadata"]["uid"]
    assert shard(site, user, cluster) == lies


@pytest.mark.long
@pytest.mark.usefixtures("without_root")
def test_a_silent_shard_gets_no_home(site: Site) -> None:
    site.shards["shard-1"].freeze()
    try:
        for _ in range(3):
            user = new_user()
            cluster = home_of(site, user)["spec"]["cluster"]
            assert shard(site, user, cluster) == "shard-2"
    finally:
        site.shards["shard-1"].thaw()
