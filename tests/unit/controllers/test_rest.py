"""Objects held by foreign finalizers cost little: few reconciles and no writes in an hour of a manual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from atoll.controllers.bindings.apibinding_deletion import BindingDeletion
from atoll.controllers.kubernetes.customresourcedefinitions import CustomResourceDefinitionController
from atoll.controllers.kubernetes.garbage_collector import GarbageCollector
from atoll.controllers.kubernetes.namespaces import NamespaceController
from atoll.controllers.workspaces.logicalcluster_deletion import LogicalClusterDeletion
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import LOCAL, ResourceType
from atoll.machinery.meta.types import API_BINDINGS, CONFIG_MAPS, CRDS, LOGICAL_CLUSTERS, NAMESPACES, SECRETS
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import Cell, cell

HOLD, CIRCLES = "example.com/hold", ResourceType("shapes.example.com", "circles", LOCAL)
HOUR_S = 3600.0
#: About 12 reconciles an hour are at the cap, which jitter halves at most; the others come before.
MAX_RECONCILES = 35


class Hour:
    """The controllers' queues on a clock that jumps from one delay to the next."""

    def __init__(self, here: Cell) -> None:
        self.here, self.now_s = here, 0.0
        self.queues: dict[str, WorkQueue[Hashable]] = {
            each.name: WorkQueue(lambda: self.now_s) for each in here.controllers
        }
        self.counts: Counter[tuple[str, str]] = Counter()

    def dispatch(self) -> None:
        while entries := self.here.store.tail(self.here.position, 500):
            for entry in entries:
                self.here.position = entry.revision
                for controller in self.here.controllers:
                    if controller.watches(entry.key.type):
                        for key in controller.keys(entry):
                            self.queues[controller.name].add(key)

    async def work(self, controller: Controller) -> None:
        """Reconcile the keys that are due."""
        queue = self.queues[controller.name]
        queue._promote()
        while queue.depth:
            key, _ = await queue.take()
            self.counts[controller.name, str(key)] += 1
            queue.done(key, await controller.reconcile(key))

    async def passes(self, seconds: float) -> None:
        """Advance the clock and reconcile keys when they are due."""
        end_s = self.now_s + seconds
        while self.now_s <= end_s:
            before = self.here.position
            self.dispatch()
            for controller in self.here.controllers:
                await self.work(controller)
            self.dispatch()
            if self.here.position == before and not any(queue.depth for queue in self.queues.values()):
                self.now_s = min([end_s + 1, *(each._delayed[0][0] for each in self.queues.values() if each._delayed)])


async def held(here: Cell, type: ResourceType, cluster: str, name: str, **metadata: object) -> str:
    """An object with a foreign finalizer. Return its uid."""
    kind = here.catalog(cluster).of_type(type)
    assert kind is not None
    namespace = "full" if kind.namespaced else ""
    given = {"name": name, "finalizers": [HOLD], **({"namespace": namespace} if namespace else {}), **metadata}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": given}
    made = await here.loopback.create(Target(kind, cluster, namespace, name), body)
    return str(made["metadata"]["uid"])


async def begin_deletion(here: Cell, type: ResourceType, cluster: str, name: str, policy: str = "") -> None:
    kind = here.catalog(cluster).of_type(type)
    assert kind is not None
    target = Target(kind, cluster, "full" if kind.namespaced else "", name)
    await here.loopback.delete(target, DeleteOptions(policy=policy))


async def filled(here: Cell, cluster: str) -> None:
    """A cluster with a namespace, a definition and an owner, none of which can be deleted."""
    await here.cluster(cluster)
    spec = {"finalizers": ["kubernetes"]}
    await here.put(
        NAMESPACES, cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}, "spec": spec}
    )
    await here.put(CRDS, cluster, crd("circles", "shapes.example.com"))
    await here.settle()
    await held(here, CIRCLES, cluster, "held")
    uid = await held(here, CONFIG_MAPS, cluster, "owner")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    await held(here, SECRETS, cluster, "blocks", ownerReferences=[owner])
    await here.change(
        LOGICAL_CLUSTERS,
        cluster,
        wellknown.SINGLETON,
        metadata={
            **here.found(LOGICAL_CLUSTERS, cluster, wellknown.SINGLETON)["metadata"],
            "finalizers": [wellknown.DELETION_FINALIZER, HOLD],
        },
    )


async def test_an_hour_of_held_things_has_few_reconciles_and_no_writes(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        clusters, workspaces = here.kind(LOGICAL_CLUSTERS), here.facts.identities.workspaces
        for name in ("open", "going"):
            await filled(here, name)
        await here.cluster("provider")
        await here.export("provider", "shapes", crd("squares", "shapes.example.com"))
        await here.bind("open", "provider", "shapes")
        await here.settle()
        [square] = [kind.type for kind in here.catalog("open").kinds.values() if kind.plural == "squares"]
        await held(here, square, "open", "held")
        here.controllers = [
            BindingDeletion(here.loopback, here.facts, here.kind(API_BINDINGS), clusters),
            CustomResourceDefinitionController(here.loopback, here.kind(CRDS), clusters),
            GarbageCollector(here.loopback),
            LogicalClusterDeletion(here.loopback, clusters, workspaces),
            NamespaceController(here.loopback, here.kind(NAMESPACES)),
        ]
        hour = Hour(here)
        await begin_deletion(here, CONFIG_MAPS, "open", "owner", "Foreground")
        await begin_deletion(here, API_BINDINGS, "open", "shapes")
        await begin_deletion(here, CRDS, "open", "circles.shapes.example.com")
        await begin_deletion(here, NAMESPACES, "open", "full")
        await begin_deletion(here, LOGICAL_CLUSTERS, "going", wellknown.SINGLETON)
        await hour.passes(60.0)
        waiting = {name for name, queue in hour.queues.items() if len(queue)}
        assert waiting == {controller.name for controller in here.controllers}, "all of them hold something"
        hour.counts.clear()
        position = here.position
        await hour.passes(HOUR_S)
        assert here.position == position, "something was written"
        assert max(hour.counts.values()) <= MAX_RECONCILES, hour.counts
