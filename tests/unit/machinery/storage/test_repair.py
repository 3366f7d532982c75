"""Repair of a damaged store: what can be derived is written anew, what is damaged is set aside, the rest stays."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import RevisionCompacted, Scope
from atoll.machinery.storage.environment.filesystem import StoreInUse
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.repair import NotRepaired, repair
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import KeyFileInvalid
from harness.data.store_damage import KINDS, Damage, add, drop_first, flip_last, spoil
from harness.data.stores import CONFIGMAPS, HandClock, create, key, put, replica, store_options

SECRETS = ResourceType("", "secrets")


@pytest.fixture
def time() -> HandClock:
    return HandClock()


def now_us(time: HandClock) -> int:
    return int(time.wall_s * 1_000_000)


async def filled(options: StoreOptions, time: HandClock) -> int:
    """Two objects, one of them with index rows and a history; return its revision."""
    store = open_store(options, clock=time.clock())
    metadata = {"ownerReferences": [{"uid": "u"}], "labels": {"claimed.internal.apis.kcp.io/x": "y"}}
    first, _ = await create(store, "a", "b")
    for data in ("1", "2"):
        [first] = await store.submit([put(key("a"), expected=first, metadata=metadata, data=data)])
    await store.close()
    return first


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "data.mdb").read_bytes()).hexdigest()


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def names(store: LmdbStore) -> set[str]:
    with store.snapshot() as snapshot:
        return {record.key.name for record in snapshot.scan(Scope(CONFIGMAPS))}


@pytest.mark.parametrize(("damage", "where"), KINDS)
async def test_each_kind_of_damage_is_repaired(tmp_path: Path, time: HandClock, damage: Damage, where: str) -> None:
    options = store_options(tmp_path)
    newest = await filled(options, time)
    spoil(tmp_path, damage)
    before = digest(tmp_path)
    result = repair(options, now_us(time))
    assert result is not None
    assert fsck(options) == []
    assert hashlib.sha256(result.replaced.read_bytes()).hexdigest() == before, "it stays beside the repaired one"
    store = open_store(options, clock=time.clock())
    gone = {each.name for each in result.damaged}
    assert names(store) == {"a", "b"} - gone
    assert len(gone) <= 1
    assert result.log_dropped == (where not in {"clusters", "owners", "labels"})
    if result.log_dropped:
        with pytest.raises(RevisionCompacted):
            store.page(Scope(CONFIGMAPS), at=newest)
    await create(store, "later")
    await store.close()
    assert fsck(options) == []


async def test_a_damaged_object_is_set_aside_as_it_was_found(tmp_path: Path, time: HandClock) -> None:
    options = store_options(tmp_path)
    await filled(options, time)
    spoil(tmp_path, flip_last("objects", -3))
    result = repair(options, now_us(time))
    assert result is not None
    [file] = (path for path in files(tmp_path) if path.suffix == ".jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    [line] = [json.loads(line) for line in file.read_text().splitlines()]
    assert (line["cluster"], line["resource"], line["namespace"]) == ("root", "configmaps", "default")
    assert line["why"] == "checksum mismatch"
    assert b"Thing" in base64.b64decode(line["stored"])
    assert [each.name for each in result.damaged] == [line["name"]]


async def test_a_sound_store_and_one_in_use_are_left_alone(tmp_path: Path, time: HandClock) -> None:
    options = store_options(tmp_path)
    await filled(options, time)
    before = digest(tmp_path)
    assert repair(options, now_us(time)) is None
    assert digest(tmp_path) == before
    store = open_store(options, clock=time.clock())
    with pytest.raises(StoreInUse):
        repair(options, now_us(time))
    await store.close()


async def test_rows_of_other_shards_are_dropped_where_they_are_damaged_and_read_again(
    tmp_path: Path, time: HandClock
) -> None:
    options = store_options(tmp_path)
    store = open_store(options, clock=time.clock())
    await create(store, "a")
    await store.submit([replica(key("far", cluster="c"), 7)])
    await store.close()
    spoil(tmp_path, drop_first("replica_counters"))
    result = repair(options, now_us(time))
    assert result is not None
    assert not result.log_dropped
    assert fsck(options) == []
    store = open_store(options, clock=time.clock())
    assert names(store) == {"a"}
    with store.snapshot() as snapshot:
        assert snapshot.replicas.get(key("far", cluster="c")) is None
    await store.close()


async def test_sealed_objects_are_not_given_up_for_want_of_their_keys(tmp_path: Path, time: HandClock) -> None:
    key_file = tmp_path / "keys"
    sealing.ensure_key_file(key_file)
    options = store_options(tmp_path / "s", sealed_types=(SECRETS,), key_file=str(key_file))
    store = open_store(options, clock=time.clock())
    await store.submit([put(key("sealed", type=SECRETS), data="x")])
    await store.close()
    spoil(tmp_path / "s", drop_first("log"))
    before = digest(tmp_path / "s")
    key_file.rename(tmp_path / "elsewhere")
    with pytest.raises(KeyFileInvalid):
        repair(options, now_us(time))
    assert digest(tmp_path / "s") == before
    (tmp_path / "elsewhere").rename(key_file)
    result = repair(options, now_us(time))
    assert result is not None
    assert not result.damaged


async def test_what_stays_damaged_changes_nothing(
    tmp_path: Path, time: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = store_options(tmp_path)
    await filled(options, time)
    spoil(tmp_path, add("owners", b"c\0" + b"x" * 40, b""))
    before = digest(tmp_path)
    monkeypatch.setattr("atoll.machinery.storage.maintenance.repair.Rebuild.run", lambda _: None)
    with pytest.raises(NotRepaired):
        repair(options, now_us(time))
    assert digest(tmp_path) == before
    assert {path.name for path in files(tmp_path)} == {"data.mdb", "lock.mdb", "writer.lock"}
