"""A plain cluster that is restored from an older state, or begins anew, is brought to what is wanted and reports on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.pending_response import ClientError
from atoll.syncer.syncer import Options
from harness.clients.api import configmap, crd
from harness.servers.edge_cluster import EdgeCluster
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, is_idle, syncing
from harness.waits import until

CONFIGMAPS, BOATS = Resource("", "v1", "configmaps"), Resource("restored.example.com", "v1", "boats")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
UP: Object = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["log"]}
LOG = "/api/v1/namespaces/logs/configmaps/log"
WAIT_S = 90.0


def note(name: str, number: int, namespace: str = "shop") -> Object:
    return configmap(name, {"n": str(number)}, namespace=namespace)


class World:
    """What is at the edge, and what the mailbox says of it."""

    def __init__(self, view: MailboxView, edge: Client) -> None:
        self._view, self._edge = view, edge
        definition = crd("boats", BOATS.group)
        boat: Object = {"apiVersion": f"{BOATS.group}/v1", "kind": "Boat", "spec": {"replicas": 1}}
        view.place(definition, resource="customresourcedefinitions")
        (self._boat,) = view.place({**boat, "metadata": {"name": "b", "namespace": "shop"}}, resource="boats")

    async def report(self, number: int) -> None:
        """The edge has another status of the boat."""
        await self._edge.patch(BOATS, "b", {"status": {"replicas": number}}, "shop", "status")

    async def notes(self) -> dict[str, str]:
        items = (await self._edge.list(CONFIGMAPS, "shop"))["items"]
        return {each["metadata"]["name"]: each["data"]["n"] for each in items if "n" in (each.get("data") or {})}

    def has(self, notes: dict[str, str], status: int, log: str) -> Callable[[], Any]:
        """Whether the edge has these notes, and the mailbox this status and this log."""

        async def look() -> bool:
            try:
                found = await self.notes()
            except (ApiError, ClientError, OSError):
                return False
            up = self._view.others.get(LOG, {}).get("data")
            told = self._view.status(self._boat).get("replicas")
            return (found, told, up) == (notes, status, {"n": log})

        return look

    def has_boat(self) -> Callable[[], Any]:
        async def look() -> bool:
            try:
                return bool(await self._edge.get(BOATS, "b", "shop"))
            except ApiError:
                return False

        return look


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_what_changed_since_is_applied_again_and_reports_go_on(tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(lambda: EdgeCluster(tmp_path).__enter__())
    options = Options("restored", 200.0, 200, tmp_path / "state", TIMING, TIMING)
    try:
        target = Kubeconfig.load(str(cluster.kubeconfig)).target()
        async with MailboxView.serving() as view, Client(target) as edge:
            world = World(view, edge)
            view.upsync([UP])
            view.place(note("changed", 1))
            (old,) = view.place(note("old", 1))
            async with syncing((target, ""), view.target, options) as syncer:
                await until(world.has_boat(), "the boat is there", WAIT_S)
                await edge.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logs"}})
                await edge.create(CONFIGMAPS, note("log", 1, "logs"))
                await world.report(1)
                await until(world.has({"changed": "1", "old": "1"}, 1, "1"), "both sides are right", WAIT_S)
                await asyncio.to_thread(cluster.keep)
                view.place(note("changed", 2), note("new", 2))
                view.withdraw(old)
                await edge.patch(CONFIGMAPS, "log", {"data": {"n": "2"}}, "logs")
                await world.report(2)
                wanted = {"changed": "2", "new": "2"}
                await until(world.has(wanted, 2, "2"), "both sides are right again", WAIT_S)
                await asyncio.to_thread(cluster.restore)
                await until(world.has(wanted, 1, "1"), "the older state is brought to it, and tells of itself", WAIT_S)
                await world.report(3)
                await edge.patch(CONFIGMAPS, "log", {"data": {"n": "3"}}, "logs")
                await until(world.has(wanted, 3, "3"), "it reports on", WAIT_S)
                await until(is_idle(syncer, view), "everything was looked at", WAIT_S)
            await asyncio.to_thread(cluster.reset)
            async with syncing((target, ""), view.target, options) as again:
                await until(world.has_boat(), "all is made again in the empty one", WAIT_S)
                await edge.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logs"}})
                await edge.create(CONFIGMAPS, note("log", 4, "logs"))
                await world.report(4)
                await until(world.has(wanted, 4, "4"), "its own state counts, whatever its revisions are", WAIT_S)
                assert not again.failures
    finally:
        await asyncio.to_thread(cluster.__exit__)
