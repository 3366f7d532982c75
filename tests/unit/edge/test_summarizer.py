"""Summaries of 200 simulated edge clusters: what is read, when something is written, and how large it becomes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from msgspec import structs

from atoll.edge.changes import Change
from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.mailbox_state import MailboxState
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.placement_translator.records import Copy
from atoll.edge.placement_translator.statuses import PATIENT
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.summarizer.reports import Reports
from atoll.edge.summarizer.rows import MAX_SINGLE
from atoll.edge.summarizer.summaries import MAX_OF_OBJECT, WRITE_S, SummaryKey
from atoll.edge.summarizer.summarizer import StatusSummarizer
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.waves import Waves
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import EDGE_REVISION, REPORT_NAMESPACE, ObjectRef
from atoll.machinery.edge.placements import upsync_set
from atoll.machinery.edge.slices import label_of
from atoll.machinery.edge.summaries.summary import set_uid
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import NotFound

BOATS = Resource("x.dev", "v1", "boats")
BOAT = ObjectRef("x.dev", "boats", "default", "a")
KIND = ServedKind(BOATS, "Boat", frozenset({"list"}), frozenset(), ("v1",), frozenset())
KEY = SummaryKey("work", "default", "boat-uid.placement-uid")
SELECT = [
    {"name": "where", "def": "inventory.name"},
    {"name": "text", "def": "returned.status.text"},
    {"name": "more", "def": "returned.status.text"},
]


class Stored:
    """Boats by mailbox, the summaries of a workspace, and the number of requests."""

    def __init__(self) -> None:
        self.boats: dict[str, Object] = {}
        self.fleets: dict[str, list[Object]] = {}
        self.summaries: dict[str, Object] = {}
        self.statuses: dict[str, Object] = {}
        self.writes = self.reads = 0


class Account:
    """The summarizer's client of a cluster."""

    def __init__(self, stored: Stored, cluster: str = "") -> None:
        self._stored, self._cluster = stored, cluster

    def cluster(self, cluster: str) -> Account:
        return Account(self._stored, cluster)

    def view(self, url: str, cluster: str = "") -> Account:
        return Account(self._stored, cluster)

    def within(self, waves: Waves) -> Account:
        return self

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        self._stored.reads += 1
        found = self._stored.boats.get(self._cluster) if resource == BOATS else self._stored.summaries.get(name)
        if found is None:
            raise NotFound(f"{name} is not there")
        return found

    async def pages(self, resource: Resource, namespace: str = "", **options: str) -> AsyncIterator[Object]:
        fleet = self._stored.fleets.get(self._cluster, [])
        yield {"items": fleet if resource == BOATS else list(self._stored.summaries.values())}

    async def discover(self, path: str) -> Object:
        return {"items": []}

    async def apply(self, resource: Resource, body: Object) -> Object:
        self._stored.writes += 1
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._stored.writes)}}
        self._stored.summaries[body["metadata"]["name"]] = stored
        return stored

    async def patch(self, resource: Resource, name: str, body: Object, subresource: str = "") -> None:
        self._stored.statuses[name] = body["status"]

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        del self._stored.summaries[name]


class Records:
    """Every copy was written at revision 10, and last seen at that of the boat."""

    def __init__(self, stored: Stored) -> None:
        self._stored, self.has_status = stored, True

    def get(self, mailbox: str, ref: ObjectRef) -> Copy | None:
        boat = self._stored.boats.get(mailbox)
        revision = int(boat["metadata"]["resourceVersion"]) if boat is not None else 10
        return Copy("v1", "", ApplyRecord("", ""), "u", revision, 10, has_status=self.has_status)

    def written(self, mailboxes: list[str], ref: ObjectRef) -> list[int]:
        copies = [self.get(each, ref) for each in mailboxes]
        return [copy.written if copy is not None else 0 for copy in copies]

    def of(self, mailbox: str) -> dict[ObjectRef, Copy]:
        copy = self.get(mailbox, BOAT)
        return {BOAT: copy} if copy is not None else {}


