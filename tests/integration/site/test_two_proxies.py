"""Two front proxies of one site, one of them on the streams of a region: the same answers from both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.exports import cluster_of
from harness.clients.site_workspaces import CLUSTER, WORKSPACES, marked, on, ready, shard_of, workspace
from harness.servers.site import ServingProcess
from harness.servers.site_region import REGION_LABEL, RegionSite

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
#: A source whose origin was lost looks for it again after some ten seconds.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionSite]:
    """A site of three shards, and a region that has the streams of two of them."""
    site = RegionSite(tmp_path_factory.mktemp("region"), shards=3)
    with site:
        for shard in list(site.shards)[:2]:
            site.source(shard)
        site.second.start()
        yield site


@pytest.fixture(scope="module")
def places(region: RegionSite) -> dict[str, str]:
    """The path of a workspace on each shard."""
    root = region.proxy.api("root")
    made = {shard: ready(root, workspace(root, selector=on(shard))) for shard in region.shards}
    return {shard: f"root:{each['metadata']['name']}" for shard, each in made.items()}


def answers(proxy: ServingProcess, workspace: str, wanted: int = 200) -> bool:
    return bool(proxy.api(workspace).get(CONFIGMAPS, expect=0).code == wanted)


def serves(site: RegionSite, *workspaces: str) -> None:
    """Return once both proxies serve workspaces."""
    for each in workspaces:
        for proxy in (site.proxy, site.second):
            eventually(partial(answers, proxy, each), f"{proxy.name} serves {each}", PATIENCE_S)


def both(site: RegionSite, path: str) -> tuple[Api, Api]:
    return site.proxy.api(path), site.second.api(path)


@pytest.mark.long
def test_what_only_a_missing_stream_tells_is_asked_for_by_path_and_unknown_by_name_until_it_is_there(
    region: RegionSite, places: dict[str, str]
) -> None:
    *present, missing = region.shards
    serves(region, *(places[shard] for shard in present))
    # Of a workspace on the missing shard the stream of its parent's shard tells, of one below it none in the region.
    serves(region, places[missing], cluster_of(region.proxy.api(places[missing])))
    parent = region.proxy.api(places[missing])
    child = f"{places[missing]}:{ready(parent, workspace(parent, selector=on(missing)))['metadata']['name']}"
    cluster = cluster_of(region.proxy.api(child))
    eventually(partial(answers, region.proxy, cluster), "the first proxy knows the name", PATIENCE_S)
    assert answers(region.second, cluster, 403)
    assert answers(region.second, child)
    region.source(missing)
    serves(region, child, cluster)


def test_both_give_the_same_answers(region: RegionSite, places: dict[str, str]) -> None:
    for path in places.values():
        serves(region, path)
        name = f"c-{uuid.uuid4().hex[:6]}"
        one, other = both(region, path)
        made = one.post(CONFIGMAPS, configmap(name, {"a": "b"})).json
        assert other.get(f"{CONFIGMAPS}/{name}").json == made
        assert one.get(CONFIGMAPS).json["items"] == other.get(CONFIGMAPS).json["items"]
        with one.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as events:
            other.delete(f"{CONFIGMAPS}/{name}")
            assert events.until("DELETED").object["metadata"]["name"] == name
        one.get(f"{CONFIGMAPS}/{name}", expect=404)
    for path in ("root:nothing-here", "nothing"):
        answers = [api.get(CONFIGMAPS, expect=403).json for api in both(region, path)]
        assert answers[0] == answers[1]


def test_what_is_made_through_one_is_found_through_the_other(region: RegionSite, places: dict[str, str]) -> None:
    for first, then in ((region.proxy, region.second), (region.second, region.proxy)):
        for shard in region.shards:
            root = first.api("root")
            name = ready(root, workspace(root, selector=on(shard)))["metadata"]["name"]
            eventually(partial(answers, then, f"root:{name}"), "found", PATIENCE_S)


@pytest.mark.long
def test_both_serve_a_shard_again_after_its_restart(region: RegionSite, places: dict[str, str]) -> None:
    for shard, path in places.items():
        serves(region, path)
        region.shards[shard].kill()
        try:
            codes = [api.get(CONFIGMAPS, expect=0).code for api in both(region, path)]
            assert codes[0] == codes[1] and codes[0] >= 500
        finally:
            region.shards[shard].start()
        serves(region, path)
        name = f"c-{uuid.uuid4().hex[:6]}"
        one, other = both(region, path)
        one.post(CONFIGMAPS, configmap(name, {}))
        assert other.get(f"{CONFIGMAPS}/{name}").json["metadata"]["name"] == name


@pytest.mark.long
def test_the_region_goes_on_without_the_hub_and_follows_it_again(region: RegionSite, places: dict[str, str]) -> None:
    for path in places.values():
        serves(region, path)
    region.nats.stop()
    try:
        region.second.restart()
        for path in places.values():
            eventually(partial(answers, region.second, path), "served without the hub", PATIENCE_S)
    finally:
        region.nats.start()
    root = region.proxy.api("root")
    name = ready(root, workspace(root, selector=on(list(region.shards)[1])))["metadata"]["name"]
    eventually(partial(answers, region.second, f"root:{name}"), "the region follows again", PATIENCE_S)


@pytest.mark.long
def test_first_uses_at_once_at_both_make_one_home(region: RegionSite) -> None:
    for _ in range(3):
        user = new_user()
        with ThreadPoolExecutor(6) as pool:
            homes = list(pool.map(lambda proxy, user=user: home_of(proxy, user), [region.proxy, region.second] * 3))
        assert len({(home["spec"]["cluster"], home["metadata"]["uid"]) for home in homes}) == 1
        found = homes[0]["spec"]["cluster"]
        for proxy in (region.proxy, region.second):
            mine = proxy.api(found, user)
            eventually(lambda mine=mine: mine.send("GET", CONFIGMAPS).code == 200, "the home is served", PATIENCE_S)  # type: ignore[misc]


@pytest.mark.long
def test_a_proxy_places_homes_in_its_own_region(region: RegionSite) -> None:
    master, shard = region.root.api("root", "shard-admin"), list(region.shards)[1]
    with marked(master, shard, labels={"region": REGION_LABEL}):
        for _ in range(4):
            user = new_user()
            found = region.shards[shard].api(home_of(region.second, user)["spec"]["cluster"], "shard-admin")
            assert shard_of(eventually(lambda found=found: cluster_at(found), "it is on that shard")) == shard  # type: ignore[misc]


def cluster_at(api: Api) -> dict[str, Any] | None:
    answer = api.send("GET", CLUSTER)
    return dict(answer.json) if answer.code == 200 else None


def new_user() -> str:
    return f"person-{uuid.uuid4().hex[:8]}"


def home_of(proxy: ServingProcess, user: str) -> dict[str, Any]:
    person = proxy.api("root", user)

    def look() -> dict[str, Any] | None:
        answer = person.send("GET", f"{WORKSPACES}/~")
        return dict(answer.json) if answer.code == 200 else None

    return dict(eventually(look, f"the home of {user}", PATIENCE_S))
