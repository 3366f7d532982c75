"""Of a source that cannot be rendered the last good rendering counts; what nobody remembers stays in the mailbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.content import Content, CustomizerState, Item
from atoll.edge.placement_translator.copies import Copies, Outcome
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import SOURCES, ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Details, NotFound

REF, RULES = (
    ObjectRef("", "configmaps", "default", "a"),
    ObjectRef("edge.kubestellar.io", "customizers", "default", "r"),
)
KIND = ServedKind(Resource("", "v1", "configmaps"), "ConfigMap", frozenset({"list"}), frozenset(), ("v1",), frozenset())


class Sources:
    """What two workspaces send: `data` of one object each, and a Customizer in the first."""

    def __init__(self) -> None:
        self.data = {"one": {"a": "1"}, "two": {"b": "1"}}
        self.contents = {name: Content() for name in self.data}
        self.path = "$.data.by"

    def get(self, cluster: str) -> Content | None:
        return self.contents.get(cluster)

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object:
        metadata = {"name": "a", "namespace": "default"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(self.data[cluster])}

    async def customizer(self, cluster: str, ref: ObjectRef) -> Object:
        row = {"path": self.path, "value": '"r"'}
        return {"metadata": {"name": "r", "namespace": "default", "annotations": {}}, "replacements": [row]}


class Mailbox:
    """A client of a mailbox in which what is applied is there."""

    def __init__(self, live: Object | None = None) -> None:
        self.live, self.applies = live, 0

    def cluster(self, name: str) -> Mailbox:
        return self

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if self.live is None:
            raise NotFound("it is not there", details=Details(name=name))
        return self.live

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        self.applies += 1
        stamp = {"uid": "u", "resourceVersion": str(self.applies)}
        self.live = {**obj, "metadata": {**obj["metadata"], **stamp}}
        return self.live


class World:
    """Two workspaces that send one object to one mailbox; the Customizer of the first may be lost."""

    def __init__(self, store: EdgeStore, live: Object | None = None) -> None:
        self.sources, self.mailbox, self.records = Sources(), Mailbox(live), CopyRecords(store)
        for name, content in self.sources.contents.items():
            content.kinds[REF.kind] = KIND
            self.change(name)
        topology = Topology()
        topology.senders = lambda mailbox: {name: {"p"} for name in self.sources.data}  # type: ignore[method-assign]
        topology.parameters = lambda *_: None  # type: ignore[method-assign]
        parts = topology, cast(Any, self.sources), self.records
        self.copies = Copies(cast(Client, self.mailbox), *parts, lambda *_: None)

    def change(self, name: str, problem: str = "", **data: str) -> None:
        """Change what a workspace gives, and whether it can be rendered."""
        self.sources.data[name] |= data
        content, rules = self.sources.contents[name], RULES if name == "one" else None
        content.customizers[RULES] = CustomizerState(digest=problem, problem=problem)
        digest = str(sorted(self.sources.data[name].items()))
        content.put(REF, Item(Selection(("p",)), ("v1",), digest, f"uid-{name}", customizer=rules))

    async def put(self) -> Outcome:
        return await self.copies.put("m", REF, None, is_live_due=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


def data(world: World) -> Object:
    assert world.mailbox.live is not None
    found: Object = world.mailbox.live["data"]
    return found


async def test_the_other_source_goes_on_beside_the_last_good_rendering(store: EdgeStore) -> None:
    world = World(store)
    assert await world.put() == Outcome(True)
    assert data(world) == {"a": "1", "by": "r", "b": "1"}
    world.change("one", problem="is not there", a="2")
    world.change("two", b="2")
    found = await world.put()
    assert "is not there" in str(found.problem)
    assert data(world) == {"a": "1", "by": "r", "b": "2"}
    await world.records.flush()
    again = World(store, world.mailbox.live)
    again.change("one", problem="is not there", a="2")
    again.change("two", b="3")
    assert (await again.put()).problem is not None, "it is told again until it is repaired"
    assert data(again) == {"a": "1", "by": "r", "b": "3"}
    again.change("one")
    assert (await again.put()).problem is None
    assert data(again) == {"a": "2", "by": "r", "b": "3"}


async def test_what_the_mailbox_has_of_a_source_that_nobody_remembers_stays(store: EdgeStore) -> None:
    world = World(store)
    await world.put()
    world.records.put_renderings("m", REF, {})
    world.change("one", problem="is not there")
    world.change("two", b="2")
    with pytest.raises(Exception, match="is not there"):
        await world.put()
    assert data(world) == {"a": "1", "by": "r", "b": "1"}


async def test_a_source_that_was_never_rendered_does_not_hold_up_the_others(store: EdgeStore) -> None:
    world = World(store)
    world.change("one", problem="is not there")
    assert (await world.put()).problem is not None
    assert data(world) == {"b": "1"}
    assert world.mailbox.live is not None
    assert world.mailbox.live["metadata"]["annotations"][SOURCES] == "two"


async def test_a_source_that_is_alone_and_was_never_rendered_sends_nothing(store: EdgeStore) -> None:
    world = World(store)
    world.change("one", problem="is not there")
    del world.sources.data["two"], world.sources.contents["two"]
    with pytest.raises(Exception, match="is not there"):
        await world.put()
    assert world.mailbox.live is None


async def test_a_customizer_is_about_the_object_of_its_workspace_and_not_about_what_is_merged(store: EdgeStore) -> None:
    world = World(store)
    world.sources.path = "$.data.*"
    await world.put()
    assert data(world) == {"a": "r", "b": "1"}