class World:
    """One workspace with one boat, placed at a number of edge clusters."""

    def __init__(self, count: int = 200) -> None:
        self.topology, self.content, self.server = Topology(), Content(), Stored()
        self.topology.complete.set()
        self.now_s = time.monotonic()
        metadata = {"name": "p", "uid": "placement-uid", "generation": 1}
        self.topology.set_placement("work", "p", {"metadata": metadata, "spec": {}})
        rows = [
            {"cluster": "inv", "locationName": f"l{n:03}", "syncTargetName": f"t{n:03}", "syncTargetUID": f"u{n}"}
            for n in range(count)
        ]
        owner = {"kind": "EdgePlacement", "name": "p", "uid": "placement-uid"}
        slice_ = {"name": "p", "labels": {"x": label_of("p")}, "ownerReferences": [owner]}
        self.topology.set_slice("work", None, {"metadata": slice_, "destinations": rows})
        self.states: dict[str, MailboxState] = {}
        #: Whether it is in memory that everything was written at revision 10.
        self.is_certain = True
        self.relisted: set[str] = set()
        for n in range(count):
            self.topology.set_mailbox(f"inv-mb-u{n}", f"m{n}")
            state = self.states[f"m{n}"] = MailboxState()
            state.due.is_moved, state.is_read = False, True
        self.content.kinds[BOAT.kind] = KIND
        self.content.put(BOAT, Item(Selection(("p",)), ("v1",), "digest", "boat-uid"))
        self.content.is_complete = True
        self.records = Records(self.server)
        placed = Placed(self.topology, cast(Any, self), cast(Any, self), cast(Any, self.records))
        account = cast(Client, Account(self.server))
        self.summarizer = StatusSummarizer(account, "edge.kubestellar.io", placed)
        self.summarizer.view.client = account.cluster  # type: ignore[method-assign]
        self.collected, self.rows, self.summaries = self.summarizer.controllers
        self.summaries.clock = lambda: self.now_s

    # --- what the translator's parts answer

    def get(self, cluster: str) -> Content | None:
        return self.content if cluster == "work" else None

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object:
        return {"metadata": {"name": ref.name, "labels": {"tier": "web"}}, "spec": {}}

    @property
    def copies(self) -> World:
        return self

    def wanted(self, mailbox: str) -> dict[ObjectRef, dict[str, Item]]:
        return {ref: {"work": item} for ref, item in self.content.items.items()}

    def is_written(self, mailbox: str, placement: tuple[str, str], revision: int) -> bool:
        return self.is_certain and revision >= 10

    def wanted_one(self, mailbox: str, ref: ObjectRef) -> dict[str, Item]:
        item = self.content.items.get(ref)
        return {"work": item} if item is not None else {}

    def state(self, mailbox: str) -> MailboxState | None:
        return self.states.get(mailbox)

    def is_read(self, mailbox: str) -> bool:
        return True

    def active(self) -> set[str]:
        return set(self.states)

    def relist(self, mailbox: str) -> None:
        self.relisted.add(mailbox)

    # --- what happens

    async def report(self, n: int, revision: int, **status: object) -> None:
        """An edge cluster reports."""
        metadata: Object = {"name": "a", "namespace": "default", "resourceVersion": str(revision)}
        metadata["annotations"] = {EDGE_REVISION: f"edge/{revision}"}
        self.server.boats[f"m{n}"] = {"apiVersion": "x.dev/v1", "kind": "Boat", "metadata": metadata, "status": status}
        self.summarizer.copies_changed(f"m{n}", [BOAT])
        await self.rows.reconcile(f"m{n}")

    async def write(self) -> object:
        """A second later the summary is looked at."""
        self.now_s += WRITE_S + 0.1
        return await self.summaries.reconcile(KEY)

    async def begin(self) -> None:
        for mailbox in self.states:
            self.summarizer.copies_changed(mailbox, [])
            await self.rows.reconcile(mailbox)
        await self.summaries.reconcile(SummaryKey("work"))

    @property
    def summary(self) -> Object:
        (found,) = self.server.summaries.values()
        return found

    async def collect(self, name: str = "c", **spec: Any) -> None:
        obj = {"metadata": {"name": name, "generation": 1, "resourceVersion": "1"}, "spec": spec}
        self.collected.put("work", name, obj)
        await self.collected.reconcile(("work", name))


