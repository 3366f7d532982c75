"""Rows of every identity of a resource, as one list and one watch, against a dictionary of what was written."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.apiserver.filtered_rows import EVERY_IDENTITY, MergedRows
from atoll.machinery.apiserver.filtered_rows.merged_rows import position_of
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode, splice
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.storage.contract import Delete, Operation, Position, Put, RevisionCompacted, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import HandClock, store_options
from harness.seeds import drawn

GROUP, RESOURCE = "example.com", "widgets"
IDENTITIES = (LOCAL, "a" * 64, "b" * 64, "c" * 64)
WANTED = Scope(ResourceType(GROUP, RESOURCE, EVERY_IDENTITY), "")
#: Not of the resource, and not merged: the system's own kind of this name, and others.
OTHERS = (
    ResourceType(GROUP, RESOURCE, CORE),
    ResourceType(GROUP, "widgetses", LOCAL),
    ResourceType("other.example.com", RESOURCE, LOCAL),
)
#: A cluster has its objects under one identity, as it serves a resource under one; two have them under any.
CLUSTERS = tuple(f"cluster{number}" for number in range(8))


def object_key(type: ResourceType, cluster: str, namespace: str, name: str) -> ObjectKey:
    return ObjectKey(type, cluster, namespace, name)


def written(key: ObjectKey, expected: int = 0, filler: int = 0) -> Put:
    metadata = {"name": key.name, "namespace": key.namespace, "annotations": {CLUSTER: key.cluster}}
    value, hole = encode({"kind": "Widget", "metadata": metadata, "spec": {"of": key.type.identity, "a": "x" * filler}})
    return Put(key, value, hole, expected)


keys = st.builds(
    object_key,
    st.sampled_from([*(ResourceType(GROUP, RESOURCE, identity) for identity in IDENTITIES), *OTHERS]),
    st.sampled_from(CLUSTERS),
    st.sampled_from(["", "default", "kube"]),
    st.sampled_from(["a", "b", "ab", "z"]),
)


def of_resource(key: ObjectKey) -> bool:
    return (key.type.group, key.type.resource) == (GROUP, RESOURCE) and key.type.identity != CORE


def in_order(found: Sequence[ObjectKey]) -> list[Position]:
    return sorted(Position(key.cluster, key.namespace, key.name) for key in found if of_resource(key))


class Written:
    """A store, and its expected content."""

    def __init__(self, store: LmdbStore) -> None:
        self.store, self.rows = store, MergedRows(store)
        self.keys: dict[ObjectKey, int] = {}

    async def toggle(self, key: ObjectKey, filler: int = 0) -> None:
        """Create an object, or delete it if it exists."""
        if key in self.keys:
            await self.store.submit([Delete(key, self.keys.pop(key))])
        else:
            (self.keys[key],) = await self.store.submit([written(key, 0, filler)])

    def pages(self, limit: int, size_bytes: int, at: int = 0, namespace: str = "") -> list[list[bytes]]:
        found, after = [], None
        while True:
            scope = Scope(WANTED.type, "", namespace)
            page = self.rows.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
            assert page.values or page.after is None
            found.append(page.values)
            at, after = page.revision, page.after
            if after is None:
                return found


@given(
    before=st.lists(keys, max_size=40),
    later=st.lists(keys, max_size=10),
    limit=st.integers(0, 7),
    size_bytes=st.sampled_from([1, 300, 2000, 1 << 20]),
    filler=st.sampled_from([0, 400, 30_000]),
)
@settings(max_examples=drawn(60), deadline=None)
def test_pages_hold_each_row_of_a_revision_once_and_in_order(
    before: list[ObjectKey], later: list[ObjectKey], limit: int, size_bytes: int, filler: int
) -> None:
    async def run(directory: Path) -> None:
        store = open_store(store_options(directory))
        try:
            held = Written(store)
            # Revision 0 of a list means the latest.
            await held.toggle(object_key(OTHERS[2], CLUSTERS[0], "", "first"))
            for key in before:
                await held.toggle(key, filler)
            expected = dict(held.keys)
            with store.snapshot() as snapshot:
                at = snapshot.revision
            pages = held.pages(limit, size_bytes)
            assert [position_of(value) for page in pages for value in page] == in_order([*expected])
            if limit:
                # Two identities may have rows of one position; these are not separated.
                assert all(len({position_of(value) for value in page}) <= limit for page in pages)
            for key in later:
                await held.toggle(key)
            again = held.pages(limit, size_bytes, at=at)
            assert [value for page in again for value in page] == [value for page in pages for value in page]
            for namespace in ("default", "kube"):
                mine = [key for key in held.keys if key.namespace == namespace]
                some = held.pages(limit, size_bytes, namespace=namespace)
                assert [position_of(value) for page in some for value in page] == in_order(mine)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


@given(before=st.lists(keys, max_size=10), later=st.lists(keys, max_size=30), limit=st.integers(1, 5))
@settings(max_examples=drawn(40), deadline=None)
def test_a_watch_from_a_list_leads_to_the_state_at_its_position(
    before: list[ObjectKey], later: list[ObjectKey], limit: int
) -> None:
    async def run(directory: Path) -> None:
        store = open_store(store_options(directory))
        try:
            held = Written(store)
            for key in before:
                await held.toggle(key)
            page = held.rows.page(WANTED)
            state = {key: revision for key, revision in held.keys.items() if of_resource(key)}
            cursor = held.rows.cursor(WANTED, page.revision)
            for key in later:
                await held.toggle(key)
            revisions = []
            with store.snapshot() as snapshot:
                last = snapshot.revision
            while cursor.position < last:
                for change in cursor.read(limit):
                    revisions.append(change.revision)
                    if change.operation is Operation.DELETED:
                        del state[change.key]
                    else:
                        assert change.after == splice(*encoded(change.key), change.revision)
                        state[change.key] = change.revision
                await cursor.wait() if cursor.position < last else None
            assert state == {key: revision for key, revision in held.keys.items() if of_resource(key)}
            assert revisions == sorted(set(revisions))
            assert not cursor.read()
            cursor.close()
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


def encoded(key: ObjectKey) -> tuple[bytes, int]:
    made = written(key)
    return made.value, made.hole


async def test_a_waiting_watch_is_woken_by_commits_and_nudges_and_by_nothing_else(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    held = Written(store)
    with store.snapshot() as snapshot:
        cursor = held.rows.cursor(WANTED, snapshot.revision)
    assert not cursor.read()
    waiting = asyncio.ensure_future(cursor.wait())
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    cursor.nudge()
    await asyncio.wait_for(waiting, 60)
    waiting = asyncio.ensure_future(cursor.wait())
    # An identity that did not exist before.
    await held.toggle(object_key(ResourceType(GROUP, RESOURCE, "f" * 64), CLUSTERS[0], "", "new"))
    await asyncio.wait_for(waiting, 60)
    assert [change.key.name for change in cursor.read()] == ["new"]
    waiting = asyncio.ensure_future(cursor.wait())
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    waiting.cancel()
    await store.close()


async def test_a_watch_from_before_the_log_is_refused(tmp_path: Path) -> None:
    clock = HandClock()
    options = store_options(tmp_path / "store", list_window_s=10, log_retention_s=20)
    store = open_store(options, clock=clock.clock())
    held = Written(store)
    with store.snapshot() as snapshot:
        begin = snapshot.revision
    for name in ("a", "b"):
        await held.toggle(object_key(ResourceType(GROUP, RESOURCE, LOCAL), CLUSTERS[0], "", name))
        clock.pass_time(60)
    await store.compact()
    with pytest.raises(RevisionCompacted):
        held.rows.cursor(WANTED, begin or 1).read()
    await store.close()


async def test_a_commit_that_the_file_has_and_nobody_announced_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits run in a thread where the disk is slow: snapshots see them before the event loop does."""
    store = open_store(store_options(tmp_path / "s"))
    try:
        first, second = (object_key(ResourceType(GROUP, RESOURCE, LOCAL), "c", "", name) for name in "ab")
        cursor = MergedRows(store).cursor(WANTED, store.hub.last)
        await store.submit([written(first)])
        monkeypatch.setattr(store.hub, "publish", lambda changes, last: None)
        await store.submit([written(second)])
        assert [change.key for change in (*cursor.read(), *cursor.read())] == [first, second]
    finally:
        await store.close()
