"""Copies in the mailbox of objects that change while they are brought there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.names import ASSOCIATED_WITH, UPSYNCED, WHOLE, ObjectRef
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.edge.upsync import plan_upsync
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import NotFound
from atoll.syncer.state import State
from atoll.syncer.upsync import Upsync

REF = ObjectRef("", "configmaps", "logs", "line")
UPSYNC_SET = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
CONFIG: Object = {"kind": "SyncerConfig", "metadata": {"name": "the-one"}, "spec": {"upsync": [UPSYNC_SET]}}
LIVE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "line", "namespace": "logs", "uid": "1", "resourceVersion": "5"},
    "data": {"a": "1"},
}


class Center:
    """The mailbox and the edge cluster at once; `meanwhile` happens before a creation is answered."""

    uid, is_complete = "edge", True

    def __init__(self) -> None:
        self.carried: SyncSet = sync_set([CONFIG])
        self.live: Object | None = copy.deepcopy(LIVE)
        self.stored: Object | None = None
        self.placed: Object | None = None
        self.upsync: Any = None

    def refs(self) -> list[ObjectRef]:
        return [REF] if self.live is not None else []

    def get(self, ref: ObjectRef) -> Object | None:
        return self.live if ref == REF else self.placed

    def is_read(self, kind: tuple[str, str]) -> bool:
        return kind == REF.kind


class Client:
    """What the syncer asks of the mailbox's view."""

    def __init__(self, center: Center) -> None:
        self._center = center

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if self._center.stored is None:
            raise NotFound(f"{resource.plural} {namespace}/{name} not found")
        return self._center.stored

    async def create(self, resource: Resource, obj: Object) -> Object:
        metadata = {**obj["metadata"], "uid": "copy", "resourceVersion": "9"}
        self._center.stored = {**obj, "metadata": metadata}
        self._center.live = None
        self._center.upsync.changed(REF)
        return self._center.stored

    async def request(self, method: str, path: str, query: Mapping[str, str] | None, body: Object) -> Object:
        assert (method, body["preconditions"]) == ("DELETE", {"uid": "copy", "resourceVersion": "9"})
        assert body["gracePeriodSeconds"] == 0, "a copy of a Pod is stopped by nobody"
        self._center.stored = None
        return {}


async def test_an_object_that_goes_while_its_copy_is_made_leaves_none() -> None:
    center = Center()
    client: Any = Client(center)
    mailbox: Any = center
    edge: Any = center
    state = State("s", "edge", None)
    upsync = center.upsync = Upsync(client, mailbox, edge, state, lambda: True)
    await upsync.reconcile(REF)
    assert center.stored is not None
    assert len(upsync.queue) == 1, "it is looked at again"
    await upsync.reconcile(REF)
    assert center.stored is None
    assert not state.copies


PLACED = ObjectRef("", "configmaps", "logs", "book")
BOOK: Object = {"kind": "ConfigMap", "metadata": {"name": "book", "namespace": "logs"}}


def asking_for_copies(center: Center, **rule: object) -> Upsync:
    """The upsync of a mailbox where a collector asks for ConfigMaps of placed objects, and no set for any."""
    row = query_row("", {"associated": [{"resource": "configmaps", "label": "of", "copies": True, **rule}]})
    metadata = {"name": "the-one", "annotations": {WHOLE: "1"}}
    center.carried = sync_set([{"metadata": metadata, "spec": {"associated": [row]}}])
    center.placed = BOOK
    client: Any = Client(center)
    mailbox: Any = center
    edge: Any = center
    center.upsync = Upsync(client, mailbox, edge, State("s", "edge", None), lambda: True)
    return center.upsync  # type: ignore[no-any-return]


async def test_an_object_that_belongs_to_a_placed_one_comes_up_with_its_mark_and_no_other_does() -> None:
    center = Center()
    upsync = asking_for_copies(center)
    assert center.live is not None
    center.live["metadata"]["annotations"] = {ASSOCIATED_WITH: "ConfigMap/logs/forged"}
    upsync.changed(REF)
    assert len(upsync.queue) == 0
    await upsync.reconcile(REF)
    assert center.stored is None, "it belongs to nothing"
    upsync.copies.put(PLACED, frozenset({REF}))
    upsync.changed(REF)
    assert len(upsync.queue) == 1
    await upsync.reconcile(REF)
    assert center.stored is not None
    assert annotations_of(center.stored)[ASSOCIATED_WITH] == "ConfigMap/logs/book"


async def test_a_copy_stays_until_it_is_known_that_its_object_belongs_to_nothing() -> None:
    center = Center()
    upsync = asking_for_copies(center)
    upsync.copies.put(PLACED, frozenset({REF}))
    await upsync.reconcile(REF)
    # Another process starts: the placed object was not looked at.
    again = asking_for_copies(center)
    again._state.copies[REF] = "v1"
    center.live = copy.deepcopy(LIVE)
    again.copies.expect([PLACED])
    await again.reconcile(REF)
    assert center.stored is not None
    again.copies.put(PLACED, frozenset())
    await again.reconcile(REF)
    assert center.stored is None


async def test_what_comes_up_for_a_set_alone_brings_no_mark_of_a_placed_object_along() -> None:
    center = Center()
    asking_for_copies(center)
    center.carried = sync_set([CONFIG])
    assert center.live is not None
    center.live["metadata"]["annotations"] = {ASSOCIATED_WITH: "ConfigMap/logs/forged", "a": "b"}
    await center.upsync.reconcile(REF)
    assert center.stored is not None
    marks = annotations_of(center.stored)
    assert (marks["a"], marks.get(ASSOCIATED_WITH)) == ("b", None)


def test_a_copy_in_its_grace_period_is_deleted_and_one_that_goes_anyway_is_left() -> None:
    carried = sync_set([{"metadata": {"name": "the-one", "annotations": {WHOLE: "1"}}, "spec": {}}])
    metadata = {**LIVE["metadata"], "annotations": {UPSYNCED: "ConfigMap/logs/line"}, "deletionTimestamp": "now"}
    for grace, expected in ((30, [REF]), (0, []), (None, [])):
        period = {} if grace is None else {"deletionGracePeriodSeconds": grace}
        plan = plan_upsync(carried, {}, {REF: {**LIVE, "metadata": {**metadata, **period}}}, "edge")
        assert [each.ref for each in plan.writes] == expected, grace