async def test_many_edge_clusters_fit_into_one_summary_which_counts_them_all() -> None:
    world = World()
    await world.collect(select=SELECT, limit=100)
    await world.begin()
    for n in range(200):
        ready = [{"type": "Ready", "status": "False" if n % 2 else "True", "message": "x" * 300}]
        await world.report(n, 20 + n, text="y" * 900, conditions=ready)
        world.summarizer.report_changed(f"m{n}", {"status": {"appliedRevision": "50"}})
    await world.write()
    found = world.summary
    assert found["counts"] == {"destinations": 200, "reported": 200, "upToDate": 200, "broken": 100}
    assert (len(found["brokenObjects"]), found["brokenTruncated"]) == (10, 90)
    assert all(len(each["message"]) == 256 for each in found["brokenObjects"])
    (result,) = found["results"]
    assert result["truncated"] + len(result["rows"]) == 200
    assert result["rows"][0]["columns"][0] == {"type": "String", "string": "t000"}
    assert len(encode_json(found)) < 64 * 1024


async def test_a_summary_is_written_once_a_second_and_only_on_change() -> None:
    world = World(3)
    await world.begin()
    assert await world.write() is None
    assert world.server.writes == 1
    await world.report(0, 20, text="a")
    waits_s = await world.summaries.reconcile(KEY)
    assert isinstance(waits_s, float)
    assert 0 < waits_s <= WRITE_S
    assert world.server.writes == 1
    await world.write()
    assert world.server.writes == 2
    await world.write()
    world.summarizer.report_changed("m1", {"status": {"appliedRevision": "5"}})
    await world.write()
    assert world.server.writes == 2, "it says nothing else"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("as it is", 1),
        ("in work", 0),
        ("read otherwise", 0),
        ("written since", 0),
        ("without a record", 0),
        ("due", 0),
        ("failing", 0),
        ("moved", 0),
        ("nothing applied", 0),
        ("too many errors", 0),
        ("its error", 0),
        ("another error", 1),
    ],
)
async def test_a_record_is_read_only_if_a_copy_may_have_been_written_since_the_last_report(
    case: str, expected: int
) -> None:
    world, applied, errors = World(1), "50", list[Object]()
    state = world.states["m0"]
    await world.begin()
    # What its record would say, which is not read where the answer is clear.
    records = {"in work": 60, "read otherwise": 60, "written since": 60, "without a record": 0}
    read = list[str]()

    def record(mailbox: str, ref: ObjectRef) -> Copy | None:
        read.append(mailbox)
        return Copy("v1", "", ApplyRecord("", ""), "u", written, written) if (written := records.get(case)) else None

    world.records.get = record  # type: ignore[method-assign]
    world.is_certain = case not in ("written since", "without a record")
    match case:
        case "in work":
            state.is_busy = True
        case "read otherwise":
            world.content.changing = {BOAT: {"p"}}
        case "due":
            state.due.refs[BOAT] = False
        case "failing":
            state.failures[BOAT] = Failure("apply", PATIENT, "m", "", 1, 0.0)
        case "moved":
            state.due.is_moved = True
        case "nothing applied":
            applied = "0"
        case "too many errors":
            errors = [{**row("Invalid"), "name": f"x{n}"} for n in range(50)]
        case "its error":
            errors = [row("Invalid")]
        case "another error":
            errors = [{**row("Invalid"), "name": "x"}]
    world.summarizer._reports.put("m0", {"status": {"appliedRevision": applied, "errors": errors}})
    await world.write()
    counts = world.summary["counts"]
    assert (counts["upToDate"], counts["reported"]) == (expected, expected)
    assert len(read) == (case in records) + len(world.summary["brokenObjects"])


async def test_the_time_of_a_heartbeat_is_compared_with_no_row() -> None:
    world = World(1)
    await world.begin()
    report = {"appliedRevision": "50", "lastSyncerHeartbeatTime": "1"}
    world.summarizer.report_changed("m0", {"status": report})
    world.summarizer._rows.of = lambda mailbox: pytest.fail("rows were looked at")  # type: ignore[method-assign]
    world.summarizer.report_changed("m0", {"status": {**report, "lastSyncerHeartbeatTime": "2"}})
    with pytest.raises(pytest.fail.Exception):
        world.summarizer.report_changed("m0", {"status": {**report, "appliedRevision": "51"}})


