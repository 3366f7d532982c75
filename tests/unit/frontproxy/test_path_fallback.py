"""Unknown paths at the proxy: one lookup at the shard of the deepest ancestor, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.frontproxy import path_fallback
from atoll.frontproxy.errors import shard_unreachable
from atoll.frontproxy.path_fallback import MAX_LOOKUPS, MAX_WAITING, PROXY_USER, PathFallback
from atoll.frontproxy.workspace_locator import ShardLocation, UnresolvedPath, WorkspaceLocator
from atoll.machinery.apiserver.federation.pathindex import Mounted, Unavailable
from atoll.machinery.meta.hashes import home_cluster_name
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.meta.user import User
from atoll.machinery.meta.wellknown import SHARD
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.wire.client import ClientResponse, Unreachable
from atoll.machinery.wire.exchange import Headers
from harness.clients.raw_http import until
from harness.data.front_proxy_rows import SHARDS, WORKSPACES, ProxyRows, base_url
from harness.data.stores import store_options

ALICE, BOB = User("alice"), User("bob")
DEADLINE_S = 30.0


def target(cluster: str, name: str) -> str:
    return f"/clusters/{cluster}/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}"


def workspace(cluster: str, shard: str, phase: str = "Ready") -> bytes:
    metadata = {"annotations": {SHARD: shard}}
    return encode_json({"metadata": metadata, "spec": {"cluster": cluster}, "status": {"phase": phase}})


class Shards:
    """Shards with canned lookup results, which record the lookups."""

    def __init__(self) -> None:
        #: What it returns, an error of the connection, or the code of a refusal.
        self.answers: dict[str, bytes | Exception | int] = {}
        self.requests: list[tuple[str, str]] = []
        self.in_flight = self.most = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def ask(self, url: str, path: str, headers: Headers) -> ClientResponse:
        self.requests.append((url, path))
        assert headers == [("says", f"{PROXY_USER.name} {path.split('/')[2]}")]
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.hold.wait()
        finally:
            self.in_flight -= 1
        answer = self.answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return ClientResponse(answer, {}, b"{}")
        return ClientResponse(404 if answer is None else 200, {}, answer or b"{}")


class Site:
    def __init__(self, rows: ProxyRows) -> None:
        self.rows, self.shards = rows, Shards()
        self.routes = WorkspaceLocator(WORKSPACES, SHARDS)
        self.misses = PathFallback(self.routes, rows.store, self.shards.ask, says)

    async def find(self, path: str, user: User = ALICE) -> object:
        with self.rows.store.snapshot() as view:
            place = self.routes.find(view, path)
        assert isinstance(place, UnresolvedPath), place
        return await self.misses.find(path, place, user)


def says(user: User, cluster: str) -> Headers:
    return [("says", f"{user.name} {cluster}")]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(path_fallback, "DEADLINE_S", DEADLINE_S)
    monkeypatch.setattr(path_fallback, "ABSENT_S", 2 * DEADLINE_S)
    monkeypatch.setattr(path_fallback, "PRESENT_S", 2 * DEADLINE_S)
    store = open_store(store_options(tmp_path))
    rows = ProxyRows(store)
    await rows.shards("root", "east", "west")
    await rows.chain("root", [("org", "1org", "east")])
    yield Site(rows)
    await store.close()


async def test_what_is_not_there_costs_one_question_at_the_shard_of_its_deepest_ancestor(site: Site) -> None:
    assert await site.find("root:org:none:more:still") is None
    assert site.shards.requests == [(base_url("east"), target("1org", "none"))]
    assert await site.find("root:org:none", BOB) is None
    assert await site.find("root:org:none:else") is None
    assert len(site.shards.requests) == 1, "it is remembered, for everybody"


async def test_a_name_that_no_workspace_can_have_costs_no_question(site: Site) -> None:
    assert await site.find(f"root:org:{'x' * 254}") is None
    assert site.shards.requests == []
    assert await site.find(f"root:org:{'x' * 253}") is None
    assert len(site.shards.requests) == 1


async def test_what_was_not_there_is_asked_for_again_after_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_fallback, "ABSENT_S", 0.0)
    assert await site.find("root:org:new") is None
    site.shards.answers[target("1org", "new")] = workspace("1new", "west")
    assert await site.find("root:org:new") == ShardLocation("west", "1new", base_url("west"))


async def test_what_is_there_is_found_name_by_name_and_remembered(site: Site) -> None:
    site.shards.answers[target("1org", "new")] = workspace("1new", "west")
    site.shards.answers[target("1new", "deep")] = workspace("1deep", "root")
    assert await site.find("root:org:new:deep") == ShardLocation("root", "1deep", base_url("root"))
    asked = [(base_url("east"), target("1org", "new")), (base_url("west"), target("1new", "deep"))]
    assert site.shards.requests == asked
    assert await site.find("root:org:new") == ShardLocation("west", "1new", base_url("west"))
    assert await site.find("root:org:new:deep") == ShardLocation("root", "1deep", base_url("root"))
    assert site.shards.requests == asked


async def test_behind_what_was_asked_for_the_way_goes_on_by_what_is_known(site: Site) -> None:
    site.shards.answers[target("1org", "new")] = workspace("1new", "west")
    await site.rows.cluster("1new", "west")
    await site.rows.workspace("1new", "deep", "1deep", "east")
    assert await site.find("root:org:new:deep") == ShardLocation("east", "1deep", base_url("east"))
    assert len(site.shards.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        workspace("", "west"),
        workspace("1new", ""),
        workspace("1new", "nowhere"),
        workspace("1new", "west", "Scheduling"),
        b"{}",
        b"[]",
        b"no json",
        b"",
        encode_json({"spec": {"cluster": 1}}),
    ],
)
async def test_what_does_not_say_where_it_is_is_not_there(site: Site, answer: bytes | Exception) -> None:
    site.shards.answers[target("1org", "new")] = answer
    assert await site.find("root:org:new") is None
    assert await site.find("root:org:new") is None
    assert len(site.shards.requests) == 1


@pytest.mark.parametrize("answer", [Unreachable("down"), TimeoutError(), 503, 429])
async def test_below_a_shard_that_says_nothing_what_exists_and_what_does_not_are_the_same_503(
    site: Site, monkeypatch: pytest.MonkeyPatch, answer: Exception | int
) -> None:
    site.shards.answers[target("1org", "new")] = answer
    for path in ("root:org:new", "root:org:new:deep", "root:org:new"):
        with pytest.raises(ServiceUnavailable) as refused:
            await site.find(path)
        assert refused.value.details == shard_unreachable().details
    assert len(site.shards.requests) == 1, "it is remembered for a moment"
    monkeypatch.setattr(path_fallback, "ABSENT_S", 0.0)
    site.shards.answers[target("1org", "other")] = answer
    with pytest.raises(ServiceUnavailable):
        await site.find("root:org:other")
    site.shards.answers[target("1org", "other")] = workspace("1other", "west")
    assert await site.find("root:org:other") == ShardLocation("west", "1other", base_url("west"))


async def test_a_workspace_that_is_unavailable_and_a_mount_are_found_as_such(site: Site) -> None:
    site.shards.answers[target("1org", "off")] = workspace("1off", "west", "Unavailable")
    assert await site.find("root:org:off") == Unavailable()
    site.shards.answers[target("1off", "below")] = workspace("1below", "west")
    assert await site.find("root:org:off:below") == ShardLocation("west", "1below", base_url("west"))
    mount = {"spec": {"mount": {"ref": {}}, "URL": "https://there.example"}, "status": {"phase": "Ready"}}
    site.shards.answers[target("1org", "there")] = encode_json(mount)
    assert await site.find("root:org:there") == Mounted("https://there.example", ready=True)
    assert await site.find("root:org:there:below") is None


async def test_a_home_is_asked_for_where_homes_are_made(site: Site) -> None:
    home = home_cluster_name("bob")
    path = f"/clusters/{home}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    assert await site.find("user:bob") is None
    assert site.shards.requests == [(base_url("root"), path)]
    site.shards.answers[path.replace(home, home_cluster_name("eve"))] = b"{}"
    assert await site.find("user:eve") == ShardLocation("root", home_cluster_name("eve"), base_url("root"))


async def test_nobody_is_asked_about_a_name_but_what_arrives_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_fallback, "ARRIVAL_S", DEADLINE_S)
    waiting = asyncio.create_task(site.find("1soon"))
    await asyncio.sleep(0)
    await site.rows.cluster("1other", "east")
    await site.rows.cluster("1soon", "west")
    assert await waiting == ShardLocation("west", "1soon", base_url("west"))
    monkeypatch.setattr(path_fallback, "ARRIVAL_S", 0.0)
    assert await site.find("1never") is None
    monkeypatch.setattr(path_fallback, "ARRIVAL_S", 10 * DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        assert await site.find("1never") is None, "it is not waited for a second time"
        for path in ("system:admin", "*", "none:below", "", "Not A Name"):
            assert await site.find(path) is None
    assert site.shards.requests == []


async def test_all_who_look_for_the_same_share_one_question(site: Site) -> None:
    site.shards.hold.clear()
    site.shards.answers[target("1org", "new")] = workspace("1new", "west")
    lookers = [asyncio.create_task(site.find("root:org:new", User(f"u{number}"))) for number in range(50)]
    await until(lambda: site.shards.in_flight)
    lookers.pop().cancel()
    site.shards.hold.set()
    found = await asyncio.gather(*lookers)
    assert set(found) == {ShardLocation("west", "1new", base_url("west"))}
    assert len(site.shards.requests) == 1


async def test_a_flood_of_made_up_paths_is_a_few_questions_at_a_time_and_holds_up_its_sender_alone(site: Site) -> None:
    site.shards.hold.clear()
    flood = [asyncio.create_task(site.find(f"root:org:none{number}")) for number in range(MAX_WAITING)]
    await until(lambda: site.shards.in_flight == MAX_LOOKUPS)
    # Above its limit no request of the same user waits; another user, at another shard, is not delayed at all.
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ServiceUnavailable):
            await site.find("root:org:none-more")
    other = asyncio.create_task(site.find("root:new", BOB))
    await until(lambda: (base_url("root"), target("root", "new")) in site.shards.requests)
    site.shards.hold.set()
    assert await asyncio.gather(*flood, other) == [None] * (MAX_WAITING + 1)
    assert site.shards.most <= MAX_LOOKUPS + 1
    site.shards.answers[target("1org", "new")] = workspace("1new", "west")
    assert await site.find("root:org:new"), "and who flooded is served again"


async def test_nobody_waits_beyond_the_deadline(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_fallback, "DEADLINE_S", 0.01)
    site.shards.hold.clear()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ServiceUnavailable):
            await site.find("root:org:new")
        await until(lambda: not site.shards.in_flight)
