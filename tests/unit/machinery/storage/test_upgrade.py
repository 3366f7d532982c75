"""A store of an earlier format: refused unless allowed, backed up first, whole whenever its upgrade is killed.

One that holds replicas alone, as those of front proxies and cache servers, is made anew instead.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import lmdb
import msgspec
import pytest

from atoll.cacheserver import process as cache_server
from atoll.cacheserver.config import CacheServerConfig
from atoll.frontproxy import process as front_proxy
from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.storage.contract import RevisionCompacted, Scope
from atoll.machinery.storage.environment import filesystem, opening
from atoll.machinery.storage.environment.databases import FORMAT_VERSION
from atoll.machinery.storage.environment.filesystem import StoreInUse
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance import upgrade as upgrading
from atoll.machinery.storage.maintenance.backup_files import MANIFEST
from atoll.machinery.storage.maintenance.upgrade import UpgradeRefused, upgrade
from atoll.machinery.storage.options import StoreOptions
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import prepare
from harness.data.stores import CONFIGMAPS, create, store_options

Txn: TypeAlias = Any
EARLIER = FORMAT_VERSION - 1


def set_meta(directory: Path, name: str, value: object) -> None:
    env = lmdb.open(str(directory), map_size=1 << 30, max_dbs=32)
    with env.begin(write=True, db=env.open_db(b"meta")) as txn:
        txn.put(name.encode(), msgspec.msgpack.encode(value))
    env.close()


def digest(options: StoreOptions) -> str:
    return hashlib.sha256((Path(options.directory) / filesystem.DATA_FILE).read_bytes()).hexdigest()


def mark(env: lmdb.Environment, txn: Txn) -> None:
    """The step of these tests: one more fact."""
    txn.put(b"marked", msgspec.msgpack.encode(True), db=env.open_db(b"meta", txn=txn, create=False))


STEPS = {EARLIER: mark}


def put_back(data: Path, options: StoreOptions) -> None:
    Path(options.directory, filesystem.DATA_FILE).write_bytes(data.read_bytes())


@pytest.fixture
async def options(tmp_path: Path) -> StoreOptions:
    """A store with one object, of the earlier format."""
    made = store_options(tmp_path / "root" / "store")
    store = open_store(made)
    await create(store, "a")
    await store.close()
    set_meta(tmp_path / "root" / "store", "format", EARLIER)
    return made


async def is_upgraded(options: StoreOptions) -> bool:
    found = opening.read_meta(Path(options.directory), options, "format", "marked") == [FORMAT_VERSION, True]
    store = open_store(options)
    with store.snapshot() as snapshot:
        kept = snapshot.scan(Scope(CONFIGMAPS))
    await store.close()
    return found and len(kept) == 1


async def test_it_is_refused_with_the_flag_to_give_and_left_to_the_byte(options: StoreOptions) -> None:
    before = digest(options)
    with pytest.raises(UpgradeRefused, match="--allow-format-upgrade"):
        upgrade(options, allowed=False, steps=STEPS)
    assert digest(options) == before
    assert [each.name for each in Path(options.directory).parent.iterdir()] == ["store"]


async def test_it_is_backed_up_and_upgraded_and_the_backup_is_the_way_back(
    options: StoreOptions, tmp_path: Path
) -> None:
    done = upgrade(options, allowed=True, steps=STEPS)
    assert done is not None
    assert await is_upgraded(options)
    manifest = msgspec.json.decode((done.backup / MANIFEST).read_bytes())
    assert manifest["storeFormat"] == EARLIER
    assert opening.read_meta(done.backup, options, "format", "marked") == [EARLIER, None]
    opened = opening.open_for_reading(msgspec.structs.replace(options, directory=str(done.backup)), EARLIER)
    opened.close()
    assert upgrade(options, allowed=True, steps=STEPS) is None


@pytest.mark.parametrize("file_format", [FORMAT_VERSION + 1, EARLIER - 1])
async def test_a_format_that_is_unknown_is_left_to_the_opening_which_refuses_it(
    options: StoreOptions, file_format: int
) -> None:
    set_meta(Path(options.directory), "format", file_format)
    before = digest(options)
    assert upgrade(options, allowed=True, steps=STEPS) is None
    with pytest.raises(UnknownFormat, match=f"format {file_format}"):
        open_store(options)
    assert digest(options) == before


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("place", ["back_up", "receive", "_apply", "fsck", "move_in"])
async def test_one_that_is_killed_leaves_the_file_as_it_was_and_the_next_ends_it(
    options: StoreOptions, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    before = digest(options)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(upgrading, place, killed)
    with pytest.raises(Killed):
        upgrade(options, allowed=True, steps=STEPS)
    monkeypatch.undo()
    assert digest(options) == before
    assert upgrade(options, allowed=True, steps=STEPS) is not None
    assert await is_upgraded(options)
    backups = [each for each in Path(options.directory).parent.iterdir() if each.name.startswith("format-")]
    assert len(backups) == 1


async def test_a_step_that_damages_the_store_is_found_before_the_file_is_replaced(options: StoreOptions) -> None:
    before = digest(options)

    def damage(env: lmdb.Environment, txn: Txn) -> None:
        txn.drop(env.open_db(b"objects", txn=txn, create=False), delete=False)

    with pytest.raises(UpgradeRefused, match="would be damaged"):
        upgrade(options, allowed=True, steps={EARLIER: damage})
    assert digest(options) == before


async def test_without_a_good_backup_nothing_is_upgraded(options: StoreOptions) -> None:
    done = upgrade(options, allowed=True, steps=STEPS)
    assert done is not None
    data = done.backup / filesystem.DATA_FILE
    # The file of the earlier version is put back, with the epoch that it had; then its backup is damaged.
    put_back(data, options)
    good = data.read_bytes()
    data.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    before = digest(options)
    with pytest.raises(UpgradeRefused, match="without a backup"):
        upgrade(options, allowed=True, steps=STEPS)
    assert digest(options) == before


async def test_a_store_in_use_is_refused(options: StoreOptions) -> None:
    owner = filesystem.own(Path(options.directory))
    with pytest.raises(StoreInUse):
        upgrade(options, allowed=True, steps=STEPS)
    os.close(owner)


async def test_a_start_upgrades_with_the_flag_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(upgrading.STEPS, EARLIER, mark)
    config = ShardConfig(root_directory=str(tmp_path / "root"), allow_any_filesystem=True)
    await prepare(config).close()
    set_meta(tmp_path / "root" / "store", "format", EARLIER)
    with pytest.raises(UpgradeRefused):
        prepare(config)
    await prepare(msgspec.structs.replace(config, allow_format_upgrade=True)).close()
    await prepare(config).close()
    assert [each.name for each in (tmp_path / "root").glob("format-*")]


async def test_a_replica_of_an_earlier_format_is_made_anew_and_its_revisions_are_gone(options: StoreOptions) -> None:
    replica = msgspec.structs.replace(options, replica=True)
    (before,) = opening.read_meta(Path(options.directory), options, "last")
    store = open_store(replica)
    with store.snapshot() as snapshot:
        assert snapshot.scan(Scope(CONFIGMAPS)) == []
    with pytest.raises(RevisionCompacted):
        store.cursor(Scope(CONFIGMAPS), before)
    (again,) = await create(store, "b")
    assert again > before
    store.cursor(Scope(CONFIGMAPS), again)
    await store.close()
    # The next start finds this format, and keeps it.
    store = open_store(replica)
    with store.snapshot() as snapshot:
        assert len(snapshot.scan(Scope(CONFIGMAPS))) == 1
    await store.close()


async def test_a_replica_is_left_to_the_byte_where_it_is_not_its_own_earlier_file(options: StoreOptions) -> None:
    replica, directory = msgspec.structs.replace(options, replica=True), Path(options.directory)
    before = digest(options)
    with pytest.raises(UnknownFormat, match=f"format {EARLIER}"):
        open_store(msgspec.structs.replace(replica, shard="another"))
    owner = filesystem.own(directory)
    with pytest.raises(StoreInUse):
        open_store(replica)
    os.close(owner)
    assert digest(options) == before
    set_meta(directory, "format", FORMAT_VERSION + 1)
    before = digest(options)
    with pytest.raises(UnknownFormat, match=f"format {FORMAT_VERSION + 1}"):
        open_store(replica)
    assert digest(options) == before
    set_meta(directory, "format", FORMAT_VERSION)
    with pytest.raises(WrongShard):
        open_store(msgspec.structs.replace(replica, shard="another"))


def open_front_proxy(root: str) -> LmdbStore:
    config = FrontProxyConfig(
        root_directory=root,
        allow_any_filesystem=True,
        proxy_client_cert_file="a",
        proxy_client_key_file="b",
        root_ca_file="c",
    )
    return front_proxy.prepare(config)


def open_cache_server(root: str) -> LmdbStore:
    return cache_server._open(CacheServerConfig(root_directory=root, allow_any_filesystem=True))


@pytest.mark.parametrize("opens", [open_front_proxy, open_cache_server])
async def test_front_proxies_and_cache_servers_start_on_a_store_of_an_earlier_format(
    tmp_path: Path, opens: Callable[[str], LmdbStore]
) -> None:
    await opens(str(tmp_path)).close()
    set_meta(tmp_path / "store", "format", EARLIER)
    await opens(str(tmp_path)).close()
    (found,) = opening.read_meta(tmp_path / "store", StoreOptions(directory=""), "format")
    assert found == FORMAT_VERSION