async def test_summaries_of_many_copies_are_looked_at_less_often() -> None:
    world = World(500)
    for number in range(400):
        name = f"other-{number}.placement-uid"
        world.server.summaries[name] = {"metadata": {"name": name, "namespace": "default", "resourceVersion": "1"}}
    await world.begin()
    await world.write()
    world.summarizer.report_changed("m0", {"status": {"appliedRevision": "50"}})
    waits_s = await world.write()
    assert isinstance(waits_s, float)
    assert 2.5 < waits_s < 3.5, "200,500 copies are made in four seconds"
    assert world.server.writes == 1
    world.now_s += waits_s + 0.1
    assert await world.summaries.reconcile(KEY) is None


async def test_rows_of_an_object_have_in_common_what_is_the_same_in_all_mailboxes() -> None:
    world = World(2)
    refs = [ObjectRef("x.dev", "boats", "default", f"b{number}") for number in range(MAX_SINGLE + 1)]
    for ref in refs:
        world.content.put(ref, Item(Selection(("p",)), ("v1",), "digest", f"uid-{ref.name}"))
    for mailbox in world.states:
        world.server.fleets[mailbox] = [
            {
                "apiVersion": "/".join(("x.dev", "v1")),
                "kind": "".join(("Bo", "at")),
                "metadata": {"name": each.name, "namespace": each.namespace, "resourceVersion": "20"},
            }
            for each in refs
        ]
        world.summarizer.copies_changed(mailbox, refs)
        await world.rows.reconcile(mailbox)
    first, second = (dict(world.rows.of(mailbox)) for mailbox in world.states)
    assert {id(ref) for ref in first} == {id(ref) for ref in second} == {id(ref) for ref in refs}
    for ref in refs:
        one, other = first[ref]["work"], second[ref]["work"]
        assert one.kind is other.kind
        assert one.broken is other.broken
        assert one.cells is other.cells


async def test_after_a_start_a_summary_waits_for_its_mailboxes_for_a_while() -> None:
    world = World(2)
    await world.summaries.reconcile(SummaryKey("work"))
    waits_s = await world.summaries.reconcile(KEY)
    assert isinstance(waits_s, float)
    assert waits_s > 20
    assert world.server.writes == 0
    world.now_s += 31
    world.topology.mailboxes = lambda *_: pytest.fail("mailboxes were looked at")  # type: ignore[method-assign]
    await world.summaries.reconcile(KEY)
    assert world.server.writes == 1


async def test_since_when_something_is_broken_survives_a_restart() -> None:
    world = World(1)
    await world.begin()
    world.summarizer.report_changed("m0", {"status": {"errors": [row("Invalid")]}})
    await world.write()
    (before,) = world.summary["brokenObjects"]
    name = KEY.name
    before["lastUpdate"] = "2020-01-01T00:00:00Z"
    again = World(1)
    again.server.summaries[name] = world.server.summaries[name]
    await again.begin()
    again.summarizer.report_changed("m0", {"status": {"errors": [row("Invalid")]}})
    await again.write()
    assert again.server.writes == 0
    again.summarizer.report_changed("m0", {"status": {"errors": [row("Forbidden")]}})
    await again.write()
    (after,) = again.summary["brokenObjects"]
    assert (after["reason"], after["lastUpdate"]) == ("Forbidden", "2020-01-01T00:00:00Z")


def row(reason: str) -> Object:
    return {
        "group": "x.dev",
        "resource": "boats",
        "namespace": "default",
        "name": "a",
        "reason": reason,
        "message": "m",
    }


async def test_a_silent_edge_cluster_is_broken_and_one_that_refuses_says_why() -> None:
    world = World(3)
    await world.begin()
    world.topology.set_silent("inv-mb-u0", True)
    world.summarizer.silence_changed("m0")
    world.summarizer.report_changed("m1", {"status": {"errors": [row("Invalid")]}})
    await world.write()
    assert [each["reason"] for each in sorted(world.summary["brokenObjects"], key=str)] == ["Silent", "Invalid"]
    world.topology.set_silent("inv-mb-u0", False)
    world.summarizer.report_changed("m1", {"status": {"appliedRevision": "50"}})
    await world.write()
    assert world.summary["counts"] == {"destinations": 3, "reported": 1, "upToDate": 1, "broken": 0}


