"""What the translator knows of a mailbox by its watches: its list as seen last, and that a new one has no copies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.edge.kinds import SYNCER_CONFIGS
from atoll.edge.mailboxes import TARGET_NAME, TARGET_UID
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import WHOLE
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


def workspace(phase: str) -> Object:
    annotations = {TARGET_NAME: "edge", TARGET_UID: "u"}
    status = {"phase": phase} if phase else {}
    return {"metadata": {"name": "inv-mb-u", "annotations": annotations}, "spec": {"cluster": "mb"}, "status": status}


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
