"""What a placement says of its objects and destinations."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.edge.export_view import ExportView
from atoll.edge.placement_translator.conflicts import Conflicts
from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.mailbox_state import Due, MailboxState
from atoll.edge.placement_translator.placement_status import DestinationState, Projected, edge_errors, status_with
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.statuses import BURST_S, Statuses
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.slices import label_of
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object

REF = ObjectRef("apps", "deployments", "default", "web")
UP = DestinationState("up", is_projected=True, is_applied=True)
BEHIND = DestinationState("late", is_projected=True)
SILENT = DestinationState("mute", is_projected=True, is_silent=True)
FAILING = DestinationState("bad", errors=("deployments.apps default/web: no",), is_projected=True, is_silent=True)
REFUSED = DestinationState("full", {REF: "Forbidden: quota"})


def said(*destinations: DestinationState, obj: Object | None = None, **fields: Any) -> Object:
    values: dict[str, Any] = {"is_valid": True, "object_count": 2, "forbidden": (), "not_carried": (), **fields}
    return status_with(obj or {"metadata": {}}, Projected(destinations=destinations, **values))


def condition(status: Object, type_: str) -> tuple[str, str, str]:
    (row,) = [each for each in status["conditions"] if each["type"] == type_]
    return row["status"], row.get("reason", ""), row.get("message", "")


def test_each_destination_is_counted_once() -> None:
    status = said(UP, BEHIND, SILENT, FAILING, REFUSED)
    assert status["destinations"] == {"total": 5, "upToDate": 1, "behind": 1, "silent": 1, "failing": 2}
    assert status["objectCount"] == 2


def test_those_that_lack_nothing_are_counted_without_a_state() -> None:
    assert said(BEHIND, up_to_date=3)["destinations"] == {
        "total": 4,
        "upToDate": 3,
        "behind": 1,
        "silent": 0,
        "failing": 0,
    }


def test_others_fields_stay_and_the_same_is_said_again() -> None:
    before = {"specGeneration": 4, "matchingLocationCount": 7, "conditions": [{"type": "Resolved", "status": "True"}]}
    status = said(UP, obj={"metadata": {}, "status": before})
    assert (status["specGeneration"], status["matchingLocationCount"]) == (4, 7)
    assert [each["type"] for each in status["conditions"]] == ["Projected", "Resolved", "Synced"]
    assert said(UP, obj={"metadata": {}, "status": status}) == status


def test_a_conflict_names_ten_objects_and_counts_the_others_until_it_ends() -> None:
    rows = tuple(f"configmaps default/{number:02}: spec of workspace w" for number in range(12))
    status = said(UP, contested=rows)
    text = "; ".join(rows[:10]) + " and 2 more"
    assert condition(status, "Conflicting") == ("True", "WorkloadConflict", text)
    assert status["conflictCount"] == 12
    after = said(UP, obj={"metadata": {}, "status": status})
    assert [each["type"] for each in after["conditions"]] == ["Projected", "Synced"]
    assert "conflictCount" not in after


@pytest.mark.parametrize(
    ("destinations", "fields", "projected"),
    [
        ((UP, SILENT), {}, ("True", "", "")),
        ((), {}, ("True", "", "")),
        ((UP,), {"is_valid": False}, ("False", "Invalid", "the placement has no effect")),
        (
            (UP,),
            {"forbidden": {("", "secrets"), ("apps", "deployments")}},
            ("False", "Forbidden", "the account of the placement translator may not list deployments.apps, secrets"),
        ),
        (
            (UP,),
            {"forbidden": {("*", "*")}},
            ("False", "Forbidden", "the workspace does not let the account of the placement translator in"),
        ),
        ((UP, REFUSED), {}, ("False", "ObjectsRefused", "deployments.apps default/web: Forbidden: quota")),
        ((UP,), {"not_carried": {("", "nodes")}}, ("False", "NotCarried", "not carried: nodes")),
        ((DestinationState("new"),), {}, ("False", "InProgress", "mailboxes of new")),
    ],
)
def test_a_condition_says_why_mailboxes_lack_objects(
    destinations: tuple[DestinationState, ...], fields: dict[str, Any], projected: tuple[str, str, str]
) -> None:
    assert condition(said(*destinations, **fields), "Projected") == projected


@pytest.mark.parametrize(
    ("destinations", "synced"),
    [
        ((UP,), ("True", "", "")),
        ((UP, BEHIND), ("False", "InProgress", "late")),
        ((UP, BEHIND, SILENT), ("False", "DestinationsSilent", "mute")),
        ((UP, SILENT, FAILING), ("False", "ObjectsFailing", "bad: deployments.apps default/web: no")),
        ((REFUSED, BEHIND), ("False", "ObjectsRefused", "full")),
    ],
)
def test_a_condition_says_why_edge_clusters_lack_objects(
    destinations: tuple[DestinationState, ...], synced: tuple[str, str, str]
) -> None:
    assert condition(said(*destinations), "Synced") == synced


def test_a_text_names_a_few_and_counts_the_others() -> None:
    many = [DestinationState(f"d{number}", is_projected=True) for number in range(8)]
    assert condition(said(*many), "Synced") == ("False", "InProgress", "d0, d1, d2, d3, d4 and 3 more")


def test_an_error_of_an_edge_concerns_its_object_or_without_a_name_all_of_its_kind() -> None:
    content = Content()
    content.put(REF, Item(Selection(("p",)), ("v1",), "digest", "uid"))
    row = {"group": "apps", "resource": "deployments", "namespace": "default", "name": "web", "message": "no"}
    for changed, texts in (
        ({}, ("deployments.apps default/web: no",)),
        ({"name": "other"}, ()),
        ({"namespace": "", "name": ""}, ("deployments.apps: no",)),
        ({"group": "", "namespace": "", "name": ""}, ()),
    ):
        assert edge_errors([{**row, **changed}], partial(content.sends, placement="p")) == texts, changed


def topology_with(count: int) -> Topology:
    """A placement with so many destinations."""
    topology = Topology()
    topology.set_placement("work", "p", {"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": {}})
    rows = [
        {"cluster": "inv", "locationName": f"l{n}", "syncTargetName": f"t{n}", "syncTargetUID": f"u{n}"}
        for n in range(count)
    ]
    owner = {"kind": "EdgePlacement", "name": "p", "uid": "u"}
    slice_ = {"name": "p", "labels": {"x": label_of("p")}, "ownerReferences": [owner]}
    topology.set_slice("work", None, {"metadata": slice_, "destinations": rows})
    return topology


@pytest.mark.parametrize(("count", "delay_s"), [(3, BURST_S), (4000, 0.4)])
def test_a_status_of_many_destinations_waits_longer_for_more_changes(
    count: int, delay_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, found = Statuses(cast(ExportView, None), topology_with(count), cast(Contents, None)), list[float]()
    monkeypatch.setattr(statuses.queue, "add", lambda key, *, delay_s: found.append(delay_s))
    statuses.look("work", ["p"])
    assert found == [delay_s]


def test_the_time_of_a_heartbeat_changes_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = topology_with(1)
    topology.set_mailbox("inv-mb-u0", "m0")
    statuses, found = Statuses(cast(ExportView, None), topology, cast(Contents, None)), list[object]()
    monkeypatch.setattr(statuses.queue, "add", lambda key, delay_s: found.append((delay_s, key)[1]))

    def is_due(**status: str) -> bool:
        found.clear()
        statuses.set_report("m0", {"status": status})
        return found == [("work", "p")]

    assert is_due(lastSyncerHeartbeatTime="1")
    assert not is_due(lastSyncerHeartbeatTime="2")
    assert is_due(lastSyncerHeartbeatTime="2", appliedRevision="5")
    assert not is_due(lastSyncerHeartbeatTime="3", appliedRevision="5")
    assert is_due(appliedRevision="5"), "it was never heard"


class _Projection:
    """Mailboxes m0, m1 and so on, in which all was done and the last write of the placement has revision 10."""

    def __init__(self, count: int) -> None:
        self.states = {f"m{number}": MailboxState() for number in range(count)}
        for each in self.states.values():
            each.is_read, each.due = True, Due()
        self.copies = SimpleNamespace(
            written=lambda mailbox, placement: 10, composition=SimpleNamespace(conflicts=Conflicts(lambda *event: None))
        )

    def state(self, mailbox: str) -> MailboxState | None:
        return self.states.get(mailbox)


async def test_a_destination_is_up_to_date_once_all_is_written_and_applied_and_it_is_heard() -> None:
    topology, content = topology_with(8), Content()
    content.put(REF, Item(Selection(("p",)), ("v1",), "digest", "uid"))
    statuses, projection = Statuses(cast(ExportView, None), topology, cast(Contents, None)), _Projection(8)
    statuses.projection = cast(Projection, projection)
    error = {"group": "apps", "resource": "deployments", "namespace": "default", "name": "web", "message": "no"}
    for number in range(7):
        topology.set_mailbox(f"inv-mb-u{number}", f"m{number}")
        applied = "9" if number == 1 else "10"
        statuses.set_report(f"m{number}", {"status": {"appliedRevision": applied}} if number != 2 else None)
    topology.set_silent("inv-mb-u3", True)
    statuses.set_report("m4", {"status": {"appliedRevision": "10", "errors": [error]}})
    projection.states["m5"].failures[REF] = Failure("apply", "Forbidden", "quota", "", 1, 0.0)
    projection.states["m6"].due.add(REF, is_live_due=False)
    found = await statuses._projected("work", "p", content)
    assert found.up_to_date == 1
    assert [(each.name, each.count_as, each.is_projected) for each in found.destinations] == [
        ("t1", "behind", True),
        ("t2", "silent", True),
        ("t3", "silent", True),
        ("t4", "failing", True),
        ("t5", "failing", False),
        ("t6", "behind", False),
        ("t7", "behind", False),
    ]
