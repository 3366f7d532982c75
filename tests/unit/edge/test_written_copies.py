"""What is in memory of the last writes of copies says nothing that their records do not say, whatever happens."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import TRANSLATOR, ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Details, Invalid
from harness.seeds import seed_of_run
from harness.servers.stand_ins.mailbox_client import MailboxClient

REFS = [ObjectRef("", "configmaps", "default", f"c{number}") for number in range(4)]
KIND = ServedKind(Resource("", "v1", "configmaps"), "ConfigMap", frozenset({"list"}), frozenset(), ("v1",), frozenset())
PLACEMENTS = ("p", "q")
STEPS = ("send", "send", "withdraw", "refuse", "vanish", "edit", "end", "gone", "move", "reread", "lose", "restart")


class Workspace:
    """What it sends, and objects of it that are gone, which is not told yet."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.content, self.vanished, self._check = Content(), set[str](), check
        self.content.kinds[REFS[0].kind], self.content.is_complete = KIND, True

    def get(self, cluster: str) -> Content:
        return self.content

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object | None:
        self._check()
        if ref.name in self.vanished:
            return None
        metadata = {"name": ref.name, "namespace": ref.namespace}
        data = {"digest": self.content.items[ref].digest}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class World(MailboxClient):
    """A workspace, a mailbox, and the controller between them; `check` is called whenever others may look."""

    def __init__(self, store: EdgeStore, chance: random.Random) -> None:
        self._store, self._chance, self._workspace = store, chance, Workspace(self.check)
        self.content = self._workspace.content
        self.stored, self.revision, self.refused = dict[str, Object](), 10, set[str]()
        self.certain = 0
        self.restart()

    def restart(self) -> None:
        topology = Topology()
        topology.has_read = lambda cluster: True
        sent = {"w": set(PLACEMENTS)}
        for name, answer in (("senders", sent), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
            setattr(topology, name, lambda *_, answer=answer: answer)
        self.records = CopyRecords(self._store)
        parts = topology, cast(Any, self._workspace), self.records
        self.projection = Projection(cast(Client, self), parts, lambda *_: None, lambda *_: None)
        self.projection.due("m").is_moved = True

    def check(self) -> None:
        state, copies = self.projection.state("m"), self.projection.copies
        if state is None or state.is_busy or state.due.is_moved:
            return
        looked_at = self.content.items.keys() - state.failures.keys() - state.due.refs.keys()
        for ref in looked_at - self.content.changing.keys():
            record = self.records.get("m", ref)
            written = record.written if record is not None else 0
            for placement in self.content.items[ref].selection.placements:
                for revision in (written - 1, written, self.revision):
                    if copies.is_written("m", ("w", placement), revision):
                        assert 0 < written <= revision, f"{ref.name}, {record}"
                        self.certain += 1

    def _sent(self, ref: ObjectRef, item: Item | None) -> None:
        before = self.content.items.get(ref)
        names = {name for each in (before, item) if each is not None for name in each.selection.placements}
        self.content.changing = {ref: names}
        self.content.put(ref, item)
        self.check()
        self.projection.due("m").add_sent([ref], [ref])
        self.content.changing = {}

    async def mend(self) -> None:
        """Let everything be taken and be there, and look at all of it."""
        for names in (self.refused, self._workspace.vanished):
            names.clear()
        for name in [name for name, obj in self.stored.items() if "deletionTimestamp" in obj["metadata"]]:
            del self.stored[name]
        self.projection.due("m").is_unread = True
        for _ in range(2):
            await self.projection.reconcile("m")

    # --- the mailbox

    async def pages(self, resource: Resource, **options: str) -> AsyncIterator[Object]:
        self.check()
        yield {"items": list(self.stored.values()) if resource.plural == "configmaps" else []}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        self.check()
        if resource.plural == "configmaps" and name in self.stored:
            return self.stored[name]
        return await super().get(resource, name, namespace)

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        self.check()
        name = obj["metadata"]["name"]
        if name in self.refused:
            raise Invalid("no", details=Details(name=name))
        fields = {"f:data": {f"f:{key}": {} for key in obj.get("data", {})}, "f:metadata": _metadata_fields(obj)}
        entry = {"manager": TRANSLATOR, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}
        return self._store_object({**obj, "metadata": {**obj["metadata"], "uid": "u", "managedFields": [entry]}})

    async def request(self, method: str, path: str, query: object = None, body: Any = None, kind: str = "") -> Object:
        self.check()
        name = path.rpartition("/")[2]
        if method == "DELETE" and name in self.stored:
            if "finalizers" not in self.stored[name]["metadata"]:
                del self.stored[name]
            return {}
        return {**(body or {}), "metadata": {**(body or {}).get("metadata", {}), "resourceVersion": "99"}}

    def _store_object(self, obj: Object) -> Object:
        self.revision += 1
        found = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        self.stored[found["metadata"]["name"]] = found
        return found

    # --- what happens

    async def step(self, step: str, ref: ObjectRef) -> None:
        live, due = self.stored.get(ref.name), self.projection.due("m")
        if step == "send":
            names = self._chance.choice((("p",), ("q",), ("p", "q")))
            self._workspace.vanished.discard(ref.name)
            self._sent(ref, Item(Selection(names), ("v1",), str(self._chance.randrange(9)), f"uid-{ref.name}"))
        elif step == "withdraw" and ref in self.content.items:
            self._sent(ref, None)
        elif step in ("refuse", "vanish"):
            (self.refused if step == "refuse" else self._workspace.vanished).symmetric_difference_update({ref.name})
        elif step in ("edit", "end") and live is not None:
            ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]} if step == "end" else {}
            changed = {**live, "data": {"other": "x"}, "metadata": {**live["metadata"], **ending}}
            self.projection.changed("m", ref, int(self._store_object(changed)["metadata"]["resourceVersion"]))
        elif step == "gone" and self.stored.pop(ref.name, None) is not None:
            self.projection.changed("m", ref, 0)
        elif step == "move":
            due.is_moved = True
        elif step == "reread":
            due.is_unread = True
        elif step == "lose":
            for each in REFS:
                self.records.put("m", each, None)
            await self.records.flush()
            self.restart()
            self.projection.due("m").is_unread = True
        elif step == "restart":
            await self.records.flush()
            self.restart()
        self.check()


def _metadata_fields(obj: Object) -> Object:
    parts = {name: obj["metadata"].get(name) or {} for name in ("labels", "annotations")}
    return {f"f:{name}": {f"f:{key}": {} for key in part} for name, part in parts.items() if part}


@pytest.mark.parametrize("trial", range(8))
async def test_what_is_in_memory_of_writes_is_what_records_say(tmp_path: Path, trial: int) -> None:
    chance = random.Random(seed_of_run(trial))
    store = EdgeStore(tmp_path, allow_any_filesystem=True)
    world = World(store, chance)
    assert not world.projection.copies.is_written("m", ("w", "p"), 99), "nothing was looked at"
    for _ in range(60):
        for _ in range(chance.randrange(3)):
            await world.step(chance.choice(STEPS), chance.choice(REFS))
        await world.projection.reconcile("m")
        world.check()
    assert world.certain > 20
    for is_lost in (False, True):
        # Copies that are in force stay as they are.
        await world.mend()
        revision = world.revision
        if is_lost:
            await world.step("lose", REFS[0])
            await world.mend()
        assert world.revision == revision
        for placement in {name for item in world.content.items.values() for name in item.selection.placements}:
            assert world.projection.copies.is_written("m", ("w", placement), revision)
    store.close()
