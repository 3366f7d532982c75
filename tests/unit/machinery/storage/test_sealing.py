"""Sealed types: no plaintext in any page, records bound to their key, rotation of keys."""

from __future__ import annotations

import secrets
from pathlib import Path

import lmdb
import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import CorruptRecord, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance import offline
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import KeyFileInvalid, Sealer, SealingError
from harness.data.stores import HandClock, create, key, listed, put, store_options

SECRETS = ResourceType("", "secrets")
CANARY = "canary-1f0e9d8c7b6a"
SECRET = ObjectKey(SECRETS, "root", "default", "s")


@pytest.fixture
def options(tmp_path: Path) -> StoreOptions:
    key_file = tmp_path / "keys.json"
    sealing.ensure_key_file(key_file)
    return store_options(tmp_path / "store", sealed_types=(SECRETS,), key_file=str(key_file))


def files_hold(options: StoreOptions, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in Path(options.directory).iterdir())


def secret_data(store: LmdbStore) -> str:
    with store.snapshot() as snapshot:
        record = snapshot.get(SECRET)
        assert record is not None
        data: str = decode(record.value)["data"]
        return data


async def test_no_page_of_the_file_ever_holds_plaintext(options: StoreOptions) -> None:
    store = open_store(options)
    revision = 0
    for index in range(30):
        [revision] = await store.submit([put(SECRET, expected=revision, data=CANARY * (index + 1))])
    [revision] = await store.submit(
        [
            put(
                ObjectKey(SECRETS, "root", "", "t"),
                data=CANARY,
                metadata={"labels": {"claimed.internal.apis.kcp.io/x": CANARY}, "ownerReferences": [{"uid": CANARY}]},
            )
        ]
    )
    store.page(Scope(SECRETS))
    store.tail(0)
    await store.reseal()
    assert not files_hold(options, CANARY)
    await store.close()
    assert not files_hold(options, CANARY)
    assert fsck(options) == []


async def test_the_canary_would_be_found_in_a_type_that_is_not_sealed(options: StoreOptions) -> None:
    store = open_store(options)
    await store.submit([put(key("plain"), data=CANARY)])
    await store.close()
    assert files_hold(options, CANARY)


async def test_a_sealed_record_moved_to_another_object_does_not_open(options: StoreOptions) -> None:
    store = open_store(options)
    other = ObjectKey(SECRETS, "root", "default", "other")
    await store.submit([put(SECRET, data="a")])
    await store.submit([put(other, data="b")])
    await store.close()
    env = lmdb.open(options.directory, map_size=1 << 30, max_dbs=32)
    objects, versions = env.open_db(b"objects"), env.open_db(b"versions")
    with env.begin(write=True) as txn:
        stored = dict(txn.cursor(objects))
        rows = dict(txn.cursor(versions))
        one, two = sorted(stored)
        txn.put(two, stored[one], db=objects)
        first, second = sorted(rows)
        txn.put(second, rows[first], db=versions)
    env.close()
    alarms: list[str] = []
    store = open_store(options, alarm=lambda event, **_facts: alarms.append(event))
    with store.snapshot() as snapshot:
        good = snapshot.get(other)
        assert good is not None
        with pytest.raises(CorruptRecord):
            snapshot.get(SECRET)
    assert alarms == ["record corrupt"]
    await store.close()


async def test_rotation_reseals_in_place_and_the_old_key_may_go_once_history_outlived_it(options: StoreOptions) -> None:
    time, key_file = HandClock(), Path(options.key_file)
    store = open_store(options, clock=time.clock())
    [revision] = await store.submit([put(SECRET, data="x")])
    await create(store, "plain")
    before = listed(store, Scope(SECRETS))
    entries = len(store.tail(0))
    assert sealing.add_key(key_file) == 2
    assert await store.reseal() == 1
    assert await store.reseal() == 0
    assert listed(store, Scope(SECRETS)) == before
    assert len(store.tail(0)) == entries
    with store.snapshot() as snapshot:
        assert snapshot.revision_of(SECRET) == revision
    time.pass_time(options.log_retention_s + 60)
    await store.compact()
    await store.close()
    sealing.remove_key(key_file, 1)
    assert fsck(options) == []
    store = open_store(options)
    assert secret_data(store) == "x"
    await store.close()


