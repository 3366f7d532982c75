"""A data file that was cut off: refused with its name and size by whatever opens it, not ended by SIGBUS."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from atoll.machinery.storage.environment.filesystem import DATA_FILE
from atoll.machinery.storage.environment.truncation import TruncatedFile, require_whole
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import key, put, store_options
from harness.environment import python_environment

#: Each opens the store in its own way; a process of its own, as LMDB would end it.
OPEN = """
import sys
from atoll.machinery.storage.environment.opening import UnknownFormat, open_for_reading
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.offline import compact_file, mark_restored
from atoll.machinery.storage.options import StoreOptions
options = StoreOptions(directory=sys.argv[1], allow_any_filesystem=True)
ways = {
    "open": lambda: open_store(options),
    "read": lambda: open_for_reading(options),
    "fsck": lambda: fsck(options),
    "compact": lambda: compact_file(options, 1),
    "mark-restored": lambda: mark_restored(options, 1),
}
for name, way in ways.items():
    try:
        way()
    except UnknownFormat as error:
        print(name, error)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The data file of a sound store of about 700 KB."""
    directory = tmp_path_factory.mktemp("whole")

    async def fill() -> None:
        store = open_store(store_options(directory))
        await store.submit([put(key(f"object-{number}"), data="d" * 3000) for number in range(150)])
        await store.close()

    asyncio.run(fill())
    return (directory / DATA_FILE).read_bytes()


@pytest.mark.parametrize("size_bytes", [4096, 8192, 20_000, 100_000, 300_000])
def test_a_file_that_was_cut_off_is_refused_by_whatever_opens_it(tmp_path: Path, whole: bytes, size_bytes: int) -> None:
    file = tmp_path / DATA_FILE
    (tmp_path / "writer.lock").touch()
    file.write_bytes(whole[:size_bytes])
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        env=python_environment(),
        timeout=60,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    said = f"{file} is cut off at {size_bytes} bytes: restore the store from a backup"
    ways = ["open", "read", "fsck", "compact", "mark-restored"]
    assert done.stdout.splitlines() == [f"{way} {said}" for way in ways]
    assert file.read_bytes() == whole[:size_bytes]


def test_a_cut_is_found_wherever_it_is(tmp_path: Path, whole: bytes) -> None:
    file = tmp_path / DATA_FILE
    file.write_bytes(whole)
    require_whole(file)
    # The pages at the very end may be free ones.
    for size_bytes in range(len(whole) * 9 // 10, 4096, -4001):
        os.truncate(file, size_bytes)
        with pytest.raises(TruncatedFile):
            require_whole(file)


def test_a_sound_file_may_be_shorter_than_its_meta_page_says(tmp_path: Path) -> None:
    file = tmp_path / DATA_FILE
    env = lmdb.open(str(tmp_path), map_size=1 << 26, max_dbs=4)
    data = env.open_db(b"data")
    with env.begin(write=True, db=data) as txn:
        txn.put(b"kept", b"k" * 50_000)
    for number in range(2):
        with env.begin(write=True, db=data) as txn:
            txn.put(b"small", b"%d" % number)
            txn.put(b"passing", b"p" * 600_000)
            txn.delete(b"passing")
    pages = env.info()["last_pgno"] + 1
    env.close()
    size_bytes = file.stat().st_size
    assert size_bytes < pages * 4096
    require_whole(file)
    os.truncate(file, size_bytes - 4096)
    with pytest.raises(TruncatedFile):
        require_whole(file)
