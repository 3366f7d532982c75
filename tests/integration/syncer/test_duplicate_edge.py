"""Two edge clusters with the credentials of one SyncTarget: the second does nothing and says so, until it is alone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.lease import Timing
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.syncer import report
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import Api, configmap, workspace_under
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.shard_process import ShardProcess
from harness.waits import until

CONFIGMAPS = Resource("", "v1", "configmaps")
#: The Lease outlives every pause of a busy machine.
TIMING = Timing(60.0, 0.3)


class Copied(Client):
    """A client of a cluster that was copied with its etcd: its Namespaces have the uids of the first one's."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        found = await super().get(resource, name, namespace)
        if resource.plural == "namespaces":
            found = {**found, "metadata": {**found["metadata"], "uid": f"copied-{name}"}}
        return found


class Edge:
    """An edge cluster and the machine that its syncer runs on."""

    def __init__(self, cluster: tuple[Target, str], view: MailboxView, disk: Path, kind: type[Client]) -> None:
        self.cluster, self.view, self.disk, self.kind = cluster, view, disk, kind
        disk.mkdir(exist_ok=True)

    @asynccontextmanager
    async def running(self, *, is_killed: bool = False) -> AsyncIterator[Syncer]:
        options = Options("uid", 500.0, 500, self.disk / "state", TIMING, TIMING)
        async with Client(self.view.target, "", retries=0) as center, self.kind(*self.cluster) as client:
            syncer = Syncer(center, client, options)
            task = asyncio.create_task(syncer.run())
            try:
                yield syncer
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if not is_killed:
                    await syncer.close()

    def has(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            async with Client(*self.cluster) as client:
                try:
                    return bool(await client.get(CONFIGMAPS, name, "default"))
                except NotFound:
                    return False

        return look


def saying(view: MailboxView, is_reported: bool) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        found = view.config_status
        return bool(found) and is_true(found.get("conditions") or (), report.DUPLICATE) is is_reported

    return look


def reports(syncer: Syncer) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return syncer.downsync is not None and syncer.may_report

    return look


@pytest.fixture
def clusters(shard: ShardProcess, cluster: tuple[Target, str]) -> list[tuple[Target, str]]:
    """Two workspaces."""
    return [(cluster[0], workspace_under(Api(shard, "root"))) for _ in range(2)]


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_copy_of_a_machine_leaves_its_cluster_alone_until_the_first_gives_up(
    clusters: list[tuple[Target, str]], view: MailboxView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Edge(clusters[0], view, tmp_path / "first", Copied)
    view.place(configmap("a", namespace="default"))
    async with first.running(is_killed=True) as syncer:
        await until(first.has("a"), "it is at the first cluster", 60.0)
        await until(reports(syncer), "the first reports", 60.0)
        await asyncio.to_thread(syncer._state.save)
    shutil.copytree(first.disk, tmp_path / "copy")
    copy = Edge(clusters[1], view, tmp_path / "copy", Copied)
    stack = AsyncExitStack()
    syncer = await stack.enter_async_context(first.running())
    await until(reports(syncer), "it was killed, and reports again before the Lease ends", 30.0)
    async with copy.running() as other:
        await until(saying(view, True), "the copy says that there are two", 60.0)
        view.place(configmap("a", namespace="default"), configmap("b", namespace="default"))
        await until(first.has("b"), "the first goes on", 60.0)
        assert (syncer.may_report, syncer.rival, other.may_report, other.is_writer) == (True, "", False, False)
        assert not await copy.has("a")(), "nothing is written there"
        monkeypatch.setattr(report, "DUPLICATE_S", 0.0)
        await stack.aclose()
        await until(reports(other), "the first gave up, so the copy is the only one", 60.0)
        await until(copy.has("b"), "all goes down", 60.0)
        await until(saying(view, False), "there are no two any more", 60.0)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_another_cluster_with_the_same_credentials_does_nothing_either(
    clusters: list[tuple[Target, str]], view: MailboxView, tmp_path: Path
) -> None:
    first, second = (
        Edge(each, view, tmp_path / name, Client) for each, name in zip(clusters, ("one", "two"), strict=True)
    )
    view.place(configmap("a", namespace="default"))
    async with first.running() as syncer:
        await until(reports(syncer), "the first reports", 60.0)
        async with second.running() as other:
            await until(saying(view, True), "the second says that there are two", 60.0)
            assert (syncer.is_writer, other.is_writer) == (True, False)
            assert not await second.has("a")()
