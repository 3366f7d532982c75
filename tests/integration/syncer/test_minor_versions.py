"""A plain cluster whose Kubernetes goes a minor version up or down has what is wanted each time, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.pending_response import ClientError
from atoll.syncer.syncer import Options
from harness.clients.api import configmap, crd
from harness.servers.edge_cluster import NEWER, OLDER, USUAL, EdgeCluster
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, is_idle, syncing
from harness.waits import until

CONFIGMAPS, DEPLOYMENTS = Resource("", "v1", "configmaps"), Resource("apps", "v1", "deployments")
BOATS = Resource("versions.example.com", "v1", "boats")
#: OLDER serves no v1 of it.
NEW_KIND = ObjectRef("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "", "new-kind")
SERVERS = {OLDER: "35", USUAL: "36", NEWER: "37"}
WAIT_S = 120.0


def note(name: str, number: int) -> Object:
    return configmap(name, {"n": str(number)}, namespace="shop")


def deployment(replicas: int) -> Object:
    """A Deployment whose image nobody pulls."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/main"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    head = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec}


class World:
    """What is placed, and what both sides have of it."""

    def __init__(self, view: MailboxView, edge: Client) -> None:
        self._view, self._edge = view, edge
        view.place(crd("boats", BOATS.group), resource="customresourcedefinitions")
        boat: Object = {"apiVersion": f"{BOATS.group}/v1", "kind": "Boat", "spec": {"replicas": 1}}
        view.place({**boat, "metadata": {"name": "b", "namespace": "shop"}}, resource="boats")
        new: Object = {"apiVersion": f"{NEW_KIND.group}/v1", "kind": "MutatingAdmissionPolicyBinding"}
        new |= {"metadata": {"name": NEW_KIND.name}, "spec": {"policyName": "nobody-has-it"}}
        view.place(new, resource=NEW_KIND.resource)
        self._deployment = view.place(deployment(1), resource="deployments")[-1]
        self._passing = view.place(note("kept", 0), note("passing-0", 0))[-1]

    def change(self, number: int) -> None:
        """Withdraw an object, make another, and change two that stay."""
        self._view.withdraw(self._passing)
        (*_, self._passing) = self._view.place(note("kept", number), note(f"passing-{number}", number))
        self._view.place(deployment(number + 1), resource="deployments")

    async def uids(self) -> list[str]:
        """The uids of what stays."""
        found = [(CONFIGMAPS, "kept"), (DEPLOYMENTS, "web"), (BOATS, "b")]
        return [str((await self._edge.get(kind, name, "shop"))["metadata"]["uid"]) for kind, name in found]

    async def server(self) -> str:
        """The minor version of the edge."""
        return str((await self._edge.request("GET", "/version"))["minor"])

    def is_right(self, number: int, version: str) -> Callable[[], Any]:
        """Whether both sides have what was placed, but for what this version does not serve, which is reported."""

        async def look() -> bool:
            try:
                await self._edge.get(BOATS, "b", "shop")
                items = (await self._edge.list(CONFIGMAPS, "shop"))["items"]
            except (ApiError, ClientError, TimeoutError, OSError):
                return False
            found = {each["metadata"]["name"]: each["data"].get("n") for each in items if "n" in (each["data"] or {})}
            rows = [each["resource"] for each in self._view.config_status.get("errors") or ()]
            refused = [NEW_KIND.resource] if version == OLDER else []
            replicas = self._view.status(self._deployment).get("availableReplicas")
            placed = {"kept": str(number), f"passing-{number}": str(number)}
            return (found, rows, replicas) == (placed, refused, number + 1)

        return look


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_cluster_of_another_minor_version_has_what_is_wanted_and_loses_nothing(tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(lambda: EdgeCluster(tmp_path).__enter__())
    options = Options("versions", 200.0, 200, tmp_path / "state", TIMING, TIMING)
    try:
        target = Kubeconfig.load(str(cluster.kubeconfig)).target()
        async with MailboxView.serving() as view, Client(target) as edge:
            world = World(view, edge)
            async with syncing((target, ""), view.target, options) as syncer:
                await until(world.is_right(0, USUAL), "both sides are right", WAIT_S)
                before = await world.uids()
                for number, version in enumerate((NEWER, USUAL, OLDER, USUAL), 1):
                    changing = asyncio.create_task(asyncio.to_thread(cluster.change_version, version))
                    world.change(number)
                    await changing
                    assert await world.server() == SERVERS[version]
                    await until(world.is_right(number, version), f"both sides are right at {version}", WAIT_S)
                    assert await world.uids() == before
                await until(is_idle(syncer, view), "everything was looked at", WAIT_S)
            async with syncing((target, ""), view.target, options) as again:
                await until(is_idle(again, view), "everything was looked at again", WAIT_S)
                assert again.downsync is not None
                assert (again.downsync.applies, again.downsync.deletions) == (0, 0)
    finally:
        await asyncio.to_thread(cluster.__exit__)