LINES = [{"name": "number", "type": "COUNT"}, {"name": "lines", "type": "SUM", "subject": "obj.data.lines"}]
LOGS = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}


async def test_a_set_of_which_nothing_came_up_has_the_tables_of_the_collectors_that_are_about_its_kinds() -> None:
    world, members = World(2), upsync_set(LOGS)
    metadata = {"name": "p", "uid": "placement-uid", "generation": 1}
    world.topology.set_placement("work", "p", {"metadata": metadata, "spec": {"upsync": [LOGS]}})
    by_place = [{"name": "where", "def": "inventory.name"}]
    await world.collect("lines", target=[{"apiGroup": "", "resources": ["configmaps"]}], combinedFields=LINES)
    await world.collect("by-place", groupBy=by_place, combinedFields=LINES)
    await world.collect("rows", target=[{"namespaces": ["logs"]}], select=by_place)
    await world.collect("broken", target=[{"apiGroup": ""}], broken={"test": "false", "maxObjects": 3})
    await world.collect("boats", target=[{"resources": ["boats"]}], select=by_place)
    await world.collect("others", target=[{"apiGroup": "", "namespaces": ["default"]}], select=by_place)
    await world.collect("not-for-it", edgePlacements=["another"], select=by_place)
    await world.begin()
    world.now_s += WRITE_S + 0.1
    await world.summaries.reconcile(SummaryKey("work", REPORT_NAMESPACE, f"{set_uid(members)}.placement-uid"))
    null = {"columns": [{"type": "Number", "float": "0"}, {"type": "Null"}]}
    found = {each["name"]: each["rows"] for each in world.summary["results"]}
    assert found == {"by-place": [], "lines": [null], "rows": []}


async def test_an_object_of_which_nothing_was_read_has_the_tables_of_the_collectors_that_are_about_it() -> None:
    world = World(2)
    for name, tier in (("web", "web"), ("base", "base")):
        target = [{"resources": ["boats"], "labelSelectors": [{"matchLabels": {"tier": tier}}]}]
        await world.collect(name, target=target, combinedFields=LINES[:1])
    await world.collect("another", target=[{"objectNames": ["b"]}], combinedFields=LINES[:1])
    world.topology.set_mailbox("inv-mb-u0", "")
    world.topology.set_mailbox("inv-mb-u1", "")
    await world.begin()
    world.now_s += 31
    await world.write()
    (table,) = world.summary["results"]
    assert (table["name"], table["rows"]) == ("web", [{"columns": [{"type": "Number", "float": "0"}]}])


async def test_as_many_broken_objects_are_shown_as_a_collector_wants_that_has_nothing_to_collect() -> None:
    world = World(30)
    await world.collect(target=[{"resources": ["boats"]}], broken={"test": "false", "maxObjects": 20})
    await world.begin()
    assert world.rows.of("m0") == {}
    for n in range(30):
        world.topology.set_silent(f"inv-mb-u{n}", True)
    await world.write()
    assert (len(world.summary["brokenObjects"]), world.summary["brokenTruncated"]) == (20, 10)


async def test_a_copy_is_read_again_only_when_it_changed() -> None:
    world = World(1)
    await world.begin()
    await world.report(0, 20, text="a")
    reads = world.server.reads
    world.summarizer.copies_changed("m0", [BOAT])
    await world.rows.reconcile("m0")
    assert world.server.reads == reads
    await world.collect(select=SELECT)
    world.summarizer.copies_changed("m0", [BOAT])
    await world.rows.reconcile("m0")
    assert world.server.reads == reads + 1


