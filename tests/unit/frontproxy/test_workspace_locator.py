"""Paths are resolved by published rows, over any number of shards and without stale results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.frontproxy import workspace_locator
from atoll.frontproxy.workspace_locator import Location, MountLoop, ShardLocation, UnresolvedPath, WorkspaceLocator
from atoll.machinery.apiserver.federation.pathindex import MAX_DEPTH, Mounted, Unavailable
from atoll.machinery.meta.hashes import home_cluster_name
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import ClusterRoute
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.front_proxy_rows import SHARDS, WORKSPACES, ProxyRows, base_url
from harness.data.stores import replica, store_options


class Site:
    """A proxy's store and the routes over it."""

    def __init__(self, rows: ProxyRows) -> None:
        self.rows, self.routes = rows, WorkspaceLocator(WORKSPACES, SHARDS)

    def find(self, workspace: str) -> Location:
        with self.rows.store.snapshot() as view:
            found = self.routes.find(view, workspace)
            assert found == self.routes.find(view, workspace), "the same again while nothing arrives"
            assert found == WorkspaceLocator(WORKSPACES, SHARDS).find(view, workspace), (
                "and for who was not there before"
            )
        return found


def at(shard: str, cluster: str) -> ShardLocation:
    return ShardLocation(shard, cluster, base_url(shard))


def below(shard: str, cluster: str, rest: str, *, home: bool = False) -> UnresolvedPath:
    return UnresolvedPath(shard, cluster, base_url(shard), rest, home)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    store = open_store(store_options(tmp_path))
    rows = ProxyRows(store)
    await rows.shards("root", "east", "west")
    await rows.chain("root", [("org", "1org", "east"), ("team", "1team", "west"), ("app", "1app", "east")])
    yield Site(rows)
    await store.close()


async def test_a_mount_of_a_workspace_of_the_installation_leads_to_that(site: Site) -> None:
    outside = "https://kcp.example"
    spec = {"baseURL": base_url("east"), "externalURL": f"{outside}/"}
    await site.rows.write(SHARDS, "root", "east", {"spec": spec})

    async def mount(name: str, url: str, phase: str = "Ready") -> None:
        found = {"spec": {"mount": {"ref": {}}, "URL": url}, "status": {"phase": phase}}
        await site.rows.write(WORKSPACES, "root", name, found)

    await mount("team-again", f"{outside}/clusters/root:org:team/")
    await mount("twice", f"{outside.upper().replace('HTTPS', 'https')}:443/clusters/root%3Ateam-again")
    await mount("self", f"{outside}/clusters/root:self")
    await mount("gone", f"{outside}/clusters/root:org:none")
    await mount("resting", f"{outside}/clusters/root:org", "Unavailable")
    others = (
        f"{outside}/clusters/root:org/api",
        f"{outside}/clusters/*",
        f"{outside}/services/x",
        f"{outside}:444/clusters/root:org",
        f"{outside}/x/clusters/root:org",
        "https://kcp.example.org/clusters/root:org",
        "http://kcp.example/clusters/root:org",
        "https://user@kcp.example/clusters/root:org",
        f"{outside}/clusters/root:org?x=y",
    )
    for place, url in enumerate(others):
        await mount(f"other-{place}", url)
    assert site.find("root:team-again") == site.find("root:twice") == at("west", "1team")
    assert site.find("root:self") == MountLoop()
    assert site.find("root:gone") == below("east", "1org", "none")
    assert site.find("root:resting") == Mounted(f"{outside}/clusters/root:org", ready=False)
    for place, url in enumerate(others):
        assert site.find(f"root:other-{place}") == Mounted(url, ready=True), url


def test_a_path_leads_to_its_cluster_and_the_shard_it_lies_on(site: Site) -> None:
    assert site.find("root") == at("root", "root")
    assert site.find("root:org") == at("east", "1org")
    assert site.find("root:org:team") == at("west", "1team")
    assert site.find("root:org:team:app") == at("east", "1app")


def test_a_name_leads_there_too_and_paths_begin_at_any_name(site: Site) -> None:
    assert site.find("1team") == at("west", "1team")
    assert site.find("1team:app") == at("east", "1app")


def test_a_home_is_found_by_its_users_name(site: Site) -> None:
    assert site.find("user:bob") == below("root", home_cluster_name("bob"), "", home=True)
    assert site.find("user:bob:x") == below("root", home_cluster_name("bob"), "x", home=True)


