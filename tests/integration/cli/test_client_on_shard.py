"""The client library against a real shard, and the README's controller run as printed."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import WILDCARD, Client
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from harness.servers.nats import eventually
from harness.servers.shard_process import ShardProcess

README = Path(__file__).parents[3] / "services/atoll/machinery/client/README.md"
CONFIGMAPS = Resource("", "v1", "configmaps")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)


@pytest.fixture
async def client(shard: ShardProcess) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(shard.kubeconfig)) as client:
        yield client


def configmap(name: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "data": {"k": "v"},
    }


async def workspace(client: Client, name: str) -> Client:
    """A new workspace that is ready."""
    wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    created = await client.create(WORKSPACES, {**wanted, "spec": {"type": {"name": "universal", "path": "root"}}})
    options = {"fieldSelector": f"metadata.name={name}", "resourceVersion": created["metadata"]["resourceVersion"]}
    async with asyncio.timeout(60), client.watch(WORKSPACES, **options) as events:
        async for event in events:
            if event.object.get("status", {}).get("phase") == "Ready":
                break
    return client.cluster(f"root:{name}")


async def test_every_verb_does_what_it_says(client: Client) -> None:
    inside = await workspace(client, "verbs")
    created = await inside.create(CONFIGMAPS, configmap("a"))
    with pytest.raises(AlreadyExists):
        await inside.create(CONFIGMAPS, configmap("a"))
    changed = await inside.update(CONFIGMAPS, {**created, "data": {"k": "w"}})
    with pytest.raises(Conflict):
        await inside.update(CONFIGMAPS, {**created, "data": {"k": "x"}})
    patched = await inside.patch(CONFIGMAPS, "a", {"data": {"k": None, "l": "1"}}, "default")
    assert (changed["data"], patched["data"]) == ({"k": "w"}, {"l": "1"})
    applied = await inside.apply(CONFIGMAPS, configmap("b"))
    again = await inside.apply(CONFIGMAPS, configmap("b"))
    assert applied["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    listed = await inside.list(CONFIGMAPS, "default", limit="1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "kube-root-ca.crt"]
    await inside.delete(CONFIGMAPS, "a", "default")
    with pytest.raises(NotFound):
        await inside.get(CONFIGMAPS, "a", "default")


async def test_a_watch_tells_what_happens_from_a_revision_on(client: Client) -> None:
    inside = await workspace(client, "watched")
    revision = (await inside.list(CONFIGMAPS))["metadata"]["resourceVersion"]
    await inside.create(CONFIGMAPS, configmap("a"))
    await inside.patch(CONFIGMAPS, "a", {"data": {"k": "w"}}, "default")
    await inside.delete(CONFIGMAPS, "a", "default")
    seen = []
    async with asyncio.timeout(60), inside.watch(CONFIGMAPS, resourceVersion=revision) as events:
        async for event in events:
            seen.append(event.type)
            if event.type == "DELETED":
                break
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


@pytest.mark.long
async def test_an_informer_over_every_cluster_survives_a_restart(tmp_path: Path) -> None:
    # Only the shard's own administrator may read all workspaces, and only that token stays valid after a restart.
    async with (
        ShardProcess(tmp_path) as shard,
        Client.from_kubeconfig(str(shard.kubeconfig), "shard-base", WILDCARD) as everywhere,
    ):
        root = everywhere.cluster("root")
        one, two = await workspace(root, "one"), await workspace(root, "two")
        await one.create(CONFIGMAPS, configmap("a"))
        told: list[tuple[str, str]] = []

        def changed(old: Object | None, new: Object | None) -> None:
            name = (new or old or {})["metadata"]["name"]
            if name in {"a", "b"}:
                told.append((name, "gone" if new is None else "changed" if old else "new"))

        informer = Informer(everywhere, CONFIGMAPS, changed)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 60)
        await two.create(CONFIGMAPS, configmap("b"))
        await eventually(lambda: told == [("a", "new"), ("b", "new")])
        assert len({cluster for cluster, _, name in informer.objects if name in {"a", "b"}}) == 2
        await asyncio.to_thread(shard.kill)
        await asyncio.to_thread(shard.start)
        await one.patch(CONFIGMAPS, "a", {"data": {"k": "w"}}, "default")
        await two.delete(CONFIGMAPS, "b", "default")
        await eventually(lambda: told[2:] == [("a", "changed"), ("b", "gone")])
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_controller_of_the_readme_works_as_printed(
    client: Client, shard: ShardProcess, tmp_path: Path
) -> None:
    inside = await workspace(client, "readme")
    await inside.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "there"}})
    document = re.sub(r"/clusters/root\b", "/clusters/root:readme", shard.kubeconfig.read_text())
    (tmp_path / "config").write_text(document)
    (tmp_path / "copier.py").write_text(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0])
    program = runpy.run_path(str(tmp_path / "copier.py"))
    running = asyncio.create_task(program["main"](str(tmp_path / "config")))
    await inside.create(CONFIGMAPS, configmap("c", labels={"copy-to": "there"}))

    async def copied(value: str) -> bool:
        with suppress(NotFound):
            return bool((await inside.get(CONFIGMAPS, "c", "there"))["data"] == {"k": value})
        return False

    for value in ("v", "w"):
        await inside.patch(CONFIGMAPS, "c", {"data": {"k": value}}, "default")
        async with asyncio.timeout(60):
            while not await copied(value):
                assert not running.done(), running
                await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
