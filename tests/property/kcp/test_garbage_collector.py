"""The garbage collector against a model, on random graphs of owners: ConfigMaps, Secrets, custom and cluster-scoped
objects, with finalizers and policies, and with restarts of the controllers at any moment.

The store is real and seals Secrets. After each write of a user the controllers run until they are idle, in random order
and several keys at a time; the final state must be possible with Kubernetes' collector.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.kubernetes.customresourcedefinitions import CustomResourceDefinitionController
from atoll.controllers.kubernetes.garbage_collector import GarbageCollector
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import LOCAL, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import CLUSTER_ROLES, CONFIG_MAPS, CRDS, LOGICAL_CLUSTERS, NAMESPACES, SECRETS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.sealing import ensure_key_file
from harness.clients.api import crd
from harness.data.stores import store_options
from harness.models.owner_graph import FOREGROUND, ORPHAN, Node, Ref, State, deleted, freeze, outcomes, replaced
from harness.servers.in_process.minimal_shard import Cell
from harness.tiers import every

Object = dict[str, Any]
CIRCLES = ResourceType("shapes.example.com", "circles", LOCAL)
TYPES = (CONFIG_MAPS, SECRETS, CIRCLES, CLUSTER_ROLES)
HOLD = "example.com/hold"
CLUSTER, NAMESPACE_NAMES = "c", ("one", "two")
GRAPHS, STEPS, MAX_NODES = 20, 12, 6
CHUNKS = 3
_FIELDS = ("ownerReferences", "finalizers")


class World:
    """The objects of one graph, in the store and in the model."""

    def __init__(self, cell: Cell, chance: random.Random, graph: int) -> None:
        self.cell, self.chance, self.graph = cell, chance, graph
        self.targets: dict[str, Target] = {}
        self.log: list[str] = []
        self.count = 0

    # --- the store ---

    def read(self) -> State:
        """The objects of this graph as the model sees them."""
        found: State = {}
        for type in TYPES:
            for record in self.cell.loopback.records(Scope(type, CLUSTER)):
                metadata = decode(record.value)["metadata"]
                if metadata["name"].startswith(f"g{self.graph}-"):
                    found[metadata["uid"]] = self._node(metadata)
        return found

    def _node(self, metadata: Object) -> Node:
        refs = tuple(self._ref(each) for each in metadata.get("ownerReferences") or [])
        finalizers = frozenset(metadata.get("finalizers") or [])
        return Node(metadata.get("namespace", ""), refs, finalizers, bool(metadata.get("deletionTimestamp")))

    def _ref(self, given: Object) -> Ref:
        owner = self.targets.get(given["uid"])
        valid = owner is None or (owner.kind.kind, owner.name) == (given["kind"], given["name"])
        return Ref(given["uid"], bool(given.get("blockOwnerDeletion")), valid, given["kind"] != "ClusterRole")

    def reference(self) -> Object:
        """A reference to an object that exists or existed, sometimes by a wrong name, or to none."""
        if not self.targets or self.chance.random() < 0.03:
            return {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": f"ghost-{self.graph}"}
        alive = [uid for uid in self.targets if uid in self.read()]
        uid = self.chance.choice(alive if alive and self.chance.random() < 0.95 else list(self.targets))
        owner = self.targets[uid]
        name = owner.name if self.chance.random() < 0.95 else "wrong"
        blocks = self.chance.random() < 0.6
        return {
            "apiVersion": owner.kind.api_version,
            "kind": owner.kind.kind,
            "name": name,
            "uid": uid,
            "blockOwnerDeletion": blocks,
        }

    def references(self) -> list[Object]:
        found = [self.reference() for _ in range(self.chance.choice((0, 1, 1, 1, 1, 2)))]
        return list({each["uid"]: each for each in found}.values())

    def finalizers(self) -> list[str]:
        policy = self.chance.choice(([], [], [ORPHAN], [FOREGROUND]))
        return [*policy, *([HOLD] if self.chance.random() < 0.4 else [])]

    # --- what users do ---

    async def create(self) -> State:
        type = self.chance.choice((CONFIG_MAPS, SECRETS, CONFIG_MAPS, SECRETS, CIRCLES, CLUSTER_ROLES))
        kind = self.cell.catalog(CLUSTER).of_type(type)
        assert kind is not None
        name = f"g{self.graph}-{self.count}"
        # A name may be created again with another uid.
        if self.targets and self.chance.random() < 0.2:
            old = self.chance.choice(list(self.targets.values()))
            if old.kind.type == type and self.cell.loopback.get(type, CLUSTER, old.namespace, old.name) is None:
                name = old.name
        self.count += 1
        namespace = NAMESPACE_NAMES[self.chance.random() < 0.1]
        target = Target(kind, CLUSTER, namespace if kind.namespaced else "", name)
        metadata: Object = {"name": name, "ownerReferences": self.references(), "finalizers": self.finalizers()}
        if kind.namespaced:
            metadata["namespace"] = namespace
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        made = await self.cell.loopback.create(target, body)
        shown = {name: made["metadata"].get(name) for name in ("uid", "name", "namespace", *_FIELDS)}
        self.log.append(f"create {type.resource} {shown}")
        self.targets[made["metadata"]["uid"]] = target
        return self.read()

    async def delete(self) -> State:
        state = self.read()
        policy = self.chance.choice(("", "Background", "Foreground", "Foreground", "Orphan"))
        # Owners of others, as a rule.
        owned = [ref.uid for node in state.values() for ref in node.refs if ref.uid in state]
        uid = self.chance.choice(owned if owned and self.chance.random() < 0.7 else list(state))
        self.log.append(f"delete {uid} {policy}")
        await self.cell.loopback.delete(self.targets[uid], DeleteOptions(policy=policy))
        expected = deleted(state, uid, policy)
        assert self.read() == expected
        return expected

    async def change(self) -> State:
        """Change references or finalizers; an object under deletion only loses finalizers."""
        state = self.read()
        held = [uid for uid, node in state.items() if node.deleting and node.refs]
        uid = self.chance.choice(held if held and self.chance.random() < 0.5 else list(state))
        target = self.targets[uid]
        obj = self.cell.loopback.get(target.kind.type, CLUSTER, target.namespace, target.name)
        assert obj is not None
        metadata = dict(obj["metadata"])
        finalizers = metadata.get("finalizers") or []
        what = self.chance.choice(("release", "references", "unblock", "finalizers"))
        if what == "release" or (what == "finalizers" and state[uid].deleting):
            metadata["finalizers"] = [each for each in finalizers if each != HOLD]
        elif what == "finalizers":
            metadata["finalizers"] = self.finalizers()
        elif what == "references":
            metadata["ownerReferences"] = self.references()
        else:
            metadata["ownerReferences"] = [
                {**each, "blockOwnerDeletion": False} for each in metadata.get("ownerReferences") or []
            ]
        self.log.append(f"{what} {uid} {metadata.get('ownerReferences')} {metadata.get('finalizers')}")
        await self.cell.loopback.update(target, {**obj, "metadata": metadata})
        expected = replaced(state, uid, self._node(metadata))
        assert self.read() == expected
        return expected

    async def step(self) -> None:
        """One write, then the collector, with restarts in between; the final state must be possible in Kubernetes."""
        state = self.read()
        often = self.create if len(state) < MAX_NODES - 1 else self.delete
        begin = self.chance.choice((often, often, self.delete, self.change, self.change)) if state else self.create
        expected = await begin()
        for _ in range(self.chance.choice((0, 0, 1, 3))):
            await self.cell.turn(self.chance.choice((1, 3)))
        if self.chance.random() < 0.2:
            from_state = self.chance.random() < 0.5
            self.log.append(f"restart {from_state}")
            self.cell.take_log()
            self.cell.restart(GarbageCollector(self.cell.loopback), from_state=from_state)
        await self.cell.settle(self.chance.choice((1, 2, 4)))
        found = self.read()
        assert freeze(found) in outcomes(expected), "\n".join([*self.log, f"{expected=}", f"{found=}"])


async def established(store: LmdbStore, chance: random.Random) -> Cell:
    """A minimal shard that serves circles and runs only the collector."""
    cell = Cell(store, chance)
    await cell.cluster(CLUSTER)
    for name in NAMESPACE_NAMES:
        await cell.put(NAMESPACES, CLUSTER, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await cell.put(CRDS, CLUSTER, crd("circles", "shapes.example.com"))
    cell.controllers = [CustomResourceDefinitionController(cell.loopback, cell.kind(CRDS), cell.kind(LOGICAL_CLUSTERS))]
    await cell.settle()
    cell.controllers = [GarbageCollector(cell.loopback)]
    return cell


@pytest.mark.parametrize("seed", every(CHUNKS, range(CHUNKS)))
async def test_random_graphs_rest_where_kubernetes_rests(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    key_file = tmp_path / "keys.json"
    ensure_key_file(key_file)
    store = open_store(store_options(tmp_path / "store", sealed_types=(SECRETS,), key_file=str(key_file)))
    try:
        cell = await established(store, chance)
        for graph in range(GRAPHS):
            world = World(cell, chance, graph)
            for _ in range(STEPS):
                await world.step()
    finally:
        await store.close()
