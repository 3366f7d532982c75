"""What a mailbox has lost stays on the list while it cannot be made again, and all is done once the list is written."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.content import DEFINERS, Content, Item
from atoll.edge.placement_translator.mailbox_state import BURST_S, Due, MailboxState
from atoll.edge.placement_translator.projection import LATE_S, Projection
from atoll.edge.placement_translator.records import Copy, CopyRecords
from atoll.edge.placement_translator.syncer_list import Specs, write_list
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.names import PROJECTED, PROJECTED_VALUE, ObjectRef
from atoll.machinery.edge.syncerconfigs import specs_of
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, Forbidden, NotFound
from atoll.machinery.wire.pending_response import ConnectionLost
from harness.servers.stand_ins.mailbox_client import MailboxClient

WANTED, UNWANTED = (ObjectRef("", "configmaps", "default", name) for name in ("a", "b"))
CONFIGMAPS = Resource("", "v1", "configmaps")
KIND = ServedKind(CONFIGMAPS, "ConfigMap", frozenset({"list"}), frozenset(), ("v1",), frozenset())


class Sources:
    """A workspace that sends WANTED."""

    def __init__(self) -> None:
        self._content = Content()
        self._content.kinds[WANTED.kind], self._content.is_complete = KIND, True
        self._content.put(WANTED, Item(Selection(("p",)), ("v1",), "digest", "uid"))

    def get(self, cluster: str) -> Content:
        return self._content

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ref.name, "namespace": ref.namespace}}


class EmptyMailbox(MailboxClient):
    """A client of a mailbox that has no object and takes SyncerConfigs alone."""

    def __init__(self) -> None:
        self.lists, self.projection = list[Object](), cast(Projection, None)

    async def pages(self, resource: Resource, **options: str) -> AsyncIterator[Object]:
        yield {"items": []}

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        raise Forbidden("its definition is going")

    async def request(self, method: str, path: str, query: object = None, body: Any = None) -> Object:
        state = self.projection.state("m")
        assert state is not None
        assert not state.is_done, "the list is not written yet"
        self.lists.append(body["spec"])
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "9"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


async def test_what_is_wanted_and_gone_stays_listed_until_it_is_made_again(store: EdgeStore) -> None:
    topology, records, mailbox = Topology(), CopyRecords(store), EmptyMailbox()
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {"w": {"p"}}), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
        setattr(topology, name, lambda *_, answer=answer: answer)
    for ref in (WANTED, UNWANTED):
        records.put("m", ref, Copy("v1", "digest", ApplyRecord("", ""), "uid", 5, 5))
    parts = topology, cast(Any, Sources()), records
    projection = Projection(cast(Client, mailbox), parts, lambda *_: None, lambda *_: None)
    mailbox.projection = projection
    projection.due("m").is_unread = True
    await projection.reconcile("m")
    state = projection.state("m")
    assert state is not None
    assert list(state.failures) == [WANTED], "it cannot be made again"
    state.list_at_s = 0.0
    await projection.reconcile("m")
    (entry,) = mailbox.lists[0]["namespacedObjects"]
    assert entry["objectsByNamespace"] == [{"namespace": "default", "names": ["a"]}]
    assert state.is_done


class TwoKinds(EmptyMailbox):
    """A mailbox that serves ConfigMaps and Secrets: which kinds were listed, and what was on disk before each write."""

    def __init__(self, store: EdgeStore) -> None:
        super().__init__()
        self.listed, self.expected, self._store = list[str](), list[set[tuple[str, str]] | None](), store
        self.discovered = list[str]()

    async def discover(self, path: str) -> Object:
        self.discovered.append(path)
        rows = [{"resource": name, "scope": "Namespaced", "verbs": ["list"]} for name in ("configmaps", "secrets")]
        versions = [{"version": "v1", "resources": rows}]
        return {"items": [{"metadata": {}, "versions": versions}] if path == "/api" else []}

    async def pages(self, resource: Resource, **options: str) -> AsyncIterator[Object]:
        self.listed.append(resource.plural)
        yield {"items": []}

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        self.expected.append(CopyRecords(self._store).kinds("m"))
        return {**obj, "metadata": {**obj["metadata"], "uid": "u", "resourceVersion": "7"}}


async def test_a_mailbox_is_read_again_only_for_kinds_that_it_may_have_copies_of(store: EdgeStore) -> None:
    topology, mailbox = Topology(), TwoKinds(store)
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {"w": {"p"}}), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
        setattr(topology, name, lambda *_, answer=answer: answer)
    for listed in (["configmaps", "secrets"], ["configmaps"]):
        mailbox.listed.clear()
        # As after a start: only the store is the same.
        parts = topology, cast(Any, Sources()), CopyRecords(store)
        mailbox.projection = projection = Projection(cast(Client, mailbox), parts, lambda *_: None, lambda *_: None)
        projection.due("m").is_unread = True
        await projection.reconcile("m")
        assert mailbox.listed == listed
    assert mailbox.expected
    for kinds in mailbox.expected:
        assert kinds is not None
        assert WANTED.kind in kinds, "a crash after the write leaves a copy that a start has to find"


class Telling(TwoKinds):
    """A mailbox whose changes are seen before its answers come, with revisions that were read and written."""

    def __init__(self, store: EdgeStore, *seen: int) -> None:
        super().__init__(store)
        self._changes, self.calls = seen, list[str]()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if resource.plural == "namespaces":
            return {"metadata": {"name": name}}
        self.calls.append("GET")
        return {
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "8"},
        }

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        self.calls.append("PATCH")
        for revision in self._changes if self.calls == ["PATCH"] else ():
            self.projection.changed("m", WANTED, revision)
        return await super().apply(resource, obj, manager)


@pytest.mark.parametrize(
    ("seen", "calls"),
    [
        ((7,), ["PATCH"]),
        # An earlier change, which the write overtook.
        ((6, 7), ["PATCH"]),
        ((7, 8), ["PATCH", "GET", "PATCH"]),
        # It was deleted and made again.
        ((0, 7), ["PATCH"]),
        ((7, 0), ["PATCH", "GET", "PATCH"]),
    ],
)
async def test_our_own_write_is_read_by_nobody_and_what_comes_after_it_is(
    store: EdgeStore, seen: tuple[int, ...], calls: list[str]
) -> None:
    topology, mailbox = Topology(), Telling(store, *seen)
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {"w": {"p"}}), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
        setattr(topology, name, lambda *_, answer=answer: answer)
    parts = topology, cast(Any, Sources()), CopyRecords(store)
    mailbox.projection = projection = Projection(cast(Client, mailbox), parts, lambda *_: None, lambda *_: None)
    projection.due("m").is_unread = False
    await projection.reconcile("m")
    state = projection.state("m")
    assert state is not None
    assert state.due.refs == {WANTED: True}
    await projection.reconcile("m")
    assert mailbox.calls == calls
    # What was looked at is no news when it is seen once more.
    projection.changed("m", WANTED, 7)
    assert state.due.refs == {}
    for revision in (6, 7):
        projection.changed("m", WANTED, revision)
    await projection.reconcile("m")
    assert mailbox.calls == calls


class Cut(TwoKinds):
    """A mailbox that is cut off while it answers the first write."""

    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object:
        raise ConnectionLost("cut", begun=True)


def translating(store: EdgeStore, mailbox: EmptyMailbox) -> Projection:
    """The controller of a process that begins, with the workspace that sends WANTED."""
    topology = Topology()
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {"w": {"p"}}), ("is_mailbox", True), ("is_ending", False), ("placements", [])):
        setattr(topology, name, lambda *_, answer=answer: answer)
    topology.all_mailboxes, topology.is_sent_to = lambda: ["m"], lambda mailbox: True  # type: ignore[method-assign]
    parts = topology, cast(Any, Sources()), CopyRecords(store)
    mailbox.projection = Projection(cast(Client, mailbox), parts, lambda *_: None, lambda *_: None)
    return mailbox.projection


async def test_a_process_that_resumes_lists_nothing_but_where_it_ended_amid_a_write_or_kinds_are_defined(
    store: EdgeStore,
) -> None:
    records = CopyRecords(store)
    records.put_swept("m")
    await records.flush()
    with pytest.raises(ConnectionLost):
        await translating(store, Cut(store)).reconcile("m")
    # It ended before the answer came, and then once more with nothing under way.
    for listed, writes in ((["configmaps"], 1), ([], 0)):
        mailbox = TwoKinds(store)
        projection = translating(store, mailbox)
        projection.resume_all()
        await projection.reconcile("m")
        assert (mailbox.listed, len(mailbox.expected)) == (listed, writes)
    records = CopyRecords(store)
    records.add_kinds("m", {DEFINERS[0]})
    await records.flush()
    mailbox = TwoKinds(store)
    projection = translating(store, mailbox)
    projection.resume_all()
    await projection.reconcile("m")
    assert mailbox.listed == ["configmaps"]


@pytest.mark.parametrize(
    ("ref", "revision", "late", "is_unread"),
    [
        (UNWANTED, 99, 100, True),
        # It is of this process, deleted, or of a kind that no copy has.
        (UNWANTED, 100, 100, False),
        (UNWANTED, 0, 100, False),
        (ObjectRef("coordination.k8s.io", "leases", "default", "a"), 99, 100, False),
        # Whoever worked before had done all: it is something else, such as what every workspace is made with.
        (UNWANTED, 99, 0, False),
    ],
)
async def test_a_copy_without_a_record_is_looked_for_if_an_earlier_process_may_have_written_it(
    store: EdgeStore, ref: ObjectRef, revision: int, late: int, is_unread: bool
) -> None:
    records = CopyRecords(store)
    if late:
        records.put_late("m", late)
    records.put_swept("m")
    await records.flush()
    mailbox = TwoKinds(store)
    projection = translating(store, mailbox)
    projection.changed("m", ref, revision)
    assert not projection.is_idle
    await projection.reconcile("m")
    assert mailbox.listed == (["configmaps"] if is_unread else [])
    assert bool(mailbox.discovered) == is_unread


async def test_writes_of_a_process_that_ended_amid_new_copies_may_come_later_also_for_the_next_but_one(
    store: EdgeStore,
) -> None:
    before_us = int(time.time() * 1_000_000)
    mailbox = TwoKinds(store)
    projection = translating(store, mailbox)
    assert projection.due("m").is_unread, "nobody took down that all copies have a record"
    await projection.reconcile("m")
    mailbox.listed.clear()
    again = translating(store, mailbox)
    assert not again.due("m").is_unread
    again.changed("m", UNWANTED, before_us)
    await again.reconcile("m")
    assert mailbox.listed == ["configmaps"]
    again.changed("m", UNWANTED, before_us + int(2 * LATE_S * 1_000_000))
    await again.reconcile("m")
    assert mailbox.listed == ["configmaps"]


async def test_a_new_copy_whose_answer_did_not_come_is_looked_for(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put_swept("m")
    await records.flush()
    projection = translating(store, Cut(store))
    with pytest.raises(ConnectionLost):
        await projection.reconcile("m")
    assert projection.due("m").is_unread, "it may be there, and nobody may want it when it is tried again"


async def test_what_a_mailbox_refuses_may_be_there_after_all_for_a_process_that_resumes(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put_swept("m")
    await records.flush()
    await translating(store, EmptyMailbox()).reconcile("m")
    assert CopyRecords(store).swept() == set()


async def test_a_change_in_a_mailbox_that_is_not_ready_waits(store: EdgeStore) -> None:
    projection = translating(store, EmptyMailbox())
    projection._topology.is_mailbox = lambda cluster: False  # type: ignore[method-assign]
    projection.changed("m", WANTED, 7)
    key, _ = await projection.queue.take()
    projection.queue.done(key, await projection.reconcile(key))
    assert not projection.is_idle
    projection.forget("m")
    assert projection.is_idle


class Lists:
    """The SyncerConfigs of a mailbox: the requests about them, and refusals of those with an old revision."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.requests: list[str] = []

    async def list(self, resource: Resource) -> Object:
        self.requests.append("LIST")
        return {"items": list(self.stored.values())}

    async def request(self, method: str, path: str, query: object, body: Object) -> Object:
        self.requests.append(method)
        name, revision = body["metadata"]["name"], body["metadata"].get("resourceVersion")
        before = self.stored.get(name)
        if (before is None) != (method == "POST"):
            raise AlreadyExists("it is there") if before is not None else NotFound("it is not there")
        if before is not None and before["metadata"]["resourceVersion"] != revision:
            raise Conflict("it is another by now")
        written = {**body, "metadata": {**body["metadata"], "resourceVersion": str(len(self.requests))}}
        self.stored[name] = written
        return written


