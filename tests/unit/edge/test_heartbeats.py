"""What a SyncTarget says of the heartbeats of its syncer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from atoll.edge.export_view import UNREAD
from atoll.edge.heartbeats import REFRESH_S, SILENT_S, TIME, UNLISTED, Heartbeats, heartbeat_status
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue
from atoll.machinery.edge.names import GROUP
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import NotFound

RENEWED_S = 1_700_000_000.0


def healthy(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_health_follows_the_centers_clock_and_the_time_is_written_with_each_change() -> None:
    fresh = heartbeat_status({}, RENEWED_S, RENEWED_S + 1)
    assert healthy(fresh) == {"HeartbeatHealthy": "True", "Ready": "True"}
    assert fresh[TIME] == times.format_time(int(RENEWED_S))
    assert heartbeat_status(fresh, RENEWED_S + 30, RENEWED_S + 31) == fresh, "nothing to write"
    silent = heartbeat_status(fresh, RENEWED_S + 30, RENEWED_S + 30 + SILENT_S)
    assert healthy(silent) == {"HeartbeatHealthy": "False", "Ready": "False"}
    assert silent["conditions"][0]["reason"] == "ErrorHeartbeat"
    assert silent[TIME] == times.format_time(int(RENEWED_S) + 30)
    assert heartbeat_status(silent, RENEWED_S + 30, RENEWED_S + 1000) == silent
    assert healthy(heartbeat_status(silent, RENEWED_S + 2000, RENEWED_S + 2001))["Ready"] == "True"


def test_while_all_is_well_the_time_is_written_every_five_minutes() -> None:
    status = heartbeat_status({}, RENEWED_S, RENEWED_S)
    later = RENEWED_S + REFRESH_S
    assert heartbeat_status(status, later - 1, later) == status
    assert heartbeat_status(status, later, later)[TIME] == times.format_time(int(later))


def test_a_syncer_that_never_came_says_nothing_and_one_whose_lease_is_gone_is_silent() -> None:
    assert heartbeat_status({"capacity": {}}, None, RENEWED_S) == {"capacity": {}}
    gone = heartbeat_status(heartbeat_status({}, RENEWED_S, RENEWED_S), None, RENEWED_S + 1)
    assert healthy(gone)["HeartbeatHealthy"] == "False"
    assert gone[TIME] == times.format_time(int(RENEWED_S))


class Inside:
    """A client of a workspace that notes patches and applies them to the target."""

    def __init__(self, target: Object) -> None:
        self.target, self.patches = target, [""] * 0
        self.missing: set[str] = set()

    def reduced(self, shape: type) -> Inside:
        return self

    async def patch(self, resource: Resource, name: str, body: Object, **options: Any) -> None:
        self.patches.append(resource.plural)
        if resource.plural in self.missing:
            raise NotFound(f"{resource.plural} {name}")
        if resource.plural == "synctargets":
            self.target["status"] = {**status_of(self.target), **body["status"]}


class ReadLeases:
    """An informer of a shard whose Leases were read."""

    def __init__(self, *_: object, **options: object) -> None:
        self.synced = asyncio.Event()

    async def run(self) -> None:
        self.synced.set()


async def test_a_lease_that_is_not_there_counts_once_those_of_its_shard_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target: Object = {"metadata": {"name": "t", "annotations": {}}, "status": {TIME: "2026-01-01T00:00:00Z"}}
    inside, shards = Inside(target), [None]
    monkeypatch.setattr("atoll.edge.heartbeats.Informer", ReadLeases)
    found = Heartbeats(lambda _: inside, lambda _: target, lambda _: shards[0])  # type: ignore[arg-type,return-value]
    assert await found.reconcile("m") is UNREAD
    shards[0] = inside  # type: ignore[call-overload]
    assert await found.reconcile("m") is UNREAD
    assert inside.patches == []
    await found.follow(inside)  # type: ignore[arg-type]
    assert await found.reconcile("m") is None
    assert healthy(status_of(target))["HeartbeatHealthy"] == "False"


async def test_a_renewed_lease_writes_once_and_is_looked_at_again_when_it_would_be_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target: Object = {"apiVersion": f"{GROUP}/v2alpha1", "metadata": {"name": "t", "annotations": {}}}
    inside, now_s = Inside(target), [RENEWED_S + 10]
    monkeypatch.setattr("atoll.edge.heartbeats.time.time", lambda: now_s[0])
    monkeypatch.setattr("atoll.edge.heartbeats.Informer", ReadLeases)
    found = Heartbeats(lambda _: inside, lambda _: target, lambda _: inside)  # type: ignore[arg-type,return-value]
    await found.follow(inside)  # type: ignore[arg-type]

    def renew(at_s: float, namespace: str = "default") -> None:
        metadata = {"name": "syncer", "namespace": namespace, "resourceVersion": str(int(at_s * 1e6))}
        found._seen(None, {"metadata": {**metadata, "annotations": {"kcp.io/cluster": "m"}}})

    renew(RENEWED_S + 5, "elsewhere")
    assert await found.reconcile("m") is None
    renew(RENEWED_S)
    assert await found.reconcile("m") == SILENT_S - 10
    renew(RENEWED_S + 9)
    assert await found.reconcile("m") == SILENT_S - 1
    assert inside.patches == ["syncerconfigs", "synctargets"]
    now_s[0] = RENEWED_S + 9 + SILENT_S
    assert await found.reconcile("m") is None
    assert inside.patches == ["syncerconfigs", "synctargets"] * 2
    assert healthy(status_of(target))["Ready"] == "False"


async def test_a_renewal_is_looked_at_when_the_one_before_it_would_be_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    target: Object = {"apiVersion": f"{GROUP}/v2alpha1", "metadata": {"name": "t", "annotations": {}}}
    inside, now_s = Inside(target), [RENEWED_S]
    monkeypatch.setattr("atoll.edge.heartbeats.time.time", lambda: now_s[0])
    found = Heartbeats(lambda _: inside, lambda _: target, lambda _: inside)  # type: ignore[arg-type,return-value]

    def seen(at_s: float, *, is_gone: bool = False) -> int:
        """Have a Lease be renewed, or go; return how many mailboxes are to be looked at now."""
        metadata = {"name": "syncer", "namespace": "default", "resourceVersion": str(int(at_s * 1e6))}
        lease = {"metadata": {**metadata, "annotations": {"kcp.io/cluster": "m"}}}
        found._seen(lease if is_gone else None, None if is_gone else lease)
        return found.queue.depth

    async def look() -> Requeue:
        key, _ = await found.queue.take()
        requeue = await found.reconcile(key)
        found.queue.done(key)
        return requeue

    assert seen(RENEWED_S) == 1
    assert await look() == SILENT_S
    for number in (1, 2):
        assert seen(RENEWED_S + 30 * number) == 0, "it was heard in time"
    now_s[0] = RENEWED_S + SILENT_S
    assert await found.reconcile("m") == 60, "what was heard meanwhile counts"
    now_s[0] = RENEWED_S + 60 + SILENT_S
    assert await found.reconcile("m") is None
    assert healthy(status_of(target))["Ready"] == "False"
    assert seen(now_s[0]) == 1, "a silent one is heard at once"
    await look()
    assert healthy(status_of(target))["Ready"] == "True"
    assert seen(now_s[0] + 1, is_gone=True) == 1


async def test_a_heartbeat_before_the_list_is_written_into_it_soon_after_it_is_there() -> None:
    target: Object = {"apiVersion": f"{GROUP}/v2alpha1", "metadata": {"name": "t", "annotations": {}}}
    inside = Inside(target)
    inside.missing.add("syncerconfigs")
    found = Heartbeats(lambda _: inside, lambda _: target, lambda _: inside)  # type: ignore[arg-type,return-value]
    metadata = {"name": "syncer", "namespace": "default", "resourceVersion": str(int(time.time() * 1e6))}
    found._seen(None, {"metadata": {**metadata, "annotations": {"kcp.io/cluster": "m"}}})
    assert await found.reconcile("m") is UNLISTED
    assert healthy(status_of(target))["Ready"] == "True", "the SyncTarget does not wait for it"
    assert await found.reconcile("m") is UNLISTED
    inside.missing.clear()
    left_s = await found.reconcile("m")
    assert isinstance(left_s, float)
    assert left_s > SILENT_S - 60
    assert inside.patches == ["syncerconfigs", "synctargets", "syncerconfigs", "syncerconfigs"]
    await found.reconcile("m")
    assert len(inside.patches) == 4, "written once"
