"""When a placement is resolved anew, and the instances of a Location counted: not for what others write in a status."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import pytest

from atoll.edge.kinds import LOCATIONS, PLACEMENTS, SYNC_TARGETS
from atoll.edge.where_resolver import _KEPT, CONTESTED, WhereKey, WhereResolver
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict
from atoll.machinery.meta.wellknown import CLUSTER

KEY = WhereKey(PLACEMENTS, "work", "p")


class Account:
    """The resolver's client: takes a status of the newest revision alone, and any slice."""

    def __init__(self) -> None:
        self.revision, self.statuses = "1", list[Object]()

    def view(self, url: str, cluster: str = "") -> Account:
        return self

    def cluster(self, cluster: str) -> Account:
        return self

    async def create(self, resource: Resource, obj: Object) -> Object:
        return obj

    async def patch(self, resource: Resource, name: str, body: Object, subresource: str = "") -> None:
        if body.get("metadata", {}).get("resourceVersion", self.revision) != self.revision:
            raise Conflict("it was changed")
        self.statuses.append(body["status"])


def placement(revision: str = "1") -> Object:
    resolved = {"type": "Resolved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"specGeneration": 1, "matchingLocationCount": 0, "conditions": [resolved], "destinations": {"total": 0}}
    notes = {CLUSTER: "work", "note": "a"}
    metadata = {"name": "p", "uid": "u", "generation": 1, "resourceVersion": revision, "annotations": notes}
    return {"metadata": metadata, "spec": {"locationSelectors": [], "downsync": []}, "status": status}


def resolver() -> tuple[WhereResolver, Account]:
    account = Account()
    found = WhereResolver(cast(Client, account), "edge.kubestellar.io")
    found.view.client = lambda cluster: cast(Any, account)  # type: ignore[method-assign]
    return found, account


def see(found: WhereResolver, kind: Resource, obj: Object) -> None:
    """The view shows an object, of which it keeps a part."""
    found._changed(kind, None, _KEPT[kind](obj))


async def is_due(found: WhereResolver, before: Object, after: Object) -> bool:
    """Whether a placement is resolved again after a change, when it was resolved before."""
    found._changed(PLACEMENTS, None, before)
    key, _ = await found.queue.take()
    found.queue.done(key)
    assert len(found.queue) == 0
    found._changed(PLACEMENTS, before, after)
    return len(found.queue) > 0


async def test_what_others_write_in_a_status_resolves_nothing() -> None:
    found, _ = resolver()
    after = placement("2")
    after["status"] |= {"objectCount": 7, "destinations": {"total": 0, "failing": 1}}
    after["status"]["conditions"].append({"type": "Projected", "status": "True"})
    assert not await is_due(found, placement(), after)
    # It is what is written next.
    assert found._objects[KEY] is after


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "generation"), 2),
        (("metadata", "uid"), "other"),
        (("metadata", "annotations", "note"), "b"),
        (("status", "specGeneration"), 0),
        (("status", "matchingLocationCount"), 9),
        (("status", "destinations", "total"), 9),
        (("status", "conditions"), []),
    ],
)
async def test_a_change_of_what_is_resolved_or_written_does(path: tuple[str, ...], value: object) -> None:
    found, _ = resolver()
    after = deepcopy(placement("2"))
    place = after
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    assert await is_due(found, placement(), after)


async def test_a_status_that_others_were_faster_with_is_written_after_theirs() -> None:
    found, account = resolver()
    before = placement()
    before["status"] = {}
    found._changed(PLACEMENTS, None, before)
    account.revision = "2"
    assert await found.reconcile(KEY) is CONTESTED
    assert account.statuses == []
    after = placement("2")
    after["status"] = {"objectCount": 7}
    found._changed(PLACEMENTS, before, after)
    assert await found.reconcile(KEY) is None
    (status,) = account.statuses
    assert (status["objectCount"], status["matchingLocationCount"]) == (7, 0)


def target(**spec: object) -> Object:
    labels = {"id": "t"}
    return {"metadata": {"name": "t", "uid": "u", "labels": labels, "annotations": {CLUSTER: "imw"}}, "spec": spec}


def with_location(found: WhereResolver, **spec: object) -> WhereKey:
    """Show a Location with one SyncTarget; return its key once nothing is due."""
    notes = {"name": "l", "resourceVersion": "1", "annotations": {CLUSTER: "imw"}}
    see(found, LOCATIONS, {"metadata": notes, "spec": {"instanceSelector": {"matchLabels": {"id": "t"}}}})
    see(found, SYNC_TARGETS, target(**spec))
    return WhereKey(LOCATIONS, "imw", "l")


async def test_a_heartbeat_of_a_sync_target_counts_no_instances_of_its_locations() -> None:
    found, _ = resolver()
    key = with_location(found)
    assert (await found.queue.take())[0] == key
    found.queue.done(key)
    see(found, SYNC_TARGETS, {**target(), "status": {"lastSyncerHeartbeatTime": "now"}})
    assert len(found.queue) == 0
    see(found, SYNC_TARGETS, target(unschedulable=True))
    assert (await found.queue.take())[0] == key


async def test_an_instance_that_is_evicted_later_is_counted_until_then() -> None:
    found, account = resolver()
    now_s = 1_000_000.0
    key = with_location(found, evictAfter="1970-01-12T13:46:50Z")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: now_s)
        assert await found.reconcile(key) == 10.0
        now_s += 10.0
        assert await found.reconcile(key) is None
    assert [each["availableInstances"] for each in account.statuses] == [1, 0]
    assert [each["instances"] for each in account.statuses] == [1, 1]


@pytest.mark.parametrize(("cluster", "is_due"), [("inv", True), ("*", True), ("other", False)])
async def test_a_change_of_access_concerns_those_who_select_there(cluster: str, is_due: bool) -> None:
    found, _ = resolver()
    selecting = placement()
    selecting["spec"]["locationSelectors"] = [{"matchLabels": {"env": "prod"}}]
    found._changed(PLACEMENTS, None, selecting)
    labelled = {"name": "l", "resourceVersion": "1", "labels": {"env": "prod"}, "annotations": {CLUSTER: "inv"}}
    see(found, LOCATIONS, {"metadata": labelled, "spec": {}})
    while found.queue.depth:
        key, _ = await found.queue.take()
        found.queue.done(key)
    found.access.changed(cluster)
    assert bool(len(found.queue)) == is_due
