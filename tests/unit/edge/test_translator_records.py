"""Records of copies: seen at once, on disk after a flush, and gone with their mailbox."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec import structs

from atoll.edge.placement_translator.records import Copy, CopyRecords, LastChange
from atoll.edge.store import EdgeStore
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.names import ObjectRef
from harness.waits import until

A, LONG = ObjectRef("", "configmaps", "default", "a"), ObjectRef("g" * 253, "r" * 63, "n" * 63, "x" * 253)


def copy(version: str = "v1") -> Copy:
    return Copy(version, "s", ApplyRecord("c", "a"), "uid", 7, 5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


async def test_what_was_put_is_seen_before_and_after_it_is_on_disk(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put("m", A, copy())
    records.put("m", LONG, copy("v2"))
    records.put("n", A, copy())
    assert records.of("m") == {A: copy(), LONG: copy("v2")}
    assert CopyRecords(store).of("m") == {}
    await records.flush()
    again = CopyRecords(store)
    assert again.of("m") == {A: copy(), LONG: copy("v2")}
    again.put("m", A, None)
    assert (again.get("m", A), again.get("n", A)) == (None, copy())
    assert again.of("m") == {LONG: copy("v2")}
    await again.flush()
    assert CopyRecords(store).of("m") == {LONG: copy("v2")}


async def test_the_last_writes_of_an_object_in_many_mailboxes_are_read_as_those_in_one(store: EdgeStore) -> None:
    records = CopyRecords(store)
    for number, mailbox in enumerate("abc", 1):
        records.put(mailbox, A, structs.replace(copy(), written=number))
        records.put(mailbox, LONG, copy())
    await records.flush()
    records.put("a", A, None)
    records.put("b", A, structs.replace(copy(), written=9))
    assert records.written("dcba", A) == [0, 3, 9, 0]
    await records.flush()
    assert records.written("dcba", A) == [0, 3, 9, 0]
    assert records.written((), A) == []


async def test_a_mailbox_is_forgotten_with_all_its_copies(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put("m", A, copy())
    records.put_swept("m")
    records.put_late("m", 9)
    await records.flush()
    assert (records.is_swept("m"), records.kinds("m"), CopyRecords(store).late_until("m")) == (True, {A.kind}, 9)
    records.forget("m")
    await records.flush()
    assert (records.of("m"), records.is_swept("m"), records.kinds("m")) == ({}, False, None)
    assert dict(store.applied.items()) == {}


async def test_kinds_of_a_mailbox_only_become_more_and_are_on_disk_before_the_write(store: EdgeStore) -> None:
    records = CopyRecords(store)
    await records.expect("m", {A.kind}, has_new=True)
    records.put_written("m")
    assert (records.kinds("m"), records.is_swept("m")) == (None, False), "it was never read: it may have any kind"
    records.put_swept("m")
    await records.expect("m", {A.kind}, has_new=False)
    await CopyRecords(store).expect("m", {("apps", "deployments")}, has_new=False)
    assert CopyRecords(store).kinds("m") == {A.kind, ("apps", "deployments")}
    again = CopyRecords(store)
    again.put_swept("m")
    assert again.kinds("m") == {A.kind, ("apps", "deployments")}


async def test_while_new_copies_are_written_a_mailbox_is_not_swept_on_disk(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put_swept("m")
    await records.expect("m", {A.kind}, has_new=False)
    assert CopyRecords(store).swept() == {"m"}
    await records.expect("m", {A.kind}, has_new=True)
    assert CopyRecords(store).swept() == set()
    assert CopyRecords(store).kinds("m") == {A.kind}
    records.put("m", A, copy())
    records.put_written("m")
    await records.flush()
    assert (CopyRecords(store).swept(), CopyRecords(store).of("m")) == ({"m"}, {A: copy()})


def test_a_list_moves_with_objects_and_versions_and_not_with_revisions(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put("m", A, copy())
    assert (records.take_moved("m"), records.take_moved("m"), records.take_moved("n")) == (True, False, False)
    records.put("m", A, Copy("v1", "other", ApplyRecord("x", "y"), "uid", 9, 9))
    assert not records.take_moved("m")
    records.put("m", A, copy("v2"))
    assert records.take_moved("m")
    records.put("m", A, None)
    assert records.take_moved("m")


async def test_reported_states_are_remembered_with_their_version(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put_reported("w", A, "v1")
    await records.flush()
    assert CopyRecords(store).reported("w") == {A: "v1"}
    records.put_reported("w", A, "")
    assert records.reported("w") == {}


async def test_the_last_change_of_an_object_is_kept_for_as_long_as_it_is_sent(tmp_path: Path) -> None:
    store = EdgeStore(tmp_path, allow_any_filesystem=True)
    records = CopyRecords(store)
    a, b = (ObjectRef("", "configmaps", "default", name) for name in "ab")
    records.put_last_change("w", a, LastChange("d", 7))
    records.put_last_change("w", b, LastChange("e", 8))
    await records.flush()
    again = CopyRecords(store)
    assert again.last_change("w", a) == LastChange("d", 7)
    assert sorted(again.changed("w")) == [a, b]
    again.put_last_change("w", a, None)
    assert again.last_change("w", a) is None
    assert again.changed("w") == [b]
    assert again.of("w") == {}, "it is no copy"
    store.close()


async def test_renderings_are_kept_with_their_copy_and_go_with_it(store: EdgeStore) -> None:
    records = CopyRecords(store)
    records.put("m", A, copy())
    records.put_renderings("m", A, {"one": b"{}"})
    await records.flush()
    assert CopyRecords(store).renderings("m", A) == {"one": b"{}"}
    assert CopyRecords(store).renderings("n", A) == {}
    records.put_renderings("m", A, {"two": b"[]"})
    assert records.renderings("m", A) == {"two": b"[]"}
    records.put("m", A, None)
    await records.flush()
    assert CopyRecords(store).renderings("m", A) == {}


class SlowStore(EdgeStore):
    """A store whose commits wait to be let on: how many rows each had."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, allow_any_filesystem=True)
        self.commits, self.begun, self.goes_on, self.is_full = list[int](), Event(), Event(), False
        self.goes_on.set()

    def write(self, changes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        self.begun.set()
        self.goes_on.wait(10)
        self.commits.append(sum(map(len, changes.values())))
        if self.is_full:
            raise OSError("no space")
        super().write(changes)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowStore]:
    found = SlowStore(tmp_path)
    yield found
    found.close()


