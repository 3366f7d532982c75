"""A syncer with nothing but its account's one right, on the view of its mailbox: down, status back, up, and revoked."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import UPSYNCED
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import NotFound
from atoll.syncer import report
from atoll.syncer.credentials import Tokens
from atoll.syncer.mailbox import ITEMS, written_by
from atoll.syncer.syncer import Options
from harness.clients.api import Api, configmap, crd, workspace_under
from harness.servers.in_process.syncer import SERVED, TIMING, syncing
from harness.servers.shard_process import ShardProcess
from harness.waits import until
from integration.edge.mailbox_world import CONFIGS, MailboxWorld
from integration.edge.real_mailbox import RealMailbox, real_mailbox, world

__all__ = ["real_mailbox", "world"]

GROUP = "shapes.example.com"
CIRCLES, CONFIGMAPS = Resource(GROUP, "v1", "circles"), Resource("", "v1", "configmaps")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
UP: Object = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}


@pytest.fixture(scope="module")
def cluster(edge: ShardProcess, root: Api) -> tuple[Target, str]:
    """A workspace as edge cluster."""
    return Kubeconfig.load(str(edge.kubeconfig)).target("root"), workspace_under(root)


@pytest.fixture
async def client(cluster: tuple[Target, str]) -> AsyncIterator[Client]:
    """An administrator of the edge cluster."""
    async with Client(*cluster, manager="kubectl") as found:
        yield found


def finds(client: Client, resource: Resource, name: str, namespace: str) -> Callable[[], Awaitable[Any]]:
    """An object, or None."""

    async def look() -> Object | None:
        try:
            return await client.get(resource, name, namespace)
        except NotFound:
            return None

    return look


async def test_objects_go_down_and_their_status_and_what_is_asked_for_comes_back(
    real_mailbox: RealMailbox, world: MailboxWorld, client: Client, cluster: tuple[Target, str]
) -> None:
    definition = crd("circles")
    circle: Object = {"apiVersion": f"{GROUP}/v1", "kind": "Circle", "metadata": {"name": "k", "namespace": "shapes"}}
    world.admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shapes"}})
    (first,) = real_mailbox.place(definition, resource="customresourcedefinitions")
    (ref,) = real_mailbox.place({**circle, "spec": {"replicas": 2}}, resource="circles")
    options = Options("with-view", 500.0, 500, None, TIMING, SERVED)
    async with syncing(cluster, real_mailbox.target, options) as syncer:
        made = await until(finds(client, CIRCLES, "k", "shapes"), "it is there, after its definition and its Namespace")
        assert made["spec"]["replicas"] == 2
        await client.patch(CIRCLES, "k", {"status": {"replicas": 2}}, "shapes", "status")

        async def reported() -> bool:
            return real_mailbox.status(ref) == {"replicas": 2}

        await until(reported, "its status came back")
        await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logs"}})
        await client.create(CONFIGMAPS, configmap("log", {"line": "1"}, namespace="logs"))
        real_mailbox.upsync([UP])
        path = "/api/v1/namespaces/logs/configmaps/log"

        async def came_up() -> Any:
            found = world.admin.send("GET", path)
            return found.json if found.code == 200 else None

        copy = await until(came_up, "a copy came up, with its Namespace")
        assert copy["data"] == {"line": "1"}
        assert annotations_of(copy)[UPSYNCED] == "ConfigMap/logs/log"
        await client.delete(CONFIGMAPS, "log", "logs")

        async def gone() -> bool:
            return world.admin.send("GET", path).code == 404

        await until(gone, "it went with its object")

        async def applied() -> bool:
            status = world.admin.get(f"{CONFIGS}/the-one").json.get("status") or {}
            return bool(status.get("appliedRevision")) and not status.get("errors")

        await until(applied, "the-one says how far it is")
        real_mailbox.withdraw(ref, first)

        async def withdrawn() -> bool:
            try:
                await client.get(Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False), first.name)
            except NotFound:
                return True
            return False

        await until(withdrawn, "object and definition went")
        assert not syncer.failures


async def test_a_report_causes_no_report_and_a_restart_writes_none(
    real_mailbox: RealMailbox,
    world: MailboxWorld,
    cluster: tuple[Target, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "INTERVAL_S", 0.01)
    real_mailbox.place(configmap("reported", {"a": "1"}, namespace="default"))
    options = Options("reports", 500.0, 500, tmp_path / "state", TIMING, SERVED)
    state: Object = {}

    def the_one() -> Object:
        found: Object = world.admin.get(f"{CONFIGS}/the-one").json
        return found

    async def is_quiet() -> bool:
        """Whether the status covers the list, and stays as it is for the time of many reports."""
        state.update(the_one())
        for _ in range(20):
            await asyncio.sleep(0.01)
            world.admin.get(f"{CONFIGS}/the-one")
        later = the_one()
        return bool(later == state and later.get("status", {}).get("appliedRevision"))

    async with syncing(cluster, real_mailbox.target, options) as syncer:
        await until(is_quiet, "nothing is reported any more")

        async def is_later() -> bool:
            """Whether another wrote a status in a later second than the last change, and the syncer has seen it."""
            world.admin.patch(f"{CONFIGS}/the-one/status", {"status": {"lastSyncerHeartbeatTime": times.now()}})
            found = the_one()
            revision = int(found["metadata"]["resourceVersion"])
            return written_by(found) < revision <= syncer.mailbox.revision

        await until(is_later, "a status of another came")
        await until(is_quiet, "it is not reported")
    before = state["metadata"]["resourceVersion"]
    async with syncing(cluster, real_mailbox.target, options) as again:

        async def is_idle() -> bool:
            down = again.downsync
            return down is not None and again.is_writer and again.mailbox.is_complete and not len(down.queue)

        await until(is_idle, "it has looked at everything")
        await until(is_quiet, "nothing is reported")
        assert state["metadata"]["resourceVersion"] == before


async def test_an_account_renews_its_own_token_through_the_view(
    real_mailbox: RealMailbox, world: MailboxWorld, client: Client
) -> None:
    secret = Resource("", "v1", "secrets")
    await client.create(secret, {"kind": "Secret", "metadata": {"name": "syncer-1", "namespace": "default"}})
    lease = {"kind": "Lease", "metadata": {"name": "syncer", "namespace": "default"}, "spec": {}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    world.admin.send("POST", leases, {"apiVersion": "coordination.k8s.io/v1", **lease})
    bearer = f"Bearer {world.new_token(expirationSeconds=7200)}"
    target = msgspec.structs.replace(real_mailbox.target, headers=(("authorization", bearer),))
    async with Client(target) as center:
        tokens = Tokens(center, client, "syncer-1", "default")
        before = dict(center.target.headers)["authorization"]
        await tokens.renew()
        assert dict(center.target.headers)["authorization"] == before
        # As if its life were over.
        await tokens.renew(share=-1.0)
        renewed = dict(center.target.headers)["authorization"].removeprefix("Bearer ")
        assert renewed not in ("", before)
        assert life_s(renewed) == 7200, "it lives as long as the one before"
        stored = (await client.get(secret, "syncer-1", "default"))["data"]["token"]
        assert base64.b64decode(stored).decode() == renewed
        assert (await center.request("GET", ITEMS.path()))["kind"] == "DownsyncItemList"


def life_s(token: str) -> int:
    """The seconds that a token of a service account lives."""
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return int(claims["exp"] - claims["iat"])
