"""Opening: one owner, a known format, a local disk, an identity that survives."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
import sys
from pathlib import Path

import lmdb
import msgspec
import pytest

from atoll.machinery.storage.contract import RevisionCompacted, Scope
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.filesystem import StoreInUse, UnsupportedFileSystem
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.offline import compact_file, mark_restored
from harness.data.stores import HandClock, create, key, put, store_options
from harness.environment import python_environment

OPEN = """
import sys
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.environment.filesystem import StoreInUse
try:
    open_store(StoreOptions(directory=sys.argv[1], allow_any_filesystem=True))
except StoreInUse as error:
    print("refused", error)
"""


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / filesystem.DATA_FILE).read_bytes()).hexdigest()


def write_meta(directory: Path, name: str, value: object) -> None:
    env = lmdb.open(str(directory), map_size=1 << 30, max_dbs=32)
    meta = env.open_db(b"meta")
    with env.begin(write=True, db=meta) as txn:
        txn.put(name.encode(), msgspec.msgpack.encode(value))
    env.close()


def descriptors(file: Path) -> list[int]:
    """Those by which this process has a file open."""
    found, wanted = [], file.stat()
    for descriptor in (int(each.name) for each in Path("/dev/fd").iterdir()):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), wanted):
                found.append(descriptor)
    return found


async def test_programs_that_a_process_starts_inherit_no_descriptor_of_its_store(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await create(store, "a")
    found = [os.get_inheritable(each) for each in descriptors(tmp_path / filesystem.DATA_FILE)]
    await store.close()
    assert found and not any(found)


async def test_a_second_opener_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    with pytest.raises(StoreInUse, match="another process"):
        open_store(store_options(tmp_path))
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OPEN, str(tmp_path)), stdout=asyncio.subprocess.PIPE, env=python_environment()
    )
    said, _ = await other.communicate()
    assert b"refused" in said
    await create(store, "a")
    await store.close()


async def test_directory_and_files_are_private(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "new"))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert set(modes.values()) == {0o600}
    assert {filesystem.DATA_FILE, "lock.mdb"} < set(modes)
    await store.close()


async def test_an_unknown_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    await open_store(store_options(tmp_path)).close()
    write_meta(tmp_path, "format", 99)
    before = digest(tmp_path)
    with pytest.raises(UnknownFormat, match="format 99"):
        open_store(store_options(tmp_path))
    assert digest(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"not a store at all" * 1000, b"\0" * 8192])
def test_a_file_that_is_no_store_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / filesystem.DATA_FILE).write_bytes(content)
    with pytest.raises(UnknownFormat):
        open_store(store_options(tmp_path))
    assert (tmp_path / filesystem.DATA_FILE).read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [filesystem.DATA_FILE]


def test_a_foreign_lmdb_file_is_refused(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path), max_dbs=4)
    with env.begin(write=True, db=env.open_db(b"other")) as txn:
        txn.put(b"a", b"b")
    env.close()
    before = digest(tmp_path)
    with pytest.raises(UnknownFormat):
        open_store(store_options(tmp_path))
    assert digest(tmp_path) == before


async def test_an_opening_that_fails_half_way_holds_nothing(tmp_path: Path) -> None:
    await open_store(store_options(tmp_path)).close()
    write_meta(tmp_path, "sealed", [["too short"]])
    with pytest.raises(TypeError):
        open_store(store_options(tmp_path))
    write_meta(tmp_path, "sealed", [])
    await open_store(store_options(tmp_path)).close()


async def test_the_directory_of_another_shard_is_refused(tmp_path: Path) -> None:
    await open_store(store_options(tmp_path, shard="east")).close()
    with pytest.raises(WrongShard, match="east"):
        open_store(store_options(tmp_path, shard="west"))


def test_what_a_crash_left_of_a_first_creation_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / filesystem.DATA_FILE).write_bytes(b"half")
    store = open_store(store_options(tmp_path))
    assert not (tmp_path / "new").exists()
    store._environment.close()


async def test_identity_stays_and_the_epoch_rises_with_every_opening(tmp_path: Path) -> None:
    time = HandClock()
    identities = []
    for _ in range(3):
        store = open_store(store_options(tmp_path), clock=time.clock())
        identities.append(store.identity)
        await store.close()
    assert len({(each.shard_uid, each.lineage) for each in identities}) == 1
    assert [each.epoch for each in identities] == [int(time.wall_s) + index for index in range(3)]


async def test_revisions_go_on_above_the_last_one_after_a_restart(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path), clock=time.clock())
    [first] = await create(store, "a")
    await store.close()
    time.wall_s -= 86400
    store = open_store(store_options(tmp_path), clock=HandClock(time.wall_s).clock())
    [second] = await create(store, "b")
    assert second == first + 1
    assert store.revisions.behind_us > 0
    await store.close()


async def test_a_restored_store_has_a_new_lineage_and_answers_nothing_of_the_void(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path), clock=time.clock())
    [kept] = await create(store, "a")
    lineage = store.identity.lineage
    await store.close()
    time.pass_time(60)
    mark_restored(store_options(tmp_path), time.clock().now_us())
    store = open_store(store_options(tmp_path), clock=HandClock(time.wall_s - 30).clock())
    assert store.identity.lineage != lineage
    scope = Scope(key("a").type, "root")
    [after] = await create(store, "b")
    assert after >= int(time.wall_s * 1_000_000)
    lost = kept + 1_000_000
    for read in (lambda: store.page(scope, at=lost), lambda: store.cursor(scope, lost), lambda: store.tail(lost)):
        with pytest.raises(RevisionCompacted) as raised:
            read()
        assert raised.value.oldest == after
    assert len(store.page(scope, at=kept).values) == 1
    assert [change.revision for change in store.cursor(scope, kept).read()] == [after]
    await store.close()
    assert fsck(store_options(tmp_path)) == []


async def test_a_compacting_copy_keeps_everything_but_free_pages(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    for index in range(50):
        [revision] = await store.submit([put(key(f"n{index}"), data="x" * 50_000)])
    before = store.identity
    await store.close()
    size_bytes = (tmp_path / filesystem.DATA_FILE).stat().st_size
    compact_file(store_options(tmp_path), 1)
    assert (tmp_path / filesystem.DATA_FILE).stat().st_size < size_bytes
    assert fsck(store_options(tmp_path)) == []
    store = open_store(store_options(tmp_path))
    with store.snapshot() as snapshot:
        assert snapshot.revision_of(key("n49")) == revision
    assert store.identity.shard_uid == before.shard_uid
    await store.close()


MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/x /mnt/net nfs4 rw 0 0
tmpfs /mnt/with\040space tmpfs rw 0 0
/dev/sdb1 /mnt/net/disk xfs rw 0 0
host /mnt/sshfs fuse.sshfs rw 0 0
""".lstrip()


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/var/lib/atoll", False),
        ("/mnt/net/a", True),
        ("/mnt/network", False),
        ("/mnt/net/disk/a", False),
        ("/mnt/with space/a", True),
        ("/mnt/sshfs/a/b", True),
    ],
)
def test_only_local_disks_are_accepted(tmp_path: Path, path: str, refused: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    if refused:
        with pytest.raises(UnsupportedFileSystem):
            filesystem.require_local(Path(path), mounts)
    else:
        filesystem.require_local(Path(path), mounts)


def test_a_temporary_file_system_is_refused_by_default() -> None:
    shared_memory = Path("/dev/shm")
    if filesystem.file_system_of(shared_memory) != "tmpfs":
        pytest.skip("no tmpfs here")
    options = msgspec.structs.replace(store_options(shared_memory / "atoll-test"), allow_any_filesystem=False)
    with pytest.raises(UnsupportedFileSystem, match="tmpfs"):
        open_store(options)
    assert not (shared_memory / "atoll-test").exists()


async def test_snapshots_that_somebody_keeps_after_their_end_take_no_place_among_the_readers(tmp_path: Path) -> None:
    store, kept = open_store(store_options(tmp_path)), []
    await create(store, "a")
    # Twice as many as there are places.
    for _ in range(1024):
        with store.snapshot() as snapshot:
            assert snapshot.revision
            assert snapshot.replicas.get(key("a")) is None
            kept.append(snapshot)
    await store.close()