async def soon(work: Coroutine[Any, Any, None]) -> None:
    """Begin in a later turn of the loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await work


async def is_begun(slow: SlowStore) -> None:
    await until(lambda: asyncio.to_thread(slow.begun.is_set), "a commit has begun")


async def test_what_many_put_reaches_the_disk_together_and_none_goes_on_before(slow: SlowStore) -> None:
    records = CopyRecords(slow)

    async def one(mailbox: str) -> None:
        records.put(mailbox, A, copy())
        await records.flush()
        assert CopyRecords(slow).get(mailbox, A) == copy()

    slow.goes_on.clear()
    first = asyncio.create_task(one("first"))
    await is_begun(slow)
    others = [asyncio.create_task(one(f"m{number}")) for number in range(50)]
    slow.goes_on.set()
    await asyncio.gather(first, *others)
    assert slow.commits == [1, 50]
    await records.flush()
    assert slow.commits == [1, 50], "nothing is left to write"
    # Those that come one after the other wait for each other, too.
    records._commits._free_at_s = asyncio.get_running_loop().time() + 0.2
    await asyncio.gather(one("n0"), soon(one("n1")))
    assert slow.commits == [1, 50, 2]


async def test_what_was_put_while_a_commit_went_is_in_the_next_and_of_a_commit_that_failed_nothing_is_lost(
    slow: SlowStore,
) -> None:
    records = CopyRecords(slow)
    records.put("m", A, copy())
    slow.goes_on.clear()
    first = asyncio.create_task(records.flush())
    await is_begun(slow)
    records.put("m", A, copy("v2"))
    slow.goes_on.set()
    await first
    slow.is_full = True
    with pytest.raises(OSError, match="no space"):
        await records.flush()
    assert records.get("m", A) == copy("v2")
    slow.is_full = False
    await records.flush()
    assert CopyRecords(slow).get("m", A) == copy("v2")
