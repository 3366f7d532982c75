"""What the translator knows of a mailbox without a read: its list as seen last, that a new one has no copies, and that
others are as its records say after a start with all changes since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.changes import Change, ChangeSource
from atoll.edge.kinds import PLACEMENTS, SLICES, SYNCER_CONFIGS
from atoll.edge.mailboxes import TARGET_NAME, TARGET_UID
from atoll.edge.placement_translator.observer import Observer
from atoll.edge.placement_translator.records import Copy
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import WHOLE, ObjectRef
from atoll.machinery.edge.slices import label_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import CLUSTER
from harness.servers.stand_ins.canned_api import CannedApi


def config(name: str, revision: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(revision), "annotations": {CLUSTER: "mb"}}, "spec": {}}


@pytest.fixture
async def translator(tmp_path: Path) -> AsyncIterator[PlacementTranslator]:
    store = EdgeStore(tmp_path / "store", allow_any_filesystem=True)
    async with Client.from_kubeconfig(str(CannedApi().kubeconfig(tmp_path))) as client:
        yield PlacementTranslator(client, "root:espw", "edge", BuiltIns(frozenset(), frozenset()), store)
    store.close()


async def test_parts_of_a_list_are_those_seen_last(translator: PlacementTranslator) -> None:
    parts = translator._projection.parts
    first, second, other = config("the-one", 1), config("the-one", 2), config("the-one-2", 3)
    for old, new in ((None, first), (first, second), (None, other)):
        translator._control_changed(SYNCER_CONFIGS, old, new)
    assert list(parts("mb")) == [second, other]
    for gone in (second, other):
        translator._control_changed(SYNCER_CONFIGS, gone, None)
    assert list(parts("mb")) == []
    assert translator._configs == {}


def workspace(phase: str, cluster: str = "mb") -> Object:
    annotations = {TARGET_NAME: "edge", TARGET_UID: cluster}
    status = {"phase": phase} if phase else {}
    metadata = {"name": f"inv-mb-{cluster}", "annotations": annotations}
    return {"metadata": metadata, "spec": {"cluster": cluster}, "status": status}


@pytest.mark.parametrize(
    ("phases", "number", "is_unread"),
    [
        (["", "Scheduling", "Initializing", "Ready"], "", False),
        (["Initializing", "Ready"], "0", False),
        # It may be of an earlier process.
        (["Ready"], "", True),
        (["Unavailable", "Ready"], "", True),
        # The Workspace was put back by a restore, and its content was not.
        (["Initializing", "Ready"], "7", True),
    ],
    ids=["made now", "with an unwritten list", "ready at first", "unavailable at first", "with a written list"],
)
async def test_a_mailbox_that_was_seen_to_be_made_has_no_copies_and_any_other_is_read(
    translator: PlacementTranslator, phases: list[str], number: str, is_unread: bool
) -> None:
    if number:
        seen = config("the-one", 1)
        seen["metadata"]["annotations"][WHOLE] = number
        translator._control_changed(SYNCER_CONFIGS, None, seen)
    before: Object | None = None
    for phase in phases:
        now = workspace(phase)
        translator._workspace_changed(before, now)
        before = now
    assert translator._projection.due("mb").is_unread == is_unread
    translator._workspace_changed(before, None)
    translator._workspace_changed(None, workspace("Ready"))
    assert translator._projection.due("mb").is_unread, "one that comes back is another"


class Source:
    """Changes of recorded mailboxes: who follows which, and why they are not read."""

    def __init__(self, interruption: str = "") -> None:
        self.interruption, self.followed = interruption, list[set[str]]()

    def follow(self, handler: object, clusters: Collection[str] = ()) -> None:
        self.followed.append(set(clusters))


CHANGED = ("", "configmaps", "", "default", "c")
RECORD = Copy("v1", "s", ApplyRecord("c", "a"), "uid", 7, 5)


@pytest.mark.parametrize(
    ("interruption", "has_gap", "is_unread"), [("", False, False), ("NATS is down", False, True), ("", True, True)]
)
async def test_a_start_reads_no_mailbox_of_which_all_changes_are_seen(
    translator: PlacementTranslator, monkeypatch: pytest.MonkeyPatch, interruption: str, has_gap: bool, is_unread: bool
) -> None:
    monkeypatch.setattr("atoll.edge.placement_translator.translator.LOOKS", 2)
    source = Source(interruption)
    translator._records.put("quiet", ObjectRef("", "configmaps", "default", "c"), RECORD)
    for name in ("mb", "quiet", "gone"):
        translator._records.put_swept(name)
    await translator._records.flush()
    translator.resume(cast(ChangeSource, source))
    assert source.followed == [{"mb", "quiet", "gone"}], "from the stored positions on"
    assert not translator.is_idle, "no position may pass what is told before it begins"
    translator.changed(Change("s", "mb", *CHANGED, 7, True))
    if has_gap:
        translator.reread("s")
    translator._topology.set_placement("w", "p", {"metadata": {"name": "p", "uid": "u"}, "spec": {}})
    for each in (workspace("Ready"), workspace("Ready", "quiet")):
        translator.mailboxes.objects["", "", each["metadata"]["name"]] = each
        translator._workspace_changed(None, each)
    translator.view.complete.set()
    translator.mailboxes.synced.set()
    await translator.start(cast(Any, source).follow)
    due = translator._projection.due("mb")
    assert (due.is_unread, due.is_moved, len(due.refs)) == (is_unread, True, 1)
    quiet = translator._projection.state("quiet")
    assert quiet is not None
    assert (quiet.due.is_unread, quiet.due.is_moved) == (is_unread, True)
    assert (len(translator._contents.queue), len(translator._projection.queue)) == (1, 2)
    assert (source.followed[-1], translator._records.is_swept("gone")) == ({"mb", "quiet", "w"}, False)
    translator._workspace_changed(workspace("Ready"), None)
    translator.changed(Change("s", "mb", *CHANGED, 8, True))
    assert translator._projection.state("mb") is None, "it is no mailbox any more"


async def test_a_start_without_what_another_wrote_reads_all(translator: PlacementTranslator) -> None:
    translator._records.put_swept("mb")
    translator.mailboxes.objects["", "", "inv-mb-mb"] = workspace("Ready")
    translator._workspace_changed(None, workspace("Ready"))
    translator._projection.due("mb")
    translator.view.complete.set()
    translator.mailboxes.synced.set()
    await translator.start(None)
    assert translator._projection.due("mb").is_unread


HOME: Object = {"annotations": {CLUSTER: "w"}}


class Seen(Observer):
    """Notes the mailboxes of placements that changed."""

    def __init__(self) -> None:
        self.mailboxes = list[list[str]]()

    def placement_changed(self, cluster: str, placement: str, mailboxes: Iterable[str]) -> None:
        self.mailboxes.append(sorted(mailboxes))


def placement_slice(**locations: str) -> Object:
    rows = [
        {"cluster": "inv", "locationName": location, "syncTargetName": uid, "syncTargetUID": uid}
        for uid, location in locations.items()
    ]
    owner = {"kind": "EdgePlacement", "name": "p", "uid": "placement-uid"}
    metadata = {"name": "p", "labels": {"x": label_of("p")}, "ownerReferences": [owner], **HOME}
    return {"metadata": metadata, "destinations": rows}


async def test_of_a_placement_that_goes_to_one_more_edge_cluster_the_other_mailboxes_are_left_alone(
    translator: PlacementTranslator,
) -> None:
    translator.observer = seen = Seen()
    for uid in "abc":
        translator._topology.set_mailbox(f"inv-mb-{uid}", f"m-{uid}")
    first: Object = {"metadata": {"name": "p", "uid": "placement-uid", "generation": 1, **HOME}, "spec": {}}
    second = {**first, "spec": {"wantSingletonReportedState": True}}
    translator._control_changed(PLACEMENTS, None, first)
    slices = [placement_slice(a="l", b="l"), placement_slice(a="l", b="l", c="l"), placement_slice(b="l", c="other")]
    for old, new in pairwise([None, *slices, slices[-1]]):
        translator._control_changed(SLICES, old, new)
    translator._control_changed(PLACEMENTS, first, second)
    assert seen.mailboxes == [[], ["m-a", "m-b"], ["m-c"], ["m-a", "m-c"], [], ["m-b", "m-c"]]
