"""`atoll cache-server` over real streams: rows of shards, restarts, and a region that sources from a hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from atoll.machinery.kcp.apis.root_exports import root_exports
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS, CLUSTER_ROLES
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.permissions import Permissions, shard_permissions, shard_user
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.subjects import stream_name
from harness.data.event_keys import PUBLIC
from harness.models.forged_events import forgeries, inject
from harness.models.shard_log import ShardLog
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import ANONYMOUS, BASE, MASTER, NOBODY
from harness.servers.in_process.followers import TYPES, Archipelago, Member
from harness.servers.nats_regions import PASSWORD, hierarchy

EXPORTS = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
WORKSPACES = "/shards/*/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"
READER = "cache-main"
STATE = stream_name("state", "amber")
ADMIN = NatsUser("administrator", "secret", Permissions((">",), (">",)), account="shard-amber")


def export_key(cluster: str, name: str) -> ObjectKey:
    return ObjectKey(API_EXPORTS, cluster, "", name)


async def found_root(root: Member, *shards: str) -> None:
    """The bootstrap objects of a root shard that other shards use."""
    identities = {"tenancy.kcp.io": TYPES.workspaces.identity, "shards.core.kcp.io": TYPES.shards.identity}
    for name in root_exports():
        await root.put(export_key(ROOT, name), status={"identityHash": identities.get(name, "9" * 64)})
    for shard in shards:
        await root.announce(shard)


async def provider(root: Member, amber: Member) -> str:
    """A workspace on the other shard, with an export in it."""
    cluster = await root.schedule(ROOT, "provider", "amber")
    await amber.open(cluster, ROOT, "provider")
    await amber.put(export_key(cluster, "widgets"), metadata={"uid": "u-1"})
    return cluster


@asynccontextmanager
async def two_shards(directory: Path, *users: NatsUser) -> AsyncIterator[tuple[Archipelago, Member, Member]]:
    async with Archipelago(directory, "root", "amber", readers=(READER,)) as sea:
        if users:
            await sea.with_users(*users)
        root, amber = Member(sea, "root", sea.users["root"]), Member(sea, "amber", sea.users["amber"])
        sea.members |= {"root": root, "amber": amber}
        await found_root(root, "root", "amber")
        root.publish()
        amber.publish()
        yield sea, root, amber


def access(sea: Archipelago) -> Any:
    return sea.access(sea.users[READER])


async def test_it_serves_what_all_shards_publish_and_follows(tmp_path: Path) -> None:
    async with two_shards(tmp_path) as (sea, root, amber):
        cluster = await provider(root, amber)
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            listed = await cache.get(EXPORTS)
            assert set(listed.names) == {"widgets", *root_exports()}
            assert (await cache.get(WORKSPACES)).names == ["provider"]
            mine = next(item for item in listed.json["items"] if item["metadata"]["name"] == "widgets")
            assert mine["metadata"]["annotations"]["kcp.io/shard"] == "amber"
            revision = listed.json["metadata"]["resourceVersion"]
            events = await cache.watching(f"{EXPORTS}?watch=1&resourceVersion={revision}")
            await amber.put(export_key(cluster, "gadgets"))
            type, obj = await events.next()
            assert (type, obj["metadata"]["name"]) == ("ADDED", "gadgets")
            await amber.delete(export_key(cluster, "widgets"))
            type, obj = await events.next()
            assert (type, obj["metadata"]["name"], obj["metadata"]["uid"]) == (
                "DELETED",
                "widgets",
                mine["metadata"]["uid"],
            )
            for who in (ANONYMOUS, NOBODY):
                assert (await cache.ask(BASE + EXPORTS, who)).code in {401, 403}
            assert await cache.metric("atoll_replication_lag_seconds", shard="amber") == 0.0
            assert await cache.metric("atoll_replication_generations", shard="amber") == 1.0


async def test_what_a_master_changes_there_comes_back(tmp_path: Path) -> None:
    async with two_shards(tmp_path) as (sea, root, amber):
        cluster = await provider(root, amber)
        kind = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport"}
        await amber.put(export_key(cluster, "widgets"), metadata={"uid": "u-1", "labels": {"a": "a"}}, **kind)
        path = f"{BASE}/shards/amber/clusters/{cluster}/apis/apis.kcp.io/v1alpha2/apiexports/widgets"
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            source = _without_revision((await cache.ask(path)).json)
            merge, change = "Content-Type: application/merge-patch+json\r\n", b'{"metadata":{"labels":{"a":"b"}}}'
            for method, headers, body in (("PATCH", merge, change), ("DELETE", "", b"")):
                assert (await cache.ask(path, MASTER, method, headers, body)).code == 200
                await cache.until(path, lambda answer: answer.code == 200 and _without_revision(answer.json) == source)
                revision = (await cache.get(EXPORTS)).json["metadata"]["resourceVersion"]
                # Nothing is written any more: the next change is that of the source.
                events = await cache.watching(f"{EXPORTS}?watch=1&resourceVersion={revision}")
                await amber.put(export_key(cluster, "gadgets"), metadata={"labels": {"after": method}})
                assert (await events.next())[1]["metadata"]["name"] == "gadgets"
                events.close()
            for who in (ANONYMOUS, NOBODY):
                assert (await cache.ask(path, who, "DELETE")).code in {401, 403}


def _without_revision(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}}


async def test_rows_of_a_stranger_and_of_system_clusters_are_not_served(tmp_path: Path) -> None:
    async with two_shards(tmp_path) as (sea, root, amber):
        cluster = await provider(root, amber)
        role = {"metadata": {"annotations": {"internal.kcp.io/replicate": "apis.kcp.io"}}}
        await amber.put(ObjectKey(CLUSTER_ROLES, ROOT, "", "injected"), **role)
        await amber.put(ObjectKey(CLUSTER_ROLES, "system:admin", "", "injected"), **role)
        await root.put(export_key(cluster, "injected"))
        await amber.put(ObjectKey(CLUSTER_ROLES, cluster, "", "mine"), **role)
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            roles = await cache.get("/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles")
            assert roles.names == ["mine"]
            assert "injected" not in (await cache.get(EXPORTS)).names


async def test_forged_events_are_not_served(tmp_path: Path) -> None:
    async with two_shards(tmp_path, ADMIN) as (sea, root, amber):
        cluster = await provider(root, amber)
        await amber.put(export_key(cluster, "widgets"))
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            connection = await Connection.open(ADMIN.access(sea.nats.server.address), "administrator")
            assert amber.publishing is not None
            await amber.publishing.drained()
            last = (await connection.api(f"STREAM.INFO.{STATE}"))["state"]["last_seq"]
            evil = ShardLog().put(export_key(cluster, "evil"))
            for message in forgeries("state", amber.store.identity, evil, last + 1):
                await inject(connection, message)
            await connection.close()
            # What comes behind them is served, so all of them were read.
            await amber.put(export_key(cluster, "after"))
            await cache.until(BASE + EXPORTS, lambda answer: "after" in answer.names)
            assert "evil" not in (await cache.get(EXPORTS)).names
            for reason in ("unsigned", "unknown key"):
                assert await cache.metric("atoll_replication_refused_rows_total", shard="amber", reason=reason)


@pytest.mark.long
async def test_it_starts_from_disk_and_takes_up_what_it_missed(tmp_path: Path) -> None:
    async with two_shards(tmp_path) as (sea, root, amber):
        cluster = await provider(root, amber)
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            before = await cache.get(EXPORTS)
            cache.stop()
            await sea.nats.stop()
            # Without NATS and shards, a complete state is still served, at its revision.
            cache.start()
            assert (await cache.get(EXPORTS)).json == before.json
            assert (await cache.ask("/readyz")).code == 200
            await amber.put(export_key(cluster, "gadgets"))
            await amber.delete(export_key(cluster, "widgets"))
            resumed = before.json["metadata"]["resourceVersion"]
            events = await cache.watching(f"{EXPORTS}?watch=1&resourceVersion={resumed}")
            await sea.nats.start()
            seen = {((event := await events.next())[0], event[1]["metadata"]["name"]) for _ in range(2)}
            assert seen == {("ADDED", "gadgets"), ("DELETED", "widgets")}
            cache.kill()
            cache.start()
            await cache.until(BASE + EXPORTS, lambda answer: set(answer.names) == {"gadgets", *root_exports()})


@pytest.mark.long
async def test_what_a_shard_no_longer_has_goes_with_the_next_full_reading(tmp_path: Path) -> None:
    async with two_shards(tmp_path) as (sea, root, amber):
        cluster = await provider(root, amber)
        with CacheProcess(tmp_path / "cache", access(sea)) as cache:
            await cache.ready()
            assert "widgets" in (await cache.get(EXPORTS)).names
            # The shard's deletion never reaches the stream, which is filled again without it.
            await amber.publish_no_more()
            await sea.nats.stop()
            await amber.delete(export_key(cluster, "widgets"))
            sea.nats.delete_store()
            await sea.nats.start()
            amber.publish()
            await cache.until(BASE + EXPORTS, lambda answer: "widgets" not in answer.names)
            assert set((await cache.get(EXPORTS)).names) == set(root_exports())


@pytest.mark.long
async def test_a_region_serves_from_streams_that_source_the_hubs(tmp_path: Path) -> None:
    async with hierarchy(tmp_path / "nats", ["root", "amber"]) as site:
        address = site.shard("root").servers[0]
        sea: Any = SimpleNamespace(directory=tmp_path, access=lambda user: user.access(address))
        root, amber = (
            Member(sea, name, NatsUser(shard_user(name), PASSWORD, shard_permissions(name)))
            for name in ("root", "amber")
        )
        try:
            await found_root(root, "root", "amber")
            root.publish()
            amber.publish()
            cluster = await provider(root, amber)
            for shard in ("root", "amber"):
                await site.source(shard)
            keys = dict.fromkeys(("root", "amber"), PUBLIC)
            reader = msgspec.structs.replace(site.reader, event_keys=keys)
            with CacheProcess(tmp_path / "cache", reader) as cache:
                await cache.ready()
                # The region's streams may be behind the hub's when they are read to their end for the first time.
                everything = {"widgets", *root_exports()}
                await cache.until(BASE + EXPORTS, lambda answer: set(answer.names) == everything)
                await amber.put(export_key(cluster, "gadgets"))
                await cache.until(BASE + EXPORTS, lambda answer: "gadgets" in answer.names)
                await site.hub.stop()
                # The region continues to read, and a server that starts now reads the region's rows.
                cache.stop()
                cache.start()
                await cache.until(BASE + EXPORTS, lambda answer: "gadgets" in answer.names)
                await site.hub.start()
                await amber.put(export_key(cluster, "later"))
                await cache.until(BASE + EXPORTS, lambda answer: "later" in answer.names)
        finally:
            await asyncio.gather(root.close(), amber.close())
