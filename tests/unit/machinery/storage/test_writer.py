"""The writer: batches, a full disk, a failing disk, a bounded queue, marks."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest
import structlog

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LEASES, LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.process import logging
from atoll.machinery.storage.clock import Clock
from atoll.machinery.storage.contract import (
    CorruptRecord,
    DeletePrefix,
    GateUnchanged,
    GuardFailed,
    NamespaceActive,
    ObjectExists,
    ObjectMissing,
    Scope,
    StoreFull,
)
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import MIB
from atoll.machinery.storage.writing.writer import EXIT_DISK_FAILED, StoreClosed, Writer, exit_process
from harness.clients.raw_http import until
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, key, listed, put, store_options

ALL = Scope(CONFIGMAPS)


async def test_submits_that_wait_share_a_commit(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path, max_batch_submits=50))
    await asyncio.gather(*(create(store, f"n{index}") for index in range(120)))
    assert store.stats.commits == 3
    assert store.stats.largest_batch == 50
    await store.close()


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_submit_that_fails_after_it_wrote_leaves_nothing_and_its_neighbours_stay(
    tmp_path: Path, threaded: bool
) -> None:
    options = store_options(tmp_path, commit_in_thread=threaded)
    store = open_store(options)
    fresh = ResourceType("", "fresh")
    done = await asyncio.gather(
        create(store, "before"),
        store.submit([put(key("torn", type=fresh)), put(key("stale"), expected=7)]),
        store.submit([put(key("homeless"))], [NamespaceActive("root", "missing")]),
        create(store, "after"),
        return_exceptions=True,
    )
    assert [type(result) for result in done] == [list, ObjectMissing, GuardFailed, list]
    assert store.stats.commits == 1
    assert len(listed(store, ALL)) == 2
    assert [entry.key.name for entry in store.tail(0)] == ["before", "after"]
    await store.close()
    assert fsck(options) == []


async def test_guards_see_what_an_earlier_submit_of_their_batch_changed(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    namespace = ObjectKey(NAMESPACES, "root", "", "default")
    cluster = ObjectKey(LOGICAL_CLUSTERS, "root", "", "cluster")
    ready = {"phase": "Ready"}
    [there, gate] = await store.submit([put(namespace), put(cluster, status=ready)])
    active, open_gate = NamespaceActive("root", "default"), GateUnchanged("root", gate)
    marked = {"deletionTimestamp": "t", "finalizers": ["x/y"]}
    inactive = {"annotations": {"core.kcp.io/inactive": "true"}}
    done = await asyncio.gather(
        store.submit([put(key("a"))], [active, open_gate]),
        store.submit([put(key("b"))], [active, open_gate]),
        store.submit([put(namespace, expected=there, metadata=marked)]),
        store.submit([put(key("c"))], [active]),
        store.submit([put(cluster, expected=gate, metadata=inactive, status=ready)]),
        store.submit([put(key("d"))], [open_gate]),
        return_exceptions=True,
    )
    assert [type(result) for result in done] == [list, list, list, GuardFailed, list, GuardFailed]
    assert store.stats.largest_batch == 6
    await store.close()


async def test_a_submit_that_fails_before_it_wrote_costs_the_others_no_second_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_options(tmp_path))
    await create(store, "taken")
    monkeypatch.setattr(Writer, "_apply", None)
    done = await asyncio.gather(create(store, "taken"), create(store, "free"), return_exceptions=True)
    assert [type(result) for result in done] == [ObjectExists, list]
    monkeypatch.undo()
    await store.close()


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_full_queue_makes_submits_wait_and_loses_none(tmp_path: Path, threaded: bool) -> None:
    options = store_options(
        tmp_path, max_batch_submits=3, max_queued_submits=5, max_queued_bytes=2000, commit_in_thread=threaded
    )
    store = open_store(options)
    submits = [asyncio.create_task(create(store, f"n{index}")) for index in range(60)]
    await asyncio.sleep(0)
    assert store.queued <= 5
    for cancelled in submits[10::7]:
        cancelled.cancel()
    done = await asyncio.gather(*submits, return_exceptions=True)
    succeeded = [result for result in done if isinstance(result, list)]
    assert len(succeeded) >= 50
    assert len(listed(store, ALL)) >= len(succeeded)
    await store.close()


async def test_a_page_quota_refuses_creates_and_updates_until_there_is_room(tmp_path: Path) -> None:
    time = HandClock()
    options = store_options(tmp_path, quota_bytes=MIB, log_retention_s=60)
    store = open_store(options, clock=time.clock())
    lease = ObjectKey(LEASES, "root", "default", "lease")
    [leased] = await store.submit([put(lease)])
    revisions: list[int] = []
    with pytest.raises(StoreFull):
        for index in range(1000):
            time.pass_time(2)
            revisions += await store.submit([put(key(f"n{index}"), data="x" * 10_000)])
    assert revisions
    with pytest.raises(StoreFull):
        await store.submit([put(key("n0"), expected=revisions[0])])
    with pytest.raises(StoreFull):
        await store.submit([put(ObjectKey(LEASES, "root", "default", "another"))])
    await store.submit([put(lease, expected=leased)])
    # A full store accepts the mark of deletion: it is a step of a deletion, and finalizers need it.
    [marked] = await store.submit(
        [put(key("n0"), expected=revisions[0], metadata={"deletionTimestamp": "t", "finalizers": ["x/y"]})]
    )
    await store.submit([delete(key("n0"), marked)])
    for index, revision in enumerate(revisions[1:], 1):
        await store.submit([delete(key(f"n{index}"), revision)])
    time.pass_time(options.log_retention_s + 1)
    await store.compact()
    await create(store, "again")
    await store.close()
    assert fsck(options) == []


async def test_a_disk_without_its_reserve_refuses_and_recovers_by_itself(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path, reserve_bytes=1 << 60), clock=time.clock())
    with pytest.raises(StoreFull):
        await create(store, "a")
    store.space._options = store_options(tmp_path)
    time.pass_time(2)
    await create(store, "a")
    await store.close()


async def test_a_full_map_fails_the_batch_and_not_the_process(tmp_path: Path) -> None:
    died: list[str] = []
    time = HandClock()
    options = store_options(tmp_path, map_size_bytes=MIB)
    store = open_store(options, clock=time.clock(), fatal=died.append)
    [small] = await create(store, "small")
    with pytest.raises(StoreFull):
        await store.submit([put(key("large"), data="x" * (2 * MIB))])
    time.pass_time(2)
    await store.submit([delete(key("small"), small)])
    await create(store, "b")
    assert died == []
    await store.close()
    assert fsck(options) == []


class BrokenEnvironment:
    """An LMDB environment whose next commits fail as on a failing disk."""

    def __init__(self, env: lmdb.Environment, error: Exception) -> None:
        self._env, self._error = env, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    @contextmanager
    def _failing(self) -> Iterator[Any]:
        txn = self._env.begin(write=True)
        try:
            yield txn
        finally:
            txn.abort()
        raise self._error

    def begin(self, **how: Any) -> Any:
        if how.get("write") and "parent" not in how:
            return self._failing()
        return self._env.begin(**how)


def break_disk(store: LmdbStore, error: Exception) -> None:
    store._environment.env = BrokenEnvironment(store._environment.env, error)  # type: ignore[assignment]


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_failed_commit_ends_the_process_and_answers_nobody_with_success(tmp_path: Path, threaded: bool) -> None:
    died: list[str] = []
    store = open_store(store_options(tmp_path, commit_in_thread=threaded), fatal=died.append)
    break_disk(store, lmdb.Error("mdb_txn_commit: Input/output error"))
    done = await asyncio.gather(*(create(store, name) for name in "abc"), return_exceptions=True)
    assert [type(result) for result in done] == [StoreClosed] * 3
    assert len(died) == 1
    with pytest.raises(StoreClosed):
        await create(store, "d")
    await store.close()


async def test_a_type_number_of_a_failed_batch_is_not_remembered(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    first, second = ResourceType("", "first"), ResourceType("", "second")
    whole = store._environment.env
    break_disk(store, lmdb.DiskError("mdb_txn_commit: No space left on device"))
    with pytest.raises(StoreFull):
        # The prefix delete reads the type's number again, inside the transaction that fails.
        await store.submit([put(key("a", type=first)), DeletePrefix(Scope(first))])
    store._environment.env = whole
    store.space.measure()
    await store.submit([put(key("a", type=second))])
    assert listed(store, Scope(first)) == []
    assert [entry.key.type for entry in store.tail(0)] == [second]
    await store.close()


#: What LMDB says of a disk, or a quota, that takes none of its pages, and of one that takes a part of them.
NO_ROOM = [
    lmdb.DiskError("mdb_txn_commit: No space left on device"),
    lmdb.Error("mdb_txn_commit: Disk quota exceeded"),
    lmdb.Error("mdb_txn_commit: Input/output error"),
]


def refuse_room(*_: object) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize(
    ("call", "answer"),
    [((filesystem, "free_bytes"), lambda directory: 0), ((os, "posix_fallocate"), refuse_room)],
    ids=["disk", "quota"],
)
@pytest.mark.parametrize("error", NO_ROOM)
async def test_a_disk_that_is_out_of_space_fails_the_batch_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: lmdb.Error, call: tuple[Any, str], answer: Any
) -> None:
    died: list[str] = []
    store = open_store(store_options(tmp_path, reserve_bytes=MIB), fatal=died.append)
    whole = store._environment.env
    store.space.check()
    monkeypatch.setattr(*call, answer)
    break_disk(store, error)
    with pytest.raises(StoreFull):
        await create(store, "a")
    store._environment.env = whole
    monkeypatch.undo()
    store.space.measure()
    await create(store, "a")
    assert died == []
    assert store.stats.failed_commits == 1
    await store.close()


async def test_nothing_is_published_or_answered_before_its_commit(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    cursor = store.cursor(ALL, 0)
    seen_at: list[int] = []
    publish = store.hub.publish

    def durable_then_publish(changes: Any, last: int) -> None:
        with store.snapshot() as snapshot:
            seen_at.append(snapshot.revision)
        publish(changes, last)

    store.hub.publish = durable_then_publish  # type: ignore[method-assign]
    [revision] = await create(store, "a")
    assert seen_at == [revision]
    assert [change.revision for change in cursor.read()] == [revision]
    await store.close()


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_caller_goes_on_before_those_who_wait_for_changes_and_finds_its_own_published(
    tmp_path: Path, threaded: bool
) -> None:
    store = open_store(store_options(tmp_path, commit_in_thread=threaded))
    went_on: list[str] = []

    async def wait() -> None:
        await store.hub.next_publish()
        went_on.append("waiter")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    [revision] = await create(store, "a")
    assert store.hub.last == revision
    assert [change.revision for change in store.cursor(ALL, 0).read()] == [revision]
    went_on.append("caller")
    await waiting
    assert went_on == ["caller", "waiter"]
    await store.close()


async def test_a_flipped_bit_is_an_error_for_that_object_and_an_alarm(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit([put(key("a"), data="good")])
    await create(store, "b")
    await store.close()
    data = tmp_path / "data.mdb"
    raw = data.read_bytes()
    assert raw.count(b'"data":"good"') >= 1
    data.write_bytes(raw.replace(b'"data":"good"', b'"data":"goof"'))
    alarms: list[dict[str, Any]] = []
    store = open_store(store_options(tmp_path), alarm=lambda _event, **facts: alarms.append(facts))
    with store.snapshot() as snapshot:
        with pytest.raises(CorruptRecord):
            snapshot.get(key("a"))
        assert snapshot.get(key("b")) is not None
    assert [alarm["cluster"] for alarm in alarms] == ["root"]
    # The scrubber finds the damage without a request.
    assert store.scrubber.step() == 2
    assert (store.scrubber.damaged, store.scrubber.passes, len(alarms)) == (1, 1, 2)
    await store.close()
    assert {problem.where for problem in fsck(store_options(tmp_path))} == {"objects"}


async def test_marks_are_saved_lazily_and_survive_a_restart(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    store.set_mark("stream", b"1")
    assert store.get_mark("stream") == b"1"
    await create(store, "a")
    store.set_mark("stream", b"2")
    store.set_published(77)
    await store.close()
    store = open_store(store_options(tmp_path))
    assert store.get_mark("stream") == b"2"
    assert store.get_mark("other") is None
    assert store.published == 77
    await store.close()


async def test_marks_are_saved_without_any_write(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    store.set_mark("stream", b"1")
    await until(lambda: store.stats.commits == 1)
    with store._environment.reading() as txn:
        assert txn.get(b"stream", db=store._environment.marks) == b"1"
    await store.close()


async def test_closing_finishes_what_is_queued_and_refuses_what_comes_later(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    queued = [asyncio.create_task(create(store, name)) for name in "abc"]
    await asyncio.sleep(0)
    await store.close()
    assert [len(created) for created in await asyncio.gather(*queued)] == [1, 1, 1]
    await store.close()
    with pytest.raises(StoreClosed):
        await create(store, "d")


async def test_a_step_of_the_wall_clock_raises_an_alarm_and_is_taken_at_the_next_start(tmp_path: Path) -> None:
    time, alarms = HandClock(), list[float]()
    steps = Clock(time.wall, time.steady, alarms.append)
    store = open_store(store_options(tmp_path), clock=steps)
    [before] = await create(store, "before")
    time.wall_s += 7200.0
    [during] = await create(store, "during")
    await store.close()
    assert (during - before < 1_000_000, alarms) == (True, [7200.0])
    store = open_store(store_options(tmp_path), clock=time.clock())
    [after] = await create(store, "after")
    await store.close()
    assert after - during > 7000 * 1_000_000


async def test_lines_that_wait_for_the_end_of_the_turn_are_written_before_the_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    ended: list[int] = []
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(os, "_exit", ended.append)
    try:
        logging.configure("info", logging.JSON)
        logging.frequent()("request", {"code": 201})
        exit_process("the disk failed")
    finally:
        structlog.reset_defaults()
    assert ended == [EXIT_DISK_FAILED]
    assert '"code":201' in stream.getvalue()
