"""A hundred backups of stores that are written to meanwhile: each is one moment of the history.

So is an earlier revision of it, which its log reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sys
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.backup_files import receive
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.restore import restore
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import prepare, store_options
from harness.data.random_writes import State, state_of, write_randomly
from harness.environment import python_environment

BACKUPS, TIMEOUT_S = 5, 120
KILLS = 40


def config(root: Path) -> ShardConfig:
    return ShardConfig(root_directory=str(root), allow_any_filesystem=True)


class History:
    """A store that is written to until it is stopped, and the state after each write."""

    def __init__(self, store: LmdbStore, seed: int) -> None:
        self._store, self._random = store, random.Random(seed)
        self.states: dict[int, State] = {}
        self.keys: set[ObjectKey] = set()
        self.ended = False

    async def write(self) -> None:
        state: State = {}
        while not self.ended:
            await write_randomly(self._store, state, self._random)
            with self._store.snapshot() as snapshot:
                self.states[snapshot.revision] = dict(state)
            self.keys |= state.keys()
            await asyncio.sleep(0.01)


async def start(command: str, root: Path, *flags: str) -> Process:
    words = ["-m", "atoll.cli", command, "--root-directory", str(root), "--allow-any-filesystem", *flags]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, env=python_environment(), stdout=pipe, stderr=pipe
    )


async def run(command: str, root: Path, *flags: str) -> None:
    process = await start(command, root, *flags)
    _, text = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == 0, text.decode()


def copy_keys(root: Path, other: Path) -> None:
    other.mkdir()
    shutil.copy(store_options(config(root)).key_file, store_options(config(other)).key_file)


async def restored_at(backup: Path, root: Path, history: History, revision: int | None = None) -> int:
    """Restore a backup, compare it with the history, and return the revision that it has then."""
    again = store_options(config(root))
    copy_keys(backup.parent, root)
    at = restore(again, lambda into: receive(backup, into), 1, revision).revision
    assert fsck(again) == []
    opened = open_store(again)
    assert state_of(opened, history.keys) == history.states[at]
    await opened.close()
    return at


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
async def test_each_backup_of_a_busy_store_is_one_moment_of_its_history(tmp_path: Path, seed: int) -> None:
    store = prepare(config(tmp_path))
    history = History(store, seed)
    writing = asyncio.create_task(history.write())
    for number in range(BACKUPS):
        before = len(history.states)
        await run("backup", tmp_path, "--to", str(tmp_path / f"backup-{number}"))
        assert len(history.states) > before, "the store was written to meanwhile"
    history.ended = True
    await writing
    await store.close()
    draw = random.Random(seed)
    for number in range(BACKUPS):
        backup = tmp_path / f"backup-{number}"
        at = await restored_at(backup, tmp_path / f"same-{number}", history)
        earlier = draw.choice([each for each in history.states if each <= at])
        assert await restored_at(backup, tmp_path / f"earlier-{number}", history, earlier) == earlier


@pytest.mark.long
async def test_a_restore_that_is_killed_left_one_of_both_stores_whole_and_is_run_again(tmp_path: Path) -> None:
    draw, store = random.Random(1), prepare(config(tmp_path))
    state: State = {}
    for _ in range(500):
        await write_randomly(store, state, draw)
    older = dict(state)
    await run("backup", tmp_path, "--to", str(tmp_path / "backup"))
    await write_randomly(store, state, draw)
    newer = dict(state)
    await store.close()
    flags = ("--from", str(tmp_path / "backup"), "--in-place")
    for _ in range(KILLS):
        process = await start("restore", tmp_path, *flags)
        await asyncio.sleep(draw.uniform(0.2, 2.0))
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        assert fsck(store_options(config(tmp_path))) == []
        again = prepare(config(tmp_path))
        assert state_of(again, older.keys() | newer.keys()) in (older, newer)
        await again.close()
    await run("restore", tmp_path, *flags)
    again = prepare(config(tmp_path))
    assert state_of(again, older.keys() | newer.keys()) == older
    await again.close()