def listing(*refs: ObjectRef) -> Specs:
    """What makes the list of these objects."""
    return lambda parts: specs_of(dict.fromkeys(refs, "v1"), ())


async def test_a_list_that_was_seen_is_written_without_a_read() -> None:
    lists = Lists()
    client = cast(Client, lists)
    await write_list(client, listing(WANTED))
    assert lists.requests == ["LIST", "POST"]
    (seen,) = lists.stored.values()
    assert await write_list(client, listing(WANTED, UNWANTED), seen=[seen]) == list(lists.stored.values())
    assert lists.requests[2:] == ["PUT"]
    (now,) = lists.stored.values()
    assert await write_list(client, listing(WANTED, UNWANTED), seen=[now]) == []
    assert lists.requests[2:] == ["PUT"]


@pytest.mark.parametrize("became", ["another", "gone"])
async def test_a_list_that_became_another_is_read_and_written(became: str) -> None:
    lists = Lists()
    client = cast(Client, lists)
    await write_list(client, listing(WANTED))
    (seen,) = lists.stored.values()
    if became == "gone":
        lists.stored.clear()
    else:
        lists.stored["the-one"] = {**seen, "metadata": {**seen["metadata"], "resourceVersion": "77"}}
    assert await write_list(client, listing(UNWANTED), seen=[seen])
    assert lists.requests[2:4] == ["PUT", "LIST"]
    assert "b" in str(lists.stored["the-one"]["spec"])


