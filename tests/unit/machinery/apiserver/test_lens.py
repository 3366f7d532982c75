"""Row filters against a model: after any changes, a list and the watch from it lead to the state of a later list."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from atoll.machinery.apiserver.filtered_rows import FilteredRows, RowFilter, feed_cursor
from atoll.machinery.apiserver.filtered_rows.cursor import FilteredCursor
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode, encode
from atoll.machinery.storage.contract import Delete, Operation, Position, Put, RevisionCompacted, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import HandClock, store_options

ROWS = ResourceType("example.com", "rows")
PICKS = ResourceType("example.com", "picks")
HOME = "home"
CLUSTERS, NAMES = ("east", "north", "west"), ("a", "b", "c", "d")
SCOPE = Scope(ROWS)


def choose(picks: Sequence[bytes]) -> RowFilter:
    """Each pick names a cluster and a colour; rows of that cluster with the colour are shown."""
    wanted = {(pick["of"], pick["colour"]) for pick in map(decode, picks)}
    clusters = tuple(sorted({cluster for cluster, _ in wanted}))
    return RowFilter(clusters, frozenset(wanted), lambda cluster, value: (cluster, decode(value)["colour"]) in wanted)


class World:
    """A store with rows and picks, changed at random, and the expected filtered rows."""

    def __init__(self, store: LmdbStore, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.lens = FilteredRows(store, [Scope(PICKS, HOME)], choose)

    async def put(self, type: ResourceType, cluster: str, name: str, **content: str) -> None:
        key = ObjectKey(type, cluster, "", name)
        with self.store.snapshot() as snapshot:
            expected = snapshot.revision_of(key)
        value, hole = encode({"metadata": {"name": name}, **content})
        await self.store.submit([Put(key, value, hole, expected)])

    async def delete(self, type: ResourceType, cluster: str, name: str) -> None:
        key = ObjectKey(type, cluster, "", name)
        with self.store.snapshot() as snapshot:
            expected = snapshot.revision_of(key)
        if expected:
            await self.store.submit([Delete(key, expected)])

    async def step(self) -> None:
        """One random change of a row or a pick."""
        pick, colour = self.random.random() < 0.3, self.random.choice(("red", "blue"))
        name, cluster = self.random.choice(NAMES), self.random.choice(CLUSTERS)
        type, where = (PICKS, HOME) if pick else (ROWS, cluster)
        if self.random.random() < 0.3:
            await self.delete(type, where, name)
        elif pick:
            await self.put(PICKS, HOME, name, of=cluster, colour=colour)
        else:
            await self.put(ROWS, cluster, name, colour=colour)

    def listed(self, at: int = 0, limit: int = 0) -> tuple[int, dict[tuple[str, str], str]]:
        """The revision of a list and its rows, page by page; rows are identified by their content."""
        found: dict[tuple[str, str], str] = {}
        after: Position | None = None
        while True:
            page = self.lens.page(SCOPE, at=at, after=after, limit=limit)
            at = page.revision
            for value in page.values:
                found[self._where(value)] = decode(value)["colour"]
            after = page.after
            if after is None:
                return at, found

    def _where(self, value: bytes) -> tuple[str, str]:
        obj = decode(value)
        with self.store.snapshot() as snapshot:
            for cluster in CLUSTERS:
                record = snapshot.get(ObjectKey(ROWS, cluster, "", obj["metadata"]["name"]))
                if record is not None and record.value == value:
                    return cluster, obj["metadata"]["name"]
        return "gone", obj["metadata"]["name"]

    def expected(self) -> dict[tuple[str, str], str]:
        """The expected rows, computed from all rows."""
        with self.store.snapshot() as snapshot:
            picks = [decode(record.value) for record in snapshot.scan(Scope(PICKS, HOME))]
            rows = snapshot.scan(Scope(ROWS))
        wanted = {(pick["of"], pick["colour"]) for pick in picks}
        values = ((record.key, decode(record.value)["colour"]) for record in rows)
        return {(key.cluster, key.name): colour for key, colour in values if (key.cluster, colour) in wanted}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    opened = open_store(store_options(tmp_path))
    yield opened
    await opened.close()


def drain(cursor: FilteredCursor, visible: dict[tuple[str, str], str], limit: int = 500) -> None:
    """Apply all events to a model of a watcher's state."""
    while True:
        changes = cursor.read(limit)
        for change in changes:
            at = change.key.cluster, change.key.name
            if change.operation is Operation.DELETED:
                assert visible.pop(at, None) is not None, f"{at} was told to go and was not there"
                assert int(decode(change.after)["metadata"]["resourceVersion"]) == change.revision
            else:
                assert (change.operation is Operation.ADDED) == (at not in visible), (at, change.operation)
                visible[at] = decode(change.after)["colour"]
        if len(changes) < limit:
            return


@pytest.mark.parametrize("seed", range(12))
async def test_a_watch_follows_rows_and_choice(store: LmdbStore, seed: int) -> None:
    world = World(store, seed)
    for _ in range(20):
        await world.step()
    revision, visible = world.listed()
    assert visible == world.expected()
    cursor = world.lens.cursor(SCOPE, revision)
    assert isinstance(cursor, FilteredCursor)
    for _ in range(40):
        for _ in range(world.random.randint(1, 4)):
            await world.step()
        drain(cursor, visible, world.random.choice((1, 2, 500)))
        assert visible == world.expected()
        with store.snapshot() as snapshot:
            assert cursor.position == snapshot.revision
    cursor.close()