async def test_sealing_takes_up_what_was_stored_in_plain(options: StoreOptions, tmp_path: Path) -> None:
    plain = store_options(Path(options.directory))
    time = HandClock()
    store = open_store(plain, clock=time.clock())
    await store.submit([put(SECRET, data=CANARY)])
    await store.close()
    store = open_store(options, clock=time.clock())
    assert secret_data(store) == CANARY
    assert await store.reseal() == 1
    assert secret_data(store) == CANARY
    time.pass_time(options.log_retention_s + 60)
    await store.compact()
    await store.close()
    offline.compact_file(options, time.clock().now_us())
    assert not files_hold(options, CANARY)
    assert fsck(options) == []


async def test_without_its_key_a_record_is_an_error_and_others_are_served(
    options: StoreOptions, tmp_path: Path
) -> None:
    store = open_store(options)
    await store.submit([put(SECRET, data="x")])
    await create(store, "plain")
    await store.close()
    another = tmp_path / "another.json"
    sealing.ensure_key_file(another)
    options = msgspec.structs.replace(options, key_file=str(another))
    store = open_store(options, alarm=lambda *_event, **_facts: None)
    with store.snapshot() as snapshot:
        with pytest.raises(CorruptRecord):
            snapshot.get(SECRET)
        assert snapshot.get(key("plain")) is not None
    await store.close()


def test_a_key_file_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    sealing.ensure_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(KeyFileInvalid, match="0600"):
        Sealer(path)


@pytest.mark.parametrize(
    "content, fault",
    [
        (None, "is missing"),
        ("", "is empty"),
        ("\\0{[", "holds no keys"),
        ("{}", "holds no keys"),
        ('{"primary":1,"keys":[]}', "primary key 1"),
        ('{"primary":1,"keys":[{"id":1,"secret":"YQ=="}]}', "key 1 is not 32 bytes"),
        ('{"primary":1,"keys":[{"id":1,"secret":"?"}]}', "key 1 is not 32 bytes"),
        ('{"primary":1,"keys":[{"id":1,"secret":"a"}]}', "key 1 is not 32 bytes"),
    ],
)
def test_a_lost_or_malformed_key_file_is_refused_by_name(tmp_path: Path, content: str | None, fault: str) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(KeyFileInvalid, match=rf"{path}.*{fault}.*no Secret of the store can be read"):
        Sealer(path)


def test_the_primary_key_cannot_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    sealing.ensure_key_file(path)
    with pytest.raises(KeyFileInvalid):
        sealing.remove_key(path, 1)


def test_a_record_opens_only_for_its_type_key_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    sealing.ensure_key_file(path)
    sealer = Sealer(path)
    record = sealer.seal(SECRETS, b"c\0n\0a", b"plain")
    assert sealer.open(SECRETS, b"c\0n\0a", record) == b"plain"
    altered = record[:-1] + bytes([record[-1] ^ 1])
    for type, where, bad in [
        (SECRETS, b"c\0n\0b", record),
        (SECRETS, b"d\0n\0a", record),
        (ResourceType("", "secrets", "other"), b"c\0n\0a", record),
        (SECRETS, b"c\0n\0a", altered),
        (SECRETS, b"c\0n\0a", record[:10]),
        (SECRETS, b"c\0n\0a", b"\0\0\0\7" + record[4:]),
    ]:
        with pytest.raises(SealingError):
            sealer.open(type, where, bad)


def test_a_key_added_elsewhere_is_found_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    sealing.ensure_key_file(path)
    old = Sealer(path)
    sealing.add_key(path)
    assert old.open(SECRETS, b"k", Sealer(path).seal(SECRETS, b"k", b"plain")) == b"plain"


def test_a_key_file_that_is_read_while_a_record_is_sealed_makes_no_record_that_does_not_open(
    options: StoreOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = Path(options.key_file)
    sealer, random = Sealer(key_file), secrets.token_bytes

    def read_meanwhile(size: int) -> bytes:
        if size < 32:  # A nonce, not a key.
            sealing.add_key(key_file)
            sealer.reload()
        return random(size)

    monkeypatch.setattr(secrets, "token_bytes", read_meanwhile)
    record = sealer.seal(SECRETS, b"s", b"plain")
    assert (sealing.key_id(record), sealer.primary) == (1, 2)
    assert sealer.open(SECRETS, b"s", record) == b"plain"