async def test_what_was_seen_before_our_own_last_write_does_not_count(store: EdgeStore) -> None:
    topology, mailbox = Topology(), Lists()
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {}), ("is_mailbox", True), ("is_ending", False)):
        setattr(topology, name, lambda *_, answer=answer: answer)
    client = cast(Client, mailbox)
    mailbox.cluster = lambda name: client  # type: ignore[attr-defined]
    await write_list(client, listing(WANTED))
    (old,) = mailbox.stored.values()
    parts = topology, cast(Any, Sources()), CopyRecords(store)
    projection = Projection(client, parts, lambda *_: None, lambda *_: None)
    projection.parts = lambda name: [old]
    for listed, requests in ((int(old["metadata"]["resourceVersion"]), ["PUT"]), (77, ["LIST", "PUT"])):
        mailbox.stored, mailbox.requests = {"the-one": old}, []
        projection.due("m").is_unread = False
        state = projection.state("m")
        assert state is not None
        state.listed, state.list_at_s = listed, 1.0
        await projection.reconcile("m")
        assert mailbox.requests == requests


def test_what_is_due_for_another_reason_than_a_change_stays_due() -> None:
    due, other = Due(), Due()
    due.add_change(WANTED, 7)
    assert (due.refs, due.changes) == ({WANTED: True}, {WANTED: 7})
    due.add(WANTED, is_live_due=True)
    due.add_change(WANTED, 8)
    assert (due.refs, due.changes) == ({WANTED: True}, {})
    other.add_change(WANTED, 9)
    due.join(other)
    assert due.changes == {}
    later = Due()
    later.add(UNWANTED, is_live_due=False)
    later.add_change(WANTED, 10)
    later.add_change(UNWANTED, 11)
    later.join(other)
    assert (later.refs, later.changes) == ({WANTED: True, UNWANTED: True}, {WANTED: 10, UNWANTED: 11})
    fresh = Due()
    fresh.join(other)
    assert (fresh.refs, fresh.changes) == ({WANTED: True}, {WANTED: 9})


