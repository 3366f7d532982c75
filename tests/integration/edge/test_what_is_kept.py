"""What of a workspace is copied, and what the placement translator keeps of it: nothing, where nothing is placed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from atoll.edge.changes import ChangeHandler
from atoll.edge.objects import grants, service
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.process import Controller
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.control.worker import work
from atoll.machinery.edge.categories import BuiltIns
from harness.clients.api import Api, Object, configmap, eventually
from harness.servers.edge_service import EdgeControllers, edge_init
from harness.servers.mutant_shard import MutantShard
from harness.waits import until
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    PLACEMENTS,
    WORKSPACES,
    data,
    inventory,
    is_projected,
    listed,
    mailboxes,
    new_workload,
    phase,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

SECRETS = "/api/v1/namespaces/default/secrets"
#: Everything, as each field is said to match all.
WHOLE: Object = {"labelSelectors": [{"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}]}
OBJECTS = 20


def cluster_of(api: Api) -> str:
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    return str(found["metadata"]["annotations"]["kcp.io/cluster"])


def test_a_secret_that_is_sealed_at_rest_and_on_the_stream_is_copied_as_it_was_written(
    workload: Api, mailboxes: dict[str, Api], edge: MutantShard
) -> None:
    assert (edge.root / "sealing-keys.json").is_file()
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "MQ=="}}
    workload.post(SECRETS, secret)
    place(workload, "p", {"env": "one"}, {"apiGroup": "", "resources": ["secrets"]})
    eventually(lambda: data(mailboxes["one"], f"{SECRETS}/s") == {"k": "MQ=="}, "the copy")
    workload.patch(f"{SECRETS}/s", {"data": {"k": "Mg=="}})
    eventually(lambda: data(mailboxes["one"], f"{SECRETS}/s") == {"k": "Mg=="}, "a change of it")


def test_of_a_workspace_with_kubernetes_kinds_that_is_placed_whole_nothing_goes_that_it_is_born_with(
    root: Api, mailboxes: dict[str, Api], edge: MutantShard, tmp_path: Path
) -> None:
    spec = {"type": {"name": "kubernetes", "path": "root"}}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "born"}}
    root.post(WORKSPACES, {**head, "spec": spec})
    eventually(lambda: phase(root, "born") == "Ready", "the workspace is ready")
    edge_init(edge, tmp_path / "kubeconfig", "--ensure-wmw", "root:born")
    here, home = root.at("root:born"), root.at("root:espw")
    # The rights that its owner gives the translator.
    for resource, obj in grants("edge-workload", cluster_of(home)):
        here.post(resource.path(), obj)
    eventually(lambda: here.get("/api/v1/namespaces/default/services/kubernetes", expect=0).code == 200, "it has them")
    here.post(CONFIGMAPS, configmap("own", {"k": "1"}))
    place(here, "p", {"env": "one"}, WHOLE)
    eventually(lambda: is_projected(here, "p"), "all of it is in the mailbox")
    names = [{"namespace": "default", "names": ["own"]}]
    row = {"group": "", "resource": "configmaps", "apiVersion": "v1", "objectsByNamespace": names}
    assert listed(mailboxes["one"]) == {"namespaceScope": {}, "namespacedObjects": [row]}
    here.delete(PLACEMENTS)
    for api in (here, home):
        api.close()


@asynccontextmanager
async def translating(kubeconfig: Path, directory: Path, followed: set[str]) -> AsyncIterator[PlacementTranslator]:
    """The translator in this process. What it follows is in `followed`."""

    def follow(handler: ChangeHandler, clusters: Collection[str] = (), identities: Collection[str] = ()) -> None:
        followed.clear()
        followed.update(clusters)

    async with AsyncExitStack() as stack:
        target = Kubeconfig.load(str(kubeconfig)).target(PlacementTranslator.name)
        client = await stack.enter_async_context(Client(target, manager=PlacementTranslator.name))
        store = EdgeStore(directory, allow_any_filesystem=True)
        stack.callback(store.close)
        parent = client.target.workspace
        found = PlacementTranslator(client, parent, service().export, BuiltIns(frozenset(), frozenset()), store)
        works = [*found.watches(), found.start(follow)]
        controllers: list[Controller] = [*found.controllers]
        works += [work(each.name, each.queue, each.reconcile) for each in controllers]
        tasks = [asyncio.ensure_future(each) for each in works]
        try:
            yield found
        finally:
            for each in tasks:
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.long
async def test_nothing_is_kept_of_a_workspace_without_a_placement(
    root: Api, workload: Api, mailboxes: dict[str, Api], controllers: EdgeControllers, tmp_path: Path
) -> None:
    other, followed = new_workload(root), set[str]()
    for api in (workload, other):
        for number in range(OBJECTS):
            api.post(CONFIGMAPS, configmap(f"c{number}", {"k": "1"}))
    place(workload, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: is_projected(workload, "p"), "the copies")
    with_placement, without, mailbox = cluster_of(workload), cluster_of(other), cluster_of(mailboxes["one"])
    controllers.stop()
    try:
        async with translating(controllers.kubeconfig, tmp_path / "store", followed) as translator:

            async def is_whole() -> bool:
                content = translator._contents.get(with_placement)
                return content is not None and content.is_complete and translator.is_idle

            await until(is_whole, "the workspace was read")
            assert {with_placement, mailbox} <= followed
            kept = translator._contents.cached
            assert kept >= OBJECTS
            assert (without in followed, translator._contents.get(without)) == (False, None)
            await asyncio.to_thread(workload.delete, f"{PLACEMENTS}/p")

            async def is_forgotten() -> bool:
                gone = {with_placement, mailbox}.isdisjoint(followed | translator._projection.active())
                return gone and translator._contents.get(with_placement) is None and translator.is_idle

            await until(is_forgotten, "nothing is kept")
            assert translator._contents.cached == kept - OBJECTS
            copies = await asyncio.to_thread(mailboxes["one"].get, CONFIGMAPS)
            assert not [each for each in copies.json["items"] if each["metadata"]["name"].startswith("c")]
    finally:
        await asyncio.to_thread(controllers.start)
        other.close()