@pytest.mark.parametrize("seed", range(6))
async def test_a_watch_that_comes_late_is_told_all_it_missed(store: LmdbStore, seed: int) -> None:
    world = World(store, seed)
    for _ in range(20):
        await world.step()
    revision, visible = world.listed()
    for _ in range(60):
        await world.step()
    cursor = world.lens.cursor(SCOPE, revision)
    assert isinstance(cursor, FilteredCursor)
    drain(cursor, visible)
    assert visible == world.expected()
    cursor.close()


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_are_one_list(store: LmdbStore, limit: int) -> None:
    world = World(store, 7)
    for _ in range(40):
        await world.step()
    assert world.listed(limit=limit)[1] == world.listed()[1] == world.expected()


async def test_one_row_is_found_where_it_is_shown_and_nowhere_else(store: LmdbStore) -> None:
    world = World(store, 1)
    await world.put(PICKS, HOME, "p", of="east", colour="red")
    await world.put(ROWS, "east", "a", colour="red")
    await world.put(ROWS, "east", "b", colour="blue")
    await world.put(ROWS, "west", "c", colour="red")
    with store.snapshot() as snapshot:
        found = {name: world.lens.get(snapshot, ObjectKey(ROWS, "", "", name)) is not None for name in NAMES}
    assert found == {"a": True, "b": False, "c": False, "d": False}


async def test_a_wait_ends_with_a_change_of_either_and_with_a_nudge(store: LmdbStore) -> None:
    world = World(store, 1)
    await world.put(PICKS, HOME, "p", of="east", colour="red")
    with store.snapshot() as snapshot:
        cursor = world.lens.cursor(SCOPE, snapshot.revision)
    assert isinstance(cursor, FilteredCursor)
    for change in (world.put(ROWS, "east", "a", colour="red"), world.put(PICKS, HOME, "p", of="east", colour="blue")):
        cursor.read()
        await change
        await cursor.wait()
        assert len(cursor.read()) == 1
    asyncio.get_running_loop().call_soon(cursor.nudge)
    await cursor.wait()
    assert not cursor.read()
    cursor.close()


async def test_what_is_no_longer_chosen_is_no_longer_followed(store: LmdbStore) -> None:
    world = World(store, 1)
    for name, cluster in (("a", "east"), ("b", "west")):
        await world.put(ROWS, cluster, name, colour="red")
        await world.put(PICKS, HOME, name, of=cluster, colour="red")
    revision, visible = world.listed()
    cursor = world.lens.cursor(SCOPE, revision)
    assert isinstance(cursor, FilteredCursor)
    drain(cursor, visible)
    followed = store.hub.watchers
    await world.delete(PICKS, HOME, "b")
    drain(cursor, visible)
    assert (visible, store.hub.watchers) == ({("east", "a"): "red"}, followed - 1)
    cursor.close()
    assert store.hub.watchers == 0


async def test_a_watch_that_comes_late_looks_past_all_that_is_not_its_own(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path, ring_bytes=1))
    try:
        world = World(store, 1)
        await world.put(ROWS, "east", "a", colour="red")
        await world.put(PICKS, HOME, "p", of="east", colour="red")
        revision, visible = world.listed()
        for turn, colour in enumerate(("blue", "red")):
            await _noise(store, f"noise{turn}", 1500)
            await world.put(PICKS, HOME, "p", of="east", colour=colour)
            await world.put(ROWS, "east", "b", colour="red")
        await world.put(PICKS, HOME, "p", of="east", colour="blue")
        await world.put(ROWS, "east", "c", colour="blue")
        cursor = world.lens.cursor(SCOPE, revision)
        assert isinstance(cursor, FilteredCursor)
        with store.snapshot() as snapshot:
            last = snapshot.revision
        while cursor.position < last:
            drain(cursor, visible)
        assert visible == world.expected() == {("east", "c"): "blue"}
        cursor.close()
    finally:
        await store.close()


async def _noise(store: LmdbStore, cluster: str, count: int) -> None:
    """Writes outside the scope of all watchers."""
    for start in range(0, count, 500):
        keys = [ObjectKey(ResourceType("", "noise"), cluster, "", f"n{number}") for number in range(start, start + 500)]
        await store.submit([Put(key, *encode({"metadata": {"name": key.name}}), 0) for key in keys])


async def test_what_was_chosen_beyond_the_list_window_is_not_guessed(tmp_path: Path) -> None:
    clock = HandClock()
    store = open_store(store_options(tmp_path, list_window_s=10), clock=clock.clock())
    try:
        world = World(store, 1)
        await world.put(ROWS, "east", "a", colour="red")
        with store.snapshot() as snapshot:
            revision = snapshot.revision
        await world.put(PICKS, HOME, "p", of="east", colour="red")
        await world.put(ROWS, "east", "a", colour="blue")
        clock.pass_time(3600)
        await world.put(ROWS, "east", "b", colour="red")
        cursor = world.lens.cursor(SCOPE, revision)
        with pytest.raises(RevisionCompacted):
            cursor.read()
        cursor.close()
    finally:
        await store.close()


async def test_a_watch_from_beyond_the_list_window_goes_on_while_the_choice_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that decide changed more often than one read returns."""
    monkeypatch.setattr(feed_cursor, "READ_LIMIT", 5)
    clock = HandClock()
    store = open_store(store_options(tmp_path, list_window_s=10), clock=clock.clock())
    try:
        world = World(store, 1)
        await world.put(PICKS, HOME, "p", of="east", colour="red")
        with store.snapshot() as snapshot:
            revision = snapshot.revision
        for number in range(6):
            await world.put(PICKS, HOME, "p", of="east", colour="red", number=str(number))
        clock.pass_time(3600)
        await world.put(ROWS, "east", "a", colour="red")
        cursor, visible = world.lens.cursor(SCOPE, revision), dict[tuple[str, str], str]()
        assert isinstance(cursor, FilteredCursor)
        drain(cursor, visible)
        assert visible == {("east", "a"): "red"}
        cursor.close()
    finally:
        await store.close()
