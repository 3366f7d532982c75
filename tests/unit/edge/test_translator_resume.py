"""A mailbox in which all is current costs no request: what records say is compared, and only the rest is looked at."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from atoll.edge.placement_translator.content import DEFINERS, Content, Item
from atoll.edge.placement_translator.copies import STRIDE
from atoll.edge.placement_translator.mailbox_state import Due
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.placement_translator.versions import Unserved
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object
from harness.servers.stand_ins.mailbox_client import MailboxClient

COUNT = STRIDE + 10
REFS = [ObjectRef("", "configmaps", "default", f"c{number}") for number in range(COUNT)]
BINDING = ObjectRef(*DEFINERS[1], "", "b")
KIND = ServedKind(Resource("", "v1", "configmaps"), "ConfigMap", frozenset({"list"}), frozenset(), ("v1",), frozenset())
BINDINGS = Resource(*DEFINERS[1][:1], "v1alpha2", "apibindings", namespaced=False)


class Workspace:
    """A workspace that sends REFS; what of it was read."""

    def __init__(self) -> None:
        self.content = Content()
        self.content.kinds[REFS[0].kind], self.content.is_complete = KIND, True
        for ref in REFS:
            self.send(ref, "first")
        self.sources = list[str]()

    def send(self, ref: ObjectRef, digest: str) -> None:
        self.content.put(ref, Item(Selection(("p",)), ("v1",), digest, f"uid-{ref.name}"))

    def get(self, cluster: str) -> Content:
        return self.content

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object:
        self.sources.append(ref.name)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ref.name, "namespace": ref.namespace}}


class Mailbox(MailboxClient):
    """A client of a mailbox: the names of what was written, the objects that it has, what it answers."""

    def __init__(self) -> None:
        self.applied, self.stored, self.revision = list[str](), dict[str, Object](), 10
        self.spaces = list[str]()

    async def pages(self, resource: Resource, **options: str) -> AsyncIterator[Object]:
        yield {"items": list(self.stored.values())}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if resource.plural == "namespaces":
            self.spaces.append(name)
        return self.stored[name] if name in self.stored else await super().get(resource, name, namespace)

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        self.revision += 1
        metadata = {**obj["metadata"], "uid": "u", "resourceVersion": str(self.revision)}
        self.applied.append(metadata["name"])
        self.stored[metadata["name"]] = {**obj, "metadata": metadata}
        return self.stored[metadata["name"]]

    async def request(self, method: str, path: str, query: object = None, body: Any = None) -> Object:
        return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": "99"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


class World:
    """The controller of a process, with what it tells of copies that were looked at."""

    def __init__(self, store: EdgeStore, workspace: Workspace, mailbox: Mailbox, *senders: str) -> None:
        topology, self.seen = Topology(), set[str]()
        topology.has_read = lambda cluster: True
        sent = {each: {"p"} for each in ("w", *senders)}
        for name, answer in (("senders", sent), ("is_mailbox", True), ("is_ending", False)):
            setattr(topology, name, lambda *_, answer=answer: answer)
        parts = topology, cast(Any, workspace), CopyRecords(store)
        self.projection = Projection(cast(Client, mailbox), parts, self._done, lambda *_: None)

    def _done(self, mailbox: str, refs: Any) -> None:
        self.seen.update(ref.name for ref in refs)

    async def reconcile(self) -> None:
        await self.projection.reconcile("m")


async def filled(store: EdgeStore, workspace: Workspace, mailbox: Mailbox, *senders: str) -> None:
    """A process that filled the mailbox, and ended."""
    world = World(store, workspace, mailbox, *senders)
    world.projection.due("m").is_unread = False
    await world.reconcile()
    assert world.seen == {ref.name for ref in REFS}
    records = CopyRecords(store)
    records.put_swept("m")
    await records.flush()
    mailbox.applied.clear()
    workspace.sources.clear()


async def test_of_a_resumed_mailbox_only_what_is_otherwise_is_looked_at(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    workspace.send(REFS[3], "second")
    workspace.content.put(REFS[4], None)
    new = ObjectRef("", "configmaps", "default", "new")
    workspace.send(new, "first")
    world = World(store, workspace, mailbox)
    due = world.projection.due("m")
    due.add_sent(workspace.content.items)
    assert due.refs == {}, "all that is sent is compared anyway"
    await world.reconcile()
    assert sorted(mailbox.applied) == [REFS[3].name, "new"]
    assert sorted(workspace.sources) == [REFS[3].name, "new"]
    assert world.seen == {REFS[3].name, REFS[4].name, "new"}
    state = world.projection.state("m")
    assert state is not None
    due = state.due
    due.add_sent([REFS[0]])
    assert due.refs == {REFS[0]: False}, "nothing else will have it looked at"


async def test_a_namespace_with_a_copy_is_not_looked_at_for_another_one(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    mailbox.spaces.clear()
    lost = ObjectRef("", "configmaps", "lost", "a")
    records = CopyRecords(store)
    record = records.get("m", REFS[0])
    assert record is not None
    records.put("m", lost, msgspec.structs.replace(record, sources=""))
    await records.flush()
    for namespace in ("default", "another"):
        workspace.send(ObjectRef("", "configmaps", namespace, "new"), "first")
    workspace.send(lost, "first")
    await World(store, workspace, mailbox).reconcile()
    assert mailbox.spaces == ["another", "lost"]


async def test_what_was_edited_while_nothing_ran_goes_first(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    new = ObjectRef("", "configmaps", "default", "new")
    for ref in (REFS[3], new):
        workspace.send(ref, "second")
    workspace.send(REFS[4], "second")
    world = World(store, workspace, mailbox)
    projection = world.projection
    due = projection.due("m")
    due.add_sent(workspace.content.items, {REFS[3], new})
    due.add_change(REFS[5], 77)
    assert set(due.refs) == {REFS[3], new, REFS[5]}
    await world.reconcile()
    # What has no copy yet may need a definition that has none either.
    assert mailbox.applied == [REFS[3].name]
    state = projection.state("m")
    assert state is not None
    assert (state.is_read, state.due.is_moved, len(projection.queue)) == (False, True, 1)
    await world.reconcile()
    assert sorted(mailbox.applied[1:]) == [REFS[4].name, "new"]
    assert state.is_read
    assert world.seen == {*mailbox.applied, REFS[5].name}


@pytest.mark.parametrize(
    ("is_read", "is_unread", "is_moved", "is_first"),
    [(False, False, True, True), (True, False, True, False), (False, True, True, False), (False, False, False, False)],
)
async def test_edits_go_first_only_where_a_mailbox_is_compared_for_the_first_time(
    store: EdgeStore, is_read: bool, is_unread: bool, is_moved: bool, is_first: bool
) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    projection = World(store, workspace, mailbox).projection
    state = projection._state("m")
    state.is_read, state.due.is_unread, state.due.is_moved = is_read, is_unread, is_moved
    state.due.add(REFS[3], is_live_due=False)
    assert projection._first("m", state) == ([REFS[3]] if is_first else [])
    assert len(projection.queue) == is_first


async def test_without_a_look_the_last_write_of_a_copy_counts(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    world = World(store, workspace, mailbox)
    await world.reconcile()
    assert mailbox.applied == []
    assert world.projection.copies.written("m", ("w", "p")) == mailbox.revision


async def test_what_several_workspaces_send_is_merged_once_after_a_start(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox, "v")
    world = World(store, workspace, mailbox, "v")
    for looks in (2 * COUNT, 0):
        await world.reconcile()
        assert len(workspace.sources) == looks, "conflicts are found by a merge"
        assert mailbox.applied == []
        workspace.sources.clear()
        world.projection.due("m").is_moved = True


async def test_a_copy_whose_version_is_not_served_waits_alone_after_a_start(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    world = World(store, workspace, mailbox)
    choose = world.projection.copies.versions.choose

    def refused(mailbox: str, kind: Any, offered: Any) -> Any:
        if "two" in next(iter(offered.values())):
            raise Unserved("no version")
        return choose(mailbox, kind, offered)

    world.projection.copies.versions.choose = refused  # type: ignore[method-assign]
    workspace.content.put(REFS[7], Item(Selection(("p",)), ("two",), "first", "uid"))
    workspace.send(REFS[8], "second")
    await world.reconcile()
    assert mailbox.applied == [REFS[8].name]
    state = world.projection.state("m")
    assert state is not None
    assert list(state.failures) == [REFS[7]]


async def test_what_failed_is_tried_again_when_all_is_compared(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    world = World(store, workspace, mailbox)
    state = world.projection._state("m")
    # Its record is current, and it is not to be tried before long.
    state.failures[REFS[5]] = Failure("apply", "Invalid", "no", "", 1, time.time())
    await world.reconcile()
    assert state.failures == {}
    assert world.seen == {REFS[5].name}


async def test_a_copy_that_was_otherwise_than_its_record_is_told_when_a_mailbox_is_read(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    await filled(store, workspace, mailbox)
    changed = mailbox.stored[REFS[6].name]
    mailbox.stored[REFS[6].name] = {**changed, "metadata": {**changed["metadata"], "resourceVersion": "77"}}
    world = World(store, workspace, mailbox)
    world.projection.due("m").is_unread = True
    await world.reconcile()
    assert REFS[6].name in world.seen
    assert len(world.seen) < COUNT


async def test_definers_are_put_also_where_they_are_current(store: EdgeStore) -> None:
    workspace, mailbox = Workspace(), Mailbox()
    workspace.content.put(BINDING, Item(Selection(("p",)), ("v1",), "first", "uid-b"))
    for _ in range(2):
        world = World(store, workspace, mailbox)
        world.projection.due("m").is_unread = False
        await world.reconcile()
        assert BINDING.name in world.seen


def test_all_that_is_sent_is_not_kept_beside_a_look_at_all_of_it() -> None:
    due = Due(is_moved=True)
    due.add_sent(REFS)
    due.add(REFS[0], is_live_due=True)
    assert due.refs == {REFS[0]: True}