async def test_a_home_that_arrived_is_where_it_lies(site: Site) -> None:
    home = home_cluster_name("bob")
    await site.rows.cluster(home, "west")
    await site.rows.workspace(home, "x", "1x", "east")
    assert site.find("user:bob") == at("west", home)
    assert site.find("user:bob:x") == at("east", "1x")
    assert site.find("user:bob:y") == below("west", home, "y")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("root:none", below("root", "root", "none")),
        ("root:none:more", below("root", "root", "none:more")),
        ("root:org:none", below("east", "1org", "none")),
        ("root:org:team:none", below("west", "1team", "none")),
        ("root:org:none:team", below("east", "1org", "none:team")),
        ("1team:none", below("west", "1team", "none")),
        ("none", UnresolvedPath()),
        ("none:org", UnresolvedPath()),
        ("*", UnresolvedPath()),
        ("", UnresolvedPath()),
        ("root:*", UnresolvedPath()),
        ("root::org", UnresolvedPath()),
        ("Root", UnresolvedPath()),
        ("system:admin", UnresolvedPath()),
        ("system:shard", UnresolvedPath()),
        ("../root", UnresolvedPath()),
        ("root\0", UnresolvedPath()),
        ("ro ot", UnresolvedPath()),
        ("user", UnresolvedPath()),
    ],
)
def test_what_leads_nowhere_says_how_far_it_leads(site: Site, path: str, place: UnresolvedPath) -> None:
    assert site.find(path) == place


def test_a_path_of_any_length_is_followed_no_further_than_the_index_goes(site: Site) -> None:
    found = site.find(":".join(["root", *["x"] * 10 * MAX_DEPTH]))
    assert isinstance(found, UnresolvedPath)


def test_paths_that_clients_make_up_do_not_evict_known_ones(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_locator, "MAX_LOCATIONS", 4)
    routes = WorkspaceLocator(WORKSPACES, SHARDS)
    with site.rows.store.snapshot() as view:
        found = routes.find(view, "root:org:team")
        for number in range(8):
            assert isinstance(routes.find(view, f"root:org:none-{number}"), UnresolvedPath)
        assert routes.find(view, "root:org:team") is found


async def test_what_is_being_placed_is_not_there_yet(site: Site) -> None:
    await site.rows.workspace("root", "new", "1new", "east", phase="Scheduling")
    assert site.find("root:new") == below("root", "root", "new")
    await site.rows.workspace("root", "new", "1new", "east", phase="Initializing")
    assert site.find("root:new") == at("east", "1new")


async def test_a_workspace_that_is_unavailable_says_so_and_what_is_below_it_is_there(site: Site) -> None:
    await site.rows.workspace("root", "org", "1org", "east", phase="Unavailable")
    assert site.find("root:org") == Unavailable()
    assert site.find("root:org:team") == at("west", "1team")
    await site.rows.workspace("root", "org", "1org", "east")
    assert site.find("root:org") == at("east", "1org")


async def test_a_mount_ends_a_path(site: Site) -> None:
    mount = {"ref": {"kind": "Thing"}}
    spec = {"mount": mount, "URL": "https://there.example"}
    await site.rows.write(WORKSPACES, "root", "there", {"spec": spec, "status": {"phase": "Ready"}})
    assert site.find("root:there") == Mounted("https://there.example", ready=True)
    assert site.find("root:there:below") == below("root", "root", "there:below")
    await site.rows.write(WORKSPACES, "root", "there", {"spec": {"mount": mount}, "status": {"phase": "Unavailable"}})
    assert site.find("root:there") == Mounted("", ready=False)


async def test_what_is_gone_renamed_or_elsewhere_is_not_found_where_it_was(site: Site) -> None:
    site.find("root:org:team")
    await site.rows.write(WORKSPACES, "1org", "team", None)
    assert site.find("root:org:team") == below("east", "1org", "team")
    await site.rows.workspace("1org", "renamed", "1team", "west")
    assert site.find("root:org:renamed:app") == at("east", "1app")
    await site.rows.store.submit([ClusterRoute("1team", "east", 2)])
    assert site.find("1team") == at("east", "1team")


async def test_a_shard_whose_address_is_unknown_is_not_led_to(site: Site) -> None:
    await site.rows.workspace("1team", "far", "1far", "north")
    assert site.find("1far") == UnresolvedPath()
    assert site.find("root:org:team:far") == below("west", "1team", "far")
    await site.rows.shards("north")
    assert site.find("root:org:team:far") == at("north", "1far")


async def test_a_shard_that_moved_is_led_to_at_its_new_address(site: Site) -> None:
    site.find("1team")
    await site.rows.write(SHARDS, "root", "west", {"spec": {"baseURL": "https://new.example"}})
    assert site.find("1team") == ShardLocation("west", "1team", "https://new.example")


async def test_what_a_shard_sends_of_clusters_that_are_not_its_own_leads_nowhere(site: Site) -> None:
    stolen = replica(ObjectKey(WORKSPACES, "1org", "", "stolen"), 999, origin="evil", spec={"cluster": "root"})
    await site.rows.store.submit([stolen])
    assert site.find("root:org:stolen") == below("east", "1org", "stolen")
