"""A list is made of the one before by what changed, as long as that is what was written, and then names the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.content import Item
from atoll.edge.placement_translator.mailbox_state import MailboxState
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.records import Copy, CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.applied import digest
from atoll.machinery.edge.names import PROJECTED, PROJECTED_VALUE, ObjectRef
from atoll.machinery.edge.syncerconfigs import brief
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, spec_of
from unit.edge.test_translator_listing import UNWANTED, WANTED, EmptyMailbox, Sources

QUERY: Object = {"subjects": [], "objects": []}


class Kept(EmptyMailbox):
    """A mailbox that takes copies and keeps its list, as a server stores it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, Object] = {}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return {
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "7"},
        }

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        return {**obj, "metadata": {**obj["metadata"], "uid": "u", "resourceVersion": "7"}}

    async def request(self, method: str, path: str, query: object = None, body: Any = None) -> Object:
        if not path.startswith("/apis/edge"):
            return {}
        name, number = body["metadata"]["name"], len(self.lists) + 9
        self.parts[name] = stored = await super().request(method, path, query, body)
        stored["metadata"]["resourceVersion"] = str(number)
        return stored

    async def delete(self, resource: Resource, name: str) -> None:
        self.parts.pop(name, None)

    def names(self) -> list[str]:
        """The names of what is listed."""
        entries = self.lists[-1].get("namespacedObjects", [])
        return [name for entry in entries for place in entry["objectsByNamespace"] for name in place["names"]]


class World:
    """A mailbox, the workspace that sends to it, and how often everything of the mailbox was read for its list."""

    def __init__(self, store: EdgeStore) -> None:
        topology, self.sources, self.mailbox, self.whole = Topology(), Sources(), Kept(), 0
        topology.has_read = lambda cluster: True
        for name, answer in (("senders", {"w": {"p"}}), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
            setattr(topology, name, lambda *_, answer=answer: answer)
        self.records = CopyRecords(store)
        parts = topology, cast(Any, self.sources), self.records
        self.projection = Projection(cast(Client, self.mailbox), parts, lambda *_: None, lambda *_: None)
        self.mailbox.projection = self.projection
        self.projection.parts = lambda mailbox: self.mailbox.parts.values()
        self.projection.due("m").is_unread = False
        of = self.records.of

        def counted(mailbox: str) -> dict[ObjectRef, Copy]:
            self.whole += 1
            return of(mailbox)

        self.records.of = counted  # type: ignore[method-assign]

    @property
    def state(self) -> MailboxState:
        found = self.projection.state("m")
        assert found is not None
        return found

    async def look(self) -> list[str]:
        """Reconcile with a list that may be written at once; return what is listed then."""
        self.state.listed_at_s = self.whole = 0
        self.state.list_at_s = self.state.list_at_s and 0.0
        await self.projection.reconcile("m")
        assert self.state.list_at_s is None
        return self.mailbox.names()

    async def send(self, ref: ObjectRef, digest: str) -> list[str]:
        """Have an object sent, or no more."""
        item = Item(Selection(("p",)), ("v1",), digest, "uid") if digest else None
        self.sources.get("w").put(ref, item)
        self.projection.due("m").add(ref, is_live_due=False)
        return await self.look()


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    store = EdgeStore(tmp_path, allow_any_filesystem=True)
    found = World(store)
    assert await found.look() == ["a"]
    yield found
    store.close()


async def test_an_object_more_or_less_is_listed_without_a_look_at_all_others(world: World) -> None:
    assert await world.send(UNWANTED, "digest") == ["a", "b"]
    assert world.whole == 0
    assert await world.send(UNWANTED, "") == ["a"]
    assert await world.send(WANTED, "another") == ["a"]
    assert world.whole == 0
    assert len(world.mailbox.lists) == 3, "an edit is on no list"


async def test_a_list_of_which_more_may_be_another_is_made_anew(world: World) -> None:
    world.projection.listing.associated = lambda mailbox: [QUERY]
    world.projection.relist("m")
    await world.look()
    assert world.mailbox.lists[-1]["associated"] == [QUERY]
    definitions = world.projection.copies.composition.definitions
    definitions.settle = lambda mailbox: (set(), True)  # type: ignore[method-assign]
    definitions.waiting = lambda mailbox: frozenset({WANTED})  # type: ignore[method-assign]
    world.projection._define("m", world.state)
    assert await world.look() == [], "it waits for another definer"


async def test_what_waits_or_is_wanted_no_more_goes_from_the_list(world: World) -> None:
    definitions = world.projection.copies.composition.definitions
    definitions.waiting = lambda mailbox: frozenset({UNWANTED})  # type: ignore[method-assign]
    assert await world.send(UNWANTED, "digest") == ["a"]
    definitions.waiting = lambda mailbox: frozenset()  # type: ignore[method-assign]
    world.sources.get("w").put(WANTED, None)
    world.state.relisted = {WANTED}
    parts = list(world.mailbox.parts.values())
    assert world.projection.listing.specs("m", world.state, parts) == [{"namespaceScope": {}}]


@pytest.mark.parametrize("became", ["edited", "two"])
async def test_a_list_that_is_another_than_was_written_is_made_anew(world: World, became: str) -> None:
    (part,) = world.mailbox.parts.values()
    metadata, name = part["metadata"], part["metadata"]["name"]
    metadata["resourceVersion"] = "99"
    if became == "two":
        second = {**part, "metadata": {**metadata, "name": f"{name}-2"}}
        world.mailbox.parts[f"{name}-2"] = second
    part["spec"] = {"namespaceScope": {}}
    assert await world.send(UNWANTED, "digest") == ["a", "b"]
    assert world.whole


async def test_a_status_of_the_list_changes_nothing(world: World) -> None:
    (part,) = world.mailbox.parts.values()
    part["metadata"]["resourceVersion"] = "99"
    assert await world.send(UNWANTED, "digest") == ["a", "b"]
    assert (world.whole, len(spec_of(part))) == (0, 2)


def test_only_a_list_of_one_part_is_the_one_before() -> None:
    state, part = MailboxState(), {"metadata": {"name": "the-one"}, "spec": {"upsync": []}}
    second = {"metadata": {"name": "the-one-2", "labels": {PROJECTED: PROJECTED_VALUE}}}
    state.take_list([brief(part), {"metadata": {"name": "somebody's"}}])
    assert (state.listed_as, state.relisted) == (digest({"upsync": []}), set())
    state.take_list([part, second])
    assert state.listed_as == ""


async def test_a_list_that_is_not_kept_any_more_is_made_anew(world: World) -> None:
    world.projection.listing._specs = LruCache(0, len)
    assert await world.send(UNWANTED, "digest") == ["a", "b"]
    assert world.whole == 1
