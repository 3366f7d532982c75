"""What the store keeps in memory: recent entries that need no reading, and mapped pages that are given back."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import LogEntry, Scope
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance import residency
from atoll.machinery.storage.maintenance.residency import Residency
from harness.data.stores import CONFIGMAPS, create, delete, key, listed, put, store_options

SECRETS = ResourceType("", "secrets")


async def lived_in(directory: Path) -> LmdbStore:
    """A store with a create, a change and a delete of one object, and a sealed one between them."""
    key_file = directory / "keys.json"
    sealing.ensure_key_file(key_file)
    store = open_store(store_options(directory / "store", sealed_types=(SECRETS,), key_file=str(key_file)))
    [first] = await create(store, "a")
    [second] = await store.submit([put(key("a"), expected=first, data="more")])
    await store.submit([put(key("s", type=SECRETS), data="hidden")])
    await store.submit([delete(key("a"), second)])
    await create(store, "b")
    return store


def one_by_one(store: LmdbStore) -> list[LogEntry]:
    """The whole log in steps of one entry, so that the sealed one decides for itself alone."""
    found: list[LogEntry] = []
    while step := store.tail(found[-1].revision if found else 0, 1):
        found += step
    return found


async def test_recent_entries_are_those_of_the_log(tmp_path: Path) -> None:
    store = await lived_in(tmp_path)
    remembered, options = one_by_one(store), store.options
    assert [store.hub.ring.entries(entry.revision - 1, 1) is None for entry in remembered] == [
        False,
        False,
        True,
        False,
        False,
    ]
    await store.close()
    store = open_store(options)
    try:
        assert store.hub.ring.entries(0, 1) is None
        assert one_by_one(store) == remembered
        assert len(remembered) == 5
    finally:
        await store.close()


async def test_what_is_sealed_is_told_sealed_though_it_is_remembered_open(tmp_path: Path) -> None:
    store = await lived_in(tmp_path)
    [entry] = [entry for entry in store.tail(0) if entry.key.type == SECRETS]
    assert entry.sealed
    assert b"hidden" not in entry.value
    await store.close()


async def test_mapped_pages_are_given_back_and_read_again(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit([put(key(f"n{number}"), data="x" * 100_000) for number in range(100)])
    before = listed(store, Scope(CONFIGMAPS))
    file = tmp_path / filesystem.DATA_FILE
    held = Residency(file, limit_bytes=0).trim()
    left = residency._file_bytes()
    assert held - left > 5_000_000
    assert listed(store, Scope(CONFIGMAPS)) == before
    await create(store, "later")
    assert len(listed(store, Scope(CONFIGMAPS))) == 101
    await store.close()


async def test_few_mapped_pages_are_left_alone(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await create(store, "a")
    assert Residency(tmp_path / filesystem.DATA_FILE, limit_bytes=1 << 40).trim() == 0
    await store.close()
