"""`atoll fsck`, `atoll rotate`, `atoll mark-restored` and `atoll compact` on real stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from atoll.cli.atoll import main
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.process import file_watch
from atoll.machinery.storage import sealing
from atoll.machinery.storage.environment.filesystem import DATA_FILE
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance import resealing
from atoll.machinery.storage.maintenance.key_use import sealed_by_earlier
from atoll.machinery.storage.sealing import ensure_key_file, key_id
from atoll.shard.config import ShardConfig
from atoll.standalone import key_rotation
from atoll.standalone.key_rotation import reseal_on_change
from atoll.standalone.runner import store_options
from harness.clients.kubectl import Result
from harness.data.stores import create, key, put
from harness.servers.processes import atoll
from harness.waits import until


def opened(root: Path, **changes: int) -> LmdbStore:
    options = store_options(ShardConfig(root_directory=str(root), allow_any_filesystem=True))
    options = msgspec.structs.replace(options, **changes)
    ensure_key_file(Path(options.key_file))
    return open_store(options)


async def filled(root: Path) -> None:
    store = opened(root)
    await create(store, "plain")
    await create(store, "one", "two", type=SECRETS)
    await store.close()


async def run(command: str, root: Path, *flags: str) -> Result:
    """Run a command in its own process, as it sets up logging of the whole process."""
    return await asyncio.to_thread(atoll, command, "--root-directory", str(root), *flags)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def fsck(root: Path) -> int:
    return main.run(["fsck", "--root-directory", str(root)])


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    await filled(tmp_path)
    return tmp_path


def test_a_sound_store_is_sound(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck(root) == 0
    assert capsys.readouterr().out == "the store is sound\n"


def test_a_flipped_bit_is_told_by_place_and_never_by_value(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "store" / "data.mdb"
    data = file.read_bytes().replace(b'"data":"plain"', b'"data":"plaim"')
    file.write_bytes(data)
    assert fsck(root) == 1
    out = capsys.readouterr().out
    assert "objects " in out and "checksum mismatch" in out and "plaim" not in out
    assert out.splitlines()[-1].endswith("problems")


@pytest.mark.parametrize("command", ["fsck", "rotate"])
async def test_a_store_that_is_not_there_is_not_made(command: str, tmp_path: Path) -> None:
    ran = await run(command, tmp_path / "none")
    assert (ran.code, "there is no store in" in ran.stderr) == (1, True)
    assert names(tmp_path) == []


async def test_a_file_that_is_no_store_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "store" / "data.mdb"
    file.write_bytes(b"something else" * 4096)
    assert fsck(root) == 1
    assert capsys.readouterr().err.startswith("atoll: the store cannot be read")
    ran = await run("rotate", root, "--allow-any-filesystem")
    assert (ran.code, "is damaged or no store" in ran.stderr) == (1, True)
    assert primary(root) == 1
    assert file.read_bytes() == b"something else" * 4096


def key_ids(root: Path) -> list[int]:
    return [each["id"] for each in json.loads((root / "sealing-keys.json").read_text())["keys"]]


def primary(root: Path) -> int:
    return int(json.loads((root / "sealing-keys.json").read_text())["primary"])


async def test_rotation_seals_every_secret_anew_and_loses_none(root: Path) -> None:
    ran = await run("rotate", root, "--allow-any-filesystem")
    assert (ran.code, ran.stderr) == (0, "")
    assert "key 2 seals from now on; 2 objects were re-sealed" in ran.stdout
    assert primary(root) == 2
    store = opened(root)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("one", type=SECRETS))
    stored = [entry.value for entry in store.tail(0) if entry.key.name == "one"]
    await store.close()
    assert record is not None and b'"one"' in record.value
    assert [key_id(value) for value in stored] == [2]
    assert fsck(root) == 0


def sealed_with(store: LmdbStore) -> list[int]:
    return sorted(key_id(entry.value) for entry in store.tail(0) if entry.key.type == SECRETS and entry.value)


async def test_a_running_shard_seals_all_anew_and_a_rotation_that_was_cut_off_is_completed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resealing, "_STEP_ROWS", 1)
    monkeypatch.setattr(file_watch, "CHECK_EVERY_S", 0.01)
    options = store_options(ShardConfig(root_directory=str(root), allow_any_filesystem=True))
    store = opened(root)
    key_file = Path(options.key_file)
    assert sealing.add_key(key_file) == 2
    monkeypatch.setattr(key_rotation, "PAUSE_S", 3600.0)
    first = asyncio.create_task(reseal_on_change(store, key_file))

    async def begun() -> bool:
        return sealed_with(store) == [1, 2]

    await until(begun, "the first step")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await store.close()
    monkeypatch.setattr(key_rotation, "PAUSE_S", 0.0)
    store = opened(root)
    second = asyncio.create_task(reseal_on_change(store, key_file))

    async def completed() -> bool:
        return sealed_with(store) == [2, 2]

    await until(completed, "the rest, after a start")
    ran = await run("rotate", root, "--allow-any-filesystem")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("key 3 seals from now on\nall objects are sealed with it\n")
    await create(store, "three", type=SECRETS)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("one", type=SECRETS))
    assert record is not None and b'"one"' in record.value
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await store.close()
    assert sealed_by_earlier(options) == 0
    store = opened(root)
    assert (sealed_with(store), key_ids(root)) == ([3, 3, 3], [1, 2, 3])
    await store.close()
    assert fsck(root) == 0


async def test_a_key_that_seals_log_entries_stays_and_the_primary_key_cannot_be_dropped(root: Path) -> None:
    store = opened(root)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("one", type=SECRETS))
    assert record is not None
    await store.submit([put(key("one", type=SECRETS), expected=record.revision)])
    await store.close()
    assert (await run("rotate", root, "--allow-any-filesystem")).code == 0
    ran = await run("rotate", root, "--allow-any-filesystem", "--drop", "1")
    assert (ran.code, ran.stdout) == (1, "")
    assert "key 1 seals 0 objects and 1 log entries; no key was dropped" in ran.stderr
    for number, reason in ((2, "key 2 is the primary key"), (3, "there is no key 3")):
        ran = await run("rotate", root, "--allow-any-filesystem", "--drop", str(number))
        assert (ran.code, reason in ran.stderr) == (1, True), ran.stderr
    assert key_ids(root) == [1, 2]


async def test_a_key_that_seals_nothing_is_dropped_and_every_secret_can_be_read(root: Path) -> None:
    ran = await run("rotate", root, "--allow-any-filesystem", "--drop", "1")
    assert (ran.code, "key 1 is the primary key" in ran.stderr) == (1, True)
    assert (await run("rotate", root, "--allow-any-filesystem")).code == 0
    ran = await run("rotate", root, "--allow-any-filesystem", "--drop", "1")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("key 1 is dropped")
    assert key_ids(root) == [2]
    store = opened(root)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("two", type=SECRETS))
    await store.close()
    assert record is not None and b'"two"' in record.value
    assert fsck(root) == 0


async def test_a_key_of_a_running_shard_is_dropped_once_it_seals_nothing(root: Path) -> None:
    key_file = root / "sealing-keys.json"
    store = opened(root, log_retention_s=0)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("one", type=SECRETS))
    assert record is not None
    await store.submit([put(key("one", type=SECRETS), expected=record.revision)])

    async def dropped(number: int) -> Result:
        return await run("rotate", root, "--allow-any-filesystem", "--drop", str(number))

    assert sealing.add_key(key_file) == 2
    ran = await dropped(1)
    assert (ran.code, "the shard does not seal with key 2 yet" in ran.stderr) == (1, True), ran.stderr
    assert await store.reseal() == 2
    await store.close()
    store = opened(root, log_retention_s=0)
    ran = await dropped(1)
    assert "the shard does not seal with key 2 yet" in ran.stderr, "what an earlier process said does not count"
    assert await store.reseal() == 0
    ran = await dropped(1)
    assert (ran.code, "key 1 seals 0 objects and 1 log entries; no key was dropped" in ran.stderr) == (1, True)
    assert (await dropped(2)).stderr.endswith("key 2 is the primary key\n")
    assert await store.compact() > 0
    ran = await dropped(1)
    assert (ran.code, ran.stderr, key_ids(root)) == (0, "", [2])
    await create(store, "three", type=SECRETS)
    await store.close()
    store = opened(root)
    with store.snapshot() as snapshot:
        found = [snapshot.get(key(name, type=SECRETS)) for name in ("one", "two", "three")]
    assert all(found)
    assert (await dropped(1)).stderr.endswith("there is no key 1\n")
    await store.close()
    assert fsck(root) == 0


async def test_a_gate_that_does_not_exist_refuses_to_start(tmp_path: Path) -> None:
    ran = await run("start", tmp_path / "none", "--feature-gates", "Nonsense=true")
    assert (ran.code, ran.stderr) == (1, "atoll: unrecognized feature gate: Nonsense\n")
    assert names(tmp_path) == []


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    assert main.run(["--help"]) == 0
    assert main.run(["nonsense"]) == 2
    assert main.run(["version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("atoll ")


async def lineage(root: Path) -> str:
    store = opened(root)
    try:
        return store.identity.lineage
    finally:
        await store.close()


async def test_a_store_marked_as_restored_has_a_new_lineage_and_its_objects(root: Path) -> None:
    before = await lineage(root)
    ran = await run("mark-restored", root, "--allow-any-filesystem")
    assert (ran.code, ran.stdout) == (0, "the store has a new lineage\n"), ran.stderr
    assert await lineage(root) != before
    assert fsck(root) == 0


async def test_a_compacted_store_is_sound_and_not_larger(root: Path) -> None:
    file = root / "store" / DATA_FILE
    before = file.stat().st_size
    ran = await run("compact", root, "--allow-any-filesystem")
    assert (ran.code, ran.stdout) == (0, "the file holds no free pages\n"), ran.stderr
    assert file.stat().st_size <= before
    assert fsck(root) == 0


@pytest.mark.parametrize("command", ["mark-restored", "compact"])
async def test_the_store_of_a_running_shard_is_not_changed(root: Path, command: str) -> None:
    store = opened(root)
    try:
        ran = await run(command, root, "--allow-any-filesystem")
    finally:
        await store.close()
    assert (ran.code, "stop it first; nothing was changed" in ran.stderr) == (1, True), ran.stderr


@pytest.mark.parametrize("command", ["mark-restored", "compact"])
async def test_a_directory_without_a_store_is_refused_and_stays_empty(tmp_path: Path, command: str) -> None:
    ran = await run(command, tmp_path / "none", "--allow-any-filesystem")
    assert (ran.code, "there is no store in" in ran.stderr) == (1, True)
    assert not (tmp_path / "none").exists()
