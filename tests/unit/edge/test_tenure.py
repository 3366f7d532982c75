"""What is on disk is believed without a read only by the process that worked last."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge import store as edge_store
from atoll.edge.duty import LoneDuty, SharedDuty
from atoll.edge.placement_translator.records import Copy, CopyRecords
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.process.tasks import stop
from harness.servers.stand_ins.lease_server import LeaseServer
from harness.waits import until

COPY = ObjectRef("", "configmaps", "default", "a")


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    records = CopyRecords(found)
    records.put("m", COPY, Copy("v1", "s", ApplyRecord("c", "a"), "uid", 7, 5))
    records.put_swept("m")
    await records.flush()
    yield found
    found.close()


def is_believed(store: EdgeStore) -> bool:
    records = CopyRecords(store)
    assert list(records.of("m")) == [COPY], "records save requests in any case"
    assert records.is_swept("m") == (records.kinds("m") is not None)
    return records.is_swept("m")


@pytest.mark.parametrize(
    ("former", "is_resumed"), [("1", True), ("2", False), ("", False)], ids=["this one", "another", "nobody"]
)
def test_who_did_not_work_last_reads_all_mailboxes_whole(store: EdgeStore, former: str, is_resumed: bool) -> None:
    store.begin("", "1")
    records = CopyRecords(store)
    records.put_swept("m")
    asyncio.run(records.flush())
    assert store.begin(former, "3") == is_resumed
    assert is_believed(store) == is_resumed
    assert store.begin("3", "3"), "it is the last one now"
    assert not store.begin("1", "4")


def test_a_first_start_and_one_that_shared_the_work_believe_nothing(store: EdgeStore) -> None:
    assert not store.begin("1", "1")
    assert not is_believed(store)
    for _ in range(2):
        records = CopyRecords(store)
        records.put_swept("m")
        asyncio.run(records.flush())
        store.begin("", "")
        assert not is_believed(store)
    assert not store.begin("1", "1")


class Leases(LeaseServer):
    async def patch_for_metadata(self, *_: object) -> Any:
        raise AssertionError("nothing is renewed so soon")


async def _works(server: Leases, identity: str, store: EdgeStore, *, is_killed: bool) -> bool:
    """Work once; return whether it goes on with what is on disk."""
    duty = LoneDuty(cast(Client, server), identity, store)
    task = asyncio.create_task(duty.run())

    async def has_begun() -> bool:
        return duty.whole_begun.is_set()

    await until(has_begun, "it works")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not is_killed:
        await duty.release()
    return duty.is_resumed


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_process_goes_on_after_itself_and_not_after_another(
    store: EdgeStore, tmp_path: Path, is_killed: bool
) -> None:
    server, other = Leases(), EdgeStore(tmp_path / "other", allow_any_filesystem=True)
    assert not await _works(server, "a", store, is_killed=is_killed)
    for _ in range(2):
        assert await _works(server, "a", store, is_killed=is_killed)
    assert await _works(server, "a", store, is_killed=False)
    assert not await _works(server, "b", other, is_killed=False)
    assert not await _works(server, "a", store, is_killed=is_killed)
    assert await _works(server, "a", store, is_killed=is_killed)
    SharedDuty(cast(Client, server), "a", store)
    assert not await _works(server, "a", store, is_killed=is_killed)
    other.close()


async def test_pages_of_the_store_are_released_again_and_again(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_store, "TRIM_S", 0.0)
    trims = list[int]()
    monkeypatch.setattr(store._file, "trim", lambda: trims.append(1))

    async def are_two() -> bool:
        return len(trims) > 1

    task = asyncio.create_task(store.keep_small())
    await until(are_two, "pages were released twice")
    await stop(task)