async def test_a_copy_without_a_status_is_read_only_where_a_collector_may_ask_for_it() -> None:
    world, plain = World(1), {"apiVersion": "x.dev/v1", "kind": "Boat"}
    world.server.boats["m0"] = {**plain, "metadata": {"name": "a", "namespace": "default", "resourceVersion": "20"}}
    world.records.has_status = False
    world.content.kinds[BOAT.kind] = structs.replace(KIND, resource=Resource("x.dev", "v2", "boats"))
    await world.begin()
    assert (world.server.reads, world.rows.of("m0")) == (0, {}), "nothing is kept of it"
    world.topology.set_silent("inv-mb-u0", True)
    await world.write()
    unread = dict(world.summary)
    # It says the same of a copy that was read.
    world.records.has_status = True
    world.summarizer.copies_changed("m0", [BOAT])
    await world.rows.reconcile("m0")
    assert (world.server.reads, len(world.rows.of("m0"))) == (1, 1)
    await world.write()
    assert {**world.summary, "observedAt": ""} == {**unread, "observedAt": ""}
    (broken,) = world.summary["brokenObjects"]
    assert (broken["apiVersion"], broken["kind"]) == ("x.dev/v1", "Boat")
    world.records.has_status = False
    world.summarizer.copies_changed("m0", [BOAT])
    await world.rows.reconcile("m0")
    assert world.rows.of("m0") == {}
    await world.collect(select=SELECT, limit=100)
    await world.rows.reconcile("m0")
    assert (world.server.reads, len(world.rows.of("m0"))) == (2, 1)
    world.collected.put("work", "c", None)
    await world.collected.reconcile(("work", "c"))
    await world.rows.reconcile("m0")
    assert (world.server.reads, world.rows.of("m0")) == (2, {}), "nobody asks any more"


async def test_a_copy_without_a_row_changes_its_summary() -> None:
    world = World(2)
    world.records.has_status = False
    await world.begin()
    await world.write()
    changes: list[Callable[[], None]] = [
        lambda: world.summarizer.copies_changed("m0", [BOAT]),
        lambda: world.summarizer.report_changed("m0", {"status": {"appliedRevision": "50"}}),
        lambda: world.summarizer.silence_changed("m0"),
    ]
    for change in changes:
        world.summaries.queue = WorkQueue()
        change()
        await world.rows.reconcile("m0")
        assert list(world.summaries.queue._since) == [KEY]
    await world.write()
    assert world.summary["counts"]["upToDate"] == 1


async def test_many_mailboxes_that_are_read_have_summaries_looked_at_once() -> None:
    world = World(20)
    await world.begin()
    world.summaries.queue = WorkQueue()
    for mailbox in world.states:
        world.rows.forget(mailbox)
        world.summarizer.copies_changed(mailbox, [])
        await world.rows.reconcile(mailbox)
    assert SummaryKey("work") in world.summaries.queue._since
    world.summaries.queue = WorkQueue()
    world.server.summaries = cast(Any, None)  # They are not listed once more.
    await world.summaries.reconcile(SummaryKey("work"))
    assert list(world.summaries.queue._since) == [KEY]


async def test_a_report_of_a_mailbox_that_was_not_read_is_compared_with_no_copy() -> None:
    world = World(1)
    world.records.of = lambda mailbox: pytest.fail("records were looked at")  # type: ignore[method-assign]
    world.summarizer.report_changed("m0", {"status": {"appliedRevision": "50"}})
    assert world.summarizer._reports.get("m0").applied == 50


async def test_copies_are_looked_at_once_their_mailbox_was_read() -> None:
    world = World(1)
    read = world.is_read
    world.is_read = lambda mailbox: False  # type: ignore[method-assign]
    await world.begin()
    world.server.boats["m0"] = {
        "apiVersion": "x.dev/v1",
        "kind": "Boat",
        "metadata": {"name": "a", "namespace": "default", "resourceVersion": "20"},
    }
    assert world.server.reads == 0
    world.is_read = read  # type: ignore[method-assign]
    world.summarizer.copies_changed("m0", [])
    await world.rows.reconcile("m0")
    assert world.server.reads == 1


async def test_a_summary_that_somebody_changed_is_compared_and_put_back() -> None:
    world = World(1)
    await world.begin()
    await world.write()
    change = Change("s", "work", "edge.kubestellar.io", "statussummaries", "", "default", KEY.name, 99, False)
    world.summarizer.own_changed(change)
    await world.write()
    assert world.server.writes == 1, "it says the same"
    world.summary["counts"] = {}
    world.summarizer.own_changed(change)
    await world.write()
    assert world.server.writes == 2


