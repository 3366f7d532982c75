"""The recent changes in memory: old ones are dropped, except for the latest MiB, and readers find all in the log."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import Change, Operation
from atoll.machinery.storage.watching import hub as hub_module
from atoll.machinery.storage.watching.hub import Hub
from atoll.machinery.storage.watching.ring import KEPT_BYTES, Ring

KEY = ObjectKey(ResourceType("", "configmaps", "core"), "c1", "n", "o")
LIMIT_BYTES = 64 << 20


def change(revision: int, size_bytes: int = 1000) -> Change:
    return Change(revision, Operation.ADDED, KEY, None, b"x" * size_bytes)


def filled(changes: int) -> Ring:
    ring = Ring(0, LIMIT_BYTES)
    ring.extend([change(revision) for revision in range(1, changes + 1)])
    return ring


def test_changes_up_to_a_revision_are_dropped() -> None:
    ring = filled(2000)
    assert ring.expire(500)
    assert ring.floor == 500
    assert [held.revision for held in ring.above(500, 2)] == [501, 502]
    assert len(ring) == 1500


def test_the_latest_changes_stay_however_old_they_are() -> None:
    ring = filled(2000)
    assert ring.expire(2000)
    assert KEPT_BYTES - 2000 < ring.size_bytes <= KEPT_BYTES
    assert [held.revision for held in ring.above(ring.floor, 1)] == [ring.floor + 1]


def test_many_changes_are_dropped_in_steps() -> None:
    ring = filled(10_000)
    assert not ring.expire(10_000)
    assert ring.floor == 4096
    assert len(ring) == 10_000 - 4096
    while not ring.expire(10_000):
        pass
    assert ring.size_bytes <= KEPT_BYTES


async def test_an_idle_hub_drops_what_is_old_and_an_expiry_never_what_came_since_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub(0, LIMIT_BYTES)
    monkeypatch.setattr(hub_module, "RING_AGE_S", 0.05)
    for revision in range(1, 6001):
        hub.publish([change(revision)], revision)
    assert hub.ring.floor == 0
    async with asyncio.timeout(60):
        while hub.ring.size_bytes > KEPT_BYTES:  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0.01)
    floor = hub.ring.floor
    monkeypatch.setattr(hub_module, "RING_AGE_S", 60.0)
    for revision in range(6001, 8001):
        hub.publish([change(revision)], revision)
    assert hub.ring.floor == floor
    assert hub.last == 8000


async def test_a_closed_hub_keeps_no_timer() -> None:
    loop = asyncio.get_running_loop()
    hub = Hub(0, LIMIT_BYTES)
    for revision in range(1, 2001):
        hub.publish([change(revision)], revision)
    assert hub._expiry is not None
    assert hub._expiry.when() > loop.time()
    hub.close()
    assert hub._expiry.cancelled()
