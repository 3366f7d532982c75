"""Of an object that is sent the last change of what it gives is known, whatever else has a revision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import placement_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ServiceUnavailable

REF = ObjectRef("", "configmaps", "default", "a")
MAPS = Resource("", "v1", "configmaps")
KIND = ServedKind(MAPS, "ConfigMap", frozenset({"list"}), frozenset(), ("v1",), frozenset())
PLACEMENT = placement_of(
    {
        "metadata": {"name": "p", "annotations": {"kcp.io/cluster": "w"}},
        "spec": {
            "locationSelectors": [{"matchLabels": {}}],
            "downsync": [{"apiGroup": "", "resources": ["configmaps"], "objectNames": ["*"]}],
        },
    }
)


class Workspace:
    """A client of a workspace with one ConfigMap."""

    def __init__(self) -> None:
        self.obj: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default", "uid": "u"},
            "data": {"k": "1"},
        }

    def cluster(self, name: str) -> Workspace:
        return self

    async def get(self, *_: object) -> Object:
        return self.obj

    async def read(self, contents: Contents, revision: int, **change: Any) -> Item:
        """Change the object and have it read; return what is known of it."""
        stamp = {**self.obj["metadata"], "resourceVersion": str(revision)}
        self.obj = {**self.obj, **change}
        self.obj["metadata"] = {**stamp, **change.get("metadata", {})}
        contents.object_changed("w", REF)
        await contents.reconcile("w")
        content = contents.get("w")
        assert content is not None
        return content.items[REF]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


def content_of(contents: Contents) -> Content:
    found = contents.get("w")
    assert found is not None
    return found


def contents_of(workspace: Workspace, store: EdgeStore) -> Contents:
    topology = Topology()
    topology.names = lambda cluster: ["p"]  # type: ignore[method-assign]
    topology.placements = lambda cluster: [PLACEMENT]  # type: ignore[method-assign]
    client = cast(Client, workspace)
    found = Contents(client, topology, BuiltIns(), CopyRecords(store), lambda *_: None)
    found.reread("w")
    content = found.get("w")
    assert content is not None
    content.is_stale, content.is_complete, content.kinds = False, True, {REF.kind: KIND}
    return found


async def test_a_revision_of_what_is_not_sent_is_no_change_also_after_a_restart(store: EdgeStore) -> None:
    workspace = Workspace()
    contents = contents_of(workspace, store)
    assert (await workspace.read(contents, 5)).revision == 5
    mark = {"annotations": {"kubestellar.io/executing-count": "3"}}
    assert (await workspace.read(contents, 7, metadata=mark)).revision == 5, "a mark of the system"
    assert (await workspace.read(contents, 8, status={"phase": "Active"})).revision == 5, "a status"
    again = contents_of(workspace, store)
    assert (await workspace.read(again, 9)).revision == 5, "a write that changes nothing, seen by another process"
    assert (await workspace.read(again, 11, data={"k": "2"})).revision == 11, "an edit"


async def test_an_edit_is_told_from_what_is_sent_for_the_first_time_also_after_a_restart(store: EdgeStore) -> None:
    workspace = Workspace()
    contents, edited = contents_of(workspace, store), list[set[ObjectRef]]()
    for is_new, value in ((False, "1"), (False, "1"), (False, "2"), (True, "2"), (True, "3"), (False, "3")):
        contents = contents_of(workspace, store) if is_new else contents
        await workspace.read(contents, len(edited) + 5, data={"k": value})
        edited.append(content_of(contents).edited)
    assert edited == [set(), set(), {REF}, set(), {REF}, set()]
    contents._since("w", content_of(contents))(REF, "", 0)
    assert content_of(contents).edited == set(), "it is not sent any more"


@pytest.mark.parametrize("is_new", [False, True])
async def test_what_a_restore_puts_back_has_the_revision_of_its_day_and_an_edit_after_it_counts(
    store: EdgeStore, is_new: bool
) -> None:
    """`is_new`: another process reads it after the restore."""
    workspace = Workspace()
    contents = contents_of(workspace, store)

    async def restored(revision: int, value: str) -> int:
        found = contents_of(workspace, store) if is_new else contents
        return (await workspace.read(found, revision, data={"k": value})).revision

    for revision, value in ((5, "1"), (7, "2"), (9, "1")):
        assert (await workspace.read(contents, revision, data={"k": value})).revision == revision, "edits"
    assert await restored(7, "2") == 7, "another value of an earlier day"
    assert await restored(12, "1") == 12, "an edit after it"
    assert await restored(5, "1") == 5, "the same value, as of a day before the edits that led back to it"
    assert await restored(6, "1") == 5, "a write that changes nothing"


class Cut(Workspace):
    """A workspace that is cut off at the second object."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.changing = list[str](), list[dict[ObjectRef, set[str]]]()
        self.contents: Contents

    async def get(self, *key: object) -> Object:
        self.names.append(str(key[1]))
        self.changing.append(dict(content_of(self.contents).changing))
        if len(self.names) == 2:
            raise ServiceUnavailable("cut off")
        return {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": "5"}}


async def test_what_a_reading_found_is_changing_until_it_was_passed_on_also_if_it_fails(store: EdgeStore) -> None:
    workspace, passed_on = Cut(), list[dict[ObjectRef, set[str]]]()
    workspace.contents = contents = contents_of(workspace, store)
    contents._changed = lambda cluster, changed: passed_on.append({**changed})
    for name in ("a", "b"):
        contents.object_changed("w", ObjectRef("", "configmaps", "default", name))
    with pytest.raises(ServiceUnavailable):
        await contents.reconcile("w")
    assert (workspace.names, workspace.changing) == (["a", "b"], [{}, {REF: {"p"}}])
    assert passed_on == [{REF: {"p"}}]
    assert not content_of(contents).changing