async def test_of_many_collectors_the_first_by_name_count_and_the_others_say_so() -> None:
    world = World(1)
    await world.begin()
    for number in range(17):
        await world.collect(f"c{number:02}", select=SELECT[:1])
    for name in ("c00", "c16"):
        await world.collected.reconcile(("work", name))
    assert world.server.statuses["c00"]["errors"] == []
    assert "more than 16 collectors" in world.server.statuses["c16"]["errors"][0]
    await world.report(0, 20)
    await world.write()
    assert [each["name"] for each in world.summary["results"]] == [f"c{number:02}" for number in range(16)]
    world.collected.put("work", "c00", None)
    await world.collected.reconcile(("work", "c00"))
    await world.collected.reconcile(("work", "c16"))
    assert world.server.statuses["c16"]["errors"] == []


async def test_a_summary_from_before_a_restart_goes_with_its_object() -> None:
    world, again = World(1), World(1)
    await world.begin()
    await world.write()
    again.server.summaries |= world.server.summaries
    await again.begin()
    await again.write()
    assert again.server.writes == 0
    again.summaries.queue = WorkQueue()
    again.content.put(BOAT, None)
    again.summarizer.content_changed("work", [BOAT])
    assert len(again.summaries.queue) == 1
    await again.write()
    assert again.server.summaries == {}


async def test_what_is_not_placed_any_more_has_no_summary() -> None:
    world = World(1)
    await world.begin()
    await world.write()
    world.content.put(BOAT, None)
    world.summarizer.content_changed("work", [BOAT])
    await world.write()
    assert world.server.summaries == {}


@pytest.mark.parametrize(("applied", "written", "expected"), [("9", 10, False), ("10", 10, True), ("x", 1, False)])
def test_an_object_is_applied_as_its_syncer_says(applied: str, written: int, expected: bool) -> None:
    reports = Reports()
    reports.put("m", {"status": {"appliedRevision": applied}})
    assert reports.get("m").has_applied(BOAT, written) == expected


def test_with_as_many_errors_as_are_told_nothing_counts_as_applied() -> None:
    reports = Reports()
    rows = [{**row("Invalid"), "name": f"x{n}"} for n in range(50)]

    def says_else(**status: object) -> bool:
        is_new = reports.put("m", {"status": status})
        assert is_new is not None
        return is_new(BOAT, 10)

    assert says_else(appliedRevision="50", errors=rows[:49])
    assert reports.get("m").has_applied(BOAT, 10)
    assert says_else(appliedRevision="50", errors=rows)
    assert not reports.get("m").has_applied(BOAT, 10)
    assert not says_else(appliedRevision="60", errors=rows)
    assert reports.put("m", {"status": {"appliedRevision": "60", "errors": rows}}) is None


async def test_of_the_placements_that_send_an_object_the_first_by_name_have_summaries() -> None:
    world = World(1)
    names = [f"p{number:02}" for number in range(MAX_OF_OBJECT + 5)]

    async def look(*names: str) -> set[str]:
        """The placements of which there are summaries once all were looked at."""
        world.content.put(BOAT, Item(Selection(names), ("v1",), "digest", "boat-uid"))
        world.summaries.look("work", [BOAT])
        world.now_s += 10 * WRITE_S
        for name in names:
            await world.summaries.reconcile(SummaryKey("work", "default", f"boat-uid.{name}"))
        return {name.partition(".")[2] for name in world.server.summaries}

    for name in ("a", *names):
        metadata = {"name": name, "uid": name, "generation": 1}
        world.topology.set_placement("work", name, {"metadata": metadata, "spec": {}})
    await world.begin()
    assert await look(*names) == set(names[:MAX_OF_OBJECT])
    assert await look("a", *names) == {"a", *names[: MAX_OF_OBJECT - 1]}, "one more that is before the others"
    world.topology.set_placement("work", "a", None)
    assert await look(*names) == {*names[:MAX_OF_OBJECT]} | {"a"}
    await world.summaries.reconcile(SummaryKey("work", "default", "boat-uid.a"))
    assert "boat-uid.a" not in world.server.summaries, "its placement is gone"
