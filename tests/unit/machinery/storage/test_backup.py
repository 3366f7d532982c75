"""Backups of a store, and stores restored from them, at the backup's revision and at earlier ones."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import RevisionCompacted, Scope
from atoll.machinery.storage.environment.filesystem import StoreInUse
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.backup import Manifest, back_up
from atoll.machinery.storage.maintenance.backup_files import (
    MANIFEST,
    ArchiveTarget,
    BadBackup,
    DirectoryTarget,
    receive,
)
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.restore import Restored, StoreExists, listing_of, restore
from atoll.machinery.storage.maintenance.rollback import NotRetained
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import KeyFileInvalid
from harness.data.random_writes import SECRETS, State, state_of, write_randomly
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, key, listed, put, store_options

HERE = Scope(CONFIGMAPS, "root")


@pytest.fixture
def time() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(tmp_path: Path, time: HandClock) -> LmdbStore:
    """A store with two objects, closed."""
    store = open_store(store_options(tmp_path / "store"), clock=time.clock())
    await create(store, "a", "b")
    await store.close()
    return store


def backed_up(options: StoreOptions, directory: Path) -> Manifest:
    target = DirectoryTarget(directory)
    manifest = back_up(options, target.write, 1 << 40)
    target.finish(manifest)
    return manifest


def restored(
    backup: Path, options: StoreOptions, time: HandClock, revision: int | None = None, **how: bool
) -> Restored:
    now_us = int(time.wall_s * 1_000_000)
    return restore(options, lambda into: receive(backup, into), now_us, revision, **how)


def digest(options: StoreOptions) -> str:
    return hashlib.sha256((Path(options.directory) / "data.mdb").read_bytes()).hexdigest()


async def test_a_restored_store_has_the_objects_and_a_lineage_of_its_own(
    store: LmdbStore, tmp_path: Path, time: HandClock
) -> None:
    manifest = backed_up(store.options, tmp_path / "backup")
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "backup").iterdir()} <= {0o600, 0o644}
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    time.pass_time(60)
    options = store_options(tmp_path / "new")
    result = restored(tmp_path / "backup", options, time)
    assert (result.revision, result.undone, result.replaced) == (manifest.store.revision, 0, None)
    assert fsck(options) == []
    again = open_store(options, clock=time.clock())
    assert len(listed(again, HERE)) == 2
    identity = again.identity
    assert identity.shard_uid == manifest.store.shard_uid
    assert identity.lineage != manifest.store.lineage
    assert identity.epoch > manifest.store.epoch
    with pytest.raises(RevisionCompacted):
        again.page(HERE, at=manifest.store.revision + 1)
    [later] = await create(again, "c")
    assert later >= int(time.wall_s * 1_000_000)
    await again.close()


async def test_an_archive_goes_through_a_pipe(store: LmdbStore, tmp_path: Path, time: HandClock) -> None:
    stream = io.BytesIO()
    target = ArchiveTarget(stream)
    target.finish(back_up(store.options, target.write, 1 << 40))
    options = store_options(tmp_path / "new")
    restore(options, lambda into: receive(io.BytesIO(stream.getvalue()), into), int(time.wall_s * 1e6))
    again = open_store(options, clock=time.clock())
    assert len(listed(again, HERE)) == 2
    await again.close()
    (tmp_path / "cut.tar").write_bytes(stream.getvalue()[:-15_000])
    with pytest.raises(BadBackup):
        restored(tmp_path / "cut.tar", store_options(tmp_path / "other"), time)
    assert not (tmp_path / "other" / "data.mdb").exists()


async def test_a_store_is_replaced_only_when_asked_and_is_kept(
    store: LmdbStore, tmp_path: Path, time: HandClock
) -> None:
    backed_up(store.options, tmp_path / "backup")
    time.pass_time(3600)
    newer = open_store(store.options, clock=time.clock())
    [newest] = await create(newer, "newest")
    with pytest.raises(StoreInUse):
        restored(tmp_path / "backup", store.options, time, in_place=True)
    epoch = newer.identity.epoch
    await newer.close()
    before = digest(store.options)
    with pytest.raises(StoreExists):
        restored(tmp_path / "backup", store.options, time)
    assert digest(store.options) == before
    # The clock went back since.
    time.pass_time(-3000)
    result = restored(tmp_path / "backup", store.options, time, in_place=True)
    assert result.replaced is not None
    assert hashlib.sha256(result.replaced.read_bytes()).hexdigest() == before
    [line] = listing_of(result.replaced).read_text().splitlines()
    names = {"cluster": "root", "group": "", "resource": "configmaps", "namespace": "default", "name": "newest"}
    assert (result.newer, json.loads(line)) == (1, {**names, "revision": newest, "deleted": False})
    again = open_store(store.options, clock=time.clock())
    assert len(listed(again, HERE)) == 2
    assert again.identity.epoch > epoch
    assert (await create(again, "later"))[0] > newest
    with pytest.raises(RevisionCompacted):
        again.page(HERE, at=newest)
    await again.close()


async def test_what_was_newer_is_listed_once_each_with_what_was_deleted_and_no_value(
    store: LmdbStore, tmp_path: Path, time: HandClock
) -> None:
    sealing.ensure_key_file(tmp_path / "keys")
    options = store_options(tmp_path / "store", sealed_types=(SECRETS,), key_file=str(tmp_path / "keys"))
    backed_up(options, tmp_path / "backup")
    newer = open_store(options, clock=time.clock())
    long_name = key("s" * 253, type=SECRETS)
    with newer.snapshot() as snapshot:
        revision = snapshot.revision_of(key("a"))
    await newer.submit([delete(key("a"), revision)])
    for number in range(3):
        with newer.snapshot() as snapshot:
            last = snapshot.revision_of(long_name)
        await newer.submit([put(long_name, expected=last, data=f"canary-{number}")])
    await newer.close()
    result = restored(tmp_path / "backup", options, time, in_place=True)
    assert result.replaced is not None
    listing = listing_of(result.replaced)
    assert listing.stat().st_mode & 0o777 == 0o600
    found = {
        (line["resource"], line["name"]): line["deleted"] for line in map(json.loads, listing.read_text().splitlines())
    }
    assert found == {("configmaps", "a"): True, ("secrets", "s" * 253): False}
    assert "canary" not in listing.read_text()


async def test_a_store_that_cannot_be_read_is_replaced_without_a_list(
    store: LmdbStore, tmp_path: Path, time: HandClock
) -> None:
    backed_up(store.options, tmp_path / "backup")
    data = tmp_path / "store" / "data.mdb"
    data.write_bytes(b"\0" * 65536)
    result = restored(tmp_path / "backup", store.options, time, in_place=True)
    assert result.replaced is not None
    assert (result.newer, listing_of(result.replaced).exists()) == (None, False)
    again = open_store(store.options, clock=time.clock())
    assert len(listed(again, HERE)) == 2
    await again.close()


# --- earlier revisions


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 100))])
async def test_each_retained_revision_can_be_gone_back_to(tmp_path: Path, time: HandClock, seed: int) -> None:
    draw, key_file = random.Random(seed), tmp_path / "keys"
    sealing.ensure_key_file(key_file)
    settings: dict[str, object] = {"sealed_types": (SECRETS,), "key_file": str(key_file), "log_retention_s": 100}
    options = store_options(tmp_path / "store", **settings)
    store = open_store(options, clock=time.clock())
    state: State = {}
    states: dict[int, State] = {}
    for number in range(80):
        await write_randomly(store, state, draw)
        time.pass_time(draw.choice((0, 1)))
        with store.snapshot() as snapshot:
            states[snapshot.revision] = dict(state)
        if number == 40:
            time.pass_time(90)
        if number == 60:
            await store.compact()
    compacted, every = store.compacted, {each for found in states.values() for each in found}
    await store.close()
    backed_up(options, tmp_path / "backup")
    assert compacted
    for revision in draw.sample(sorted(each for each in states if each >= compacted), 5):
        again = store_options(tmp_path / f"at-{revision}", **settings)
        restored(tmp_path / "backup", again, time, revision)
        assert fsck(again) == []
        opened = open_store(again, clock=time.clock())
        assert state_of(opened, every) == states[revision]
        await write_randomly(opened, states[revision], draw)
        await opened.close()
        assert fsck(again) == []
    with pytest.raises(NotRetained):
        restored(tmp_path / "backup", store_options(tmp_path / "old", **settings), time, compacted - 1)
    with pytest.raises(NotRetained):
        restored(tmp_path / "backup", store_options(tmp_path / "late", **settings), time, max(states) + 1)


# --- what is no backup


def _torn(backup: Path) -> None:
    data = backup / "data.mdb"
    data.write_bytes(data.read_bytes()[:-4096])


def _flipped(backup: Path) -> None:
    data = bytearray((backup / "data.mdb").read_bytes())
    data[len(data) // 2] ^= 1
    (backup / "data.mdb").write_bytes(data)


def _unfinished(backup: Path) -> None:
    (backup / MANIFEST).unlink()


def _changed(**members: object) -> Callable[[Path], None]:
    def change(backup: Path) -> None:
        found = json.loads((backup / MANIFEST).read_text())
        for name, value in members.items():
            (found if name in found else found["store"])[name] = value
        (backup / MANIFEST).write_text(json.dumps(found))

    return change


def _foreign(backup: Path) -> None:
    """Another file, with a manifest that describes it."""
    data = random.Random(1).randbytes(64 * 1024)
    (backup / "data.mdb").write_bytes(data)
    _changed(sizeBytes=len(data), sha256=hashlib.sha256(data).hexdigest())(backup)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_torn, BadBackup),
        (_flipped, BadBackup),
        (_unfinished, BadBackup),
        (_foreign, BadBackup),
        (_changed(revision=5), BadBackup),
        (_changed(lineage="other"), BadBackup),
        (_changed(format=2), BadBackup),
        (_changed(storeFormat=2), UnknownFormat),
        (_changed(shard="east"), WrongShard),
        (_changed(sealingKeys=[7]), KeyFileInvalid),
        (lambda backup: (backup / MANIFEST).write_text("{"), BadBackup),
        (shutil.rmtree, OSError),
    ],
)
def test_what_is_no_whole_backup_of_this_shard_changes_nothing(
    store: LmdbStore, tmp_path: Path, time: HandClock, spoil: Callable[[Path], None], error: type[Exception]
) -> None:
    backed_up(store.options, tmp_path / "backup")
    before = digest(store.options)
    spoil(tmp_path / "backup")
    sealing.ensure_key_file(tmp_path / "keys")
    options = store_options(tmp_path / "store", key_file=str(tmp_path / "keys"))
    with pytest.raises(error):
        restored(tmp_path / "backup", options, time, in_place=True)
    assert digest(store.options) == before
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"data.mdb", "lock.mdb", "writer.lock"}


@pytest.mark.parametrize(
    "step", ["receive", "fsck", "roll_back", "Rebuild", "begin_lineage", "keep_replaced", "write_newer", "move_in"]
)
async def test_a_restore_that_ends_at_any_step_left_the_store_and_is_begun_again(
    store: LmdbStore, tmp_path: Path, time: HandClock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    manifest = backed_up(store.options, tmp_path / "backup")
    newer = open_store(store.options, clock=time.clock())
    await create(newer, "newest")
    await newer.close()
    before, first = digest(store.options), manifest.store.revision - 1

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as until_then:
        until_then.setattr(f"{__name__ if step == 'receive' else restore.__module__}.{step}", killed)
        with pytest.raises(Killed):
            restored(tmp_path / "backup", store.options, time, first, in_place=True)
    assert digest(store.options) == before
    assert restored(tmp_path / "backup", store.options, time, first, in_place=True).undone == 1
    again = open_store(store.options, clock=time.clock())
    assert len(listed(again, HERE)) == 1
    await again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


async def test_it_goes_in_small_pieces_and_little_of_it_waits_for_the_disk(
    tmp_path: Path, time: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_options(tmp_path / "store"), clock=time.clock())
    await store.submit([put(key("large"), data="x" * 1_000_000)])
    await store.close()
    target, synced, pieces = DirectoryTarget(tmp_path / "backup"), [0], []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))

    def write(piece: bytes) -> None:
        pieces.append(len(piece))
        target.write(piece)

    manifest = back_up(store.options, write, 1 << 40)
    target.finish(manifest)
    assert sum(pieces) == manifest.size_bytes > 1_000_000
    assert max(pieces) <= 64 * 1024
    synced.append(manifest.size_bytes)
    assert max(after - before for before, after in itertools.pairwise(synced)) <= 128 * 1024


def test_a_disk_that_fills_up_leaves_no_backup(
    store: LmdbStore, tmp_path: Path, time: HandClock, small_disk: Path
) -> None:
    before = digest(store.options)
    with pytest.raises(OSError, match="No space left"):
        backed_up(store.options, small_disk / "backup")
    assert digest(store.options) == before
    with pytest.raises(BadBackup, match="no backup was finished"):
        restored(small_disk / "backup", store_options(tmp_path / "new"), time)
    backed_up(store.options, tmp_path / "backup")
    restored(tmp_path / "backup", store_options(tmp_path / "new"), time)


def test_a_backup_is_not_written_over_another(store: LmdbStore, tmp_path: Path) -> None:
    backed_up(store.options, tmp_path / "backup")
    with pytest.raises(FileExistsError):
        DirectoryTarget(tmp_path / "backup")