def resting(store: EdgeStore) -> tuple[Projection, MailboxState]:
    """A mailbox in which nothing is due."""
    topology, mailbox = Topology(), EmptyMailbox()
    topology.has_read = lambda cluster: True
    for name, answer in (("senders", {}), ("is_mailbox", True), ("is_ending", False)):
        setattr(topology, name, lambda *_, answer=answer: answer)
    parts = topology, cast(Any, Sources()), CopyRecords(store)
    projection = Projection(cast(Client, mailbox), parts, lambda *_: None, lambda *_: None)
    projection.due("m")
    state = projection.state("m")
    assert state is not None
    state.due = Due()
    return projection, state


def part(name: str, revision: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(revision)}, "spec": {}}


async def test_a_list_that_is_as_it_was_written_is_not_looked_at_again(store: EdgeStore) -> None:
    (projection, state), parts = resting(store), {"the-one": part("the-one", 9)}
    projection.parts = lambda name: parts.values()
    state.written_parts = {"the-one": 9}
    projection.parts_changed("m")
    assert not len(projection.queue), "it is what was written"
    state.is_busy = True
    projection.parts_changed("m")
    assert len(projection.queue), "the answer to the write may not be here yet"
    await projection._copy("m", state, state.take())
    assert state.list_at_s is None
    state.is_busy = False
    parts["the-one-2"] = part("the-one-2", 5)
    projection.parts_changed("m")
    await projection._copy("m", state, state.take())
    assert state.list_at_s is None, "it is no part of the list"
    parts["the-one-2"]["metadata"]["labels"] = {PROJECTED: PROJECTED_VALUE}
    projection.parts_changed("m")
    await projection._copy("m", state, state.take())
    assert state.list_at_s is not None, "somebody wrote another part"


async def test_a_list_is_written_with_its_copies_and_then_not_for_a_while(store: EdgeStore) -> None:
    mailbox = TwoKinds(store)
    projection = translating(store, mailbox)
    projection.due("m").is_unread = False
    assert await projection.reconcile("m") is None
    assert len(mailbox.lists) == 1
    projection.relist("m")
    wait_s = await projection.reconcile("m")
    assert isinstance(wait_s, float)
    assert 0 < wait_s <= BURST_S
    assert len(mailbox.lists) == 1
    state = projection.state("m")
    assert state is not None
    assert not state.is_done
    state.listed_at_s, state.list_at_s = 0.0, None
    projection.relist("m")
    assert await projection.reconcile("m") is None
    assert len(mailbox.lists) == 2, "it is long ago"
