"""`atoll fsck` and `atoll rotate` on real stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.cli import main
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import SECRETS
from atoll.machinery.storage.sealing import ensure_key_file, key_id
from atoll.shard.config import ShardConfig
from atoll.standalone.start import store_options
from harness.stores import create, key


def opened(root: Path) -> LmdbStore:
    options = store_options(ShardConfig(root_directory=str(root), allow_any_filesystem=True))
    ensure_key_file(Path(options.key_file))
    return open_store(options)


async def filled(root: Path) -> None:
    store = opened(root)
    await create(store, "plain")
    await create(store, "one", "two", type=SECRETS)
    await store.close()


def run(command: str, root: Path, *flags: str) -> int:
    return main.run([command, "--root-directory", str(root), *flags])


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    await filled(tmp_path)
    return tmp_path


def test_a_sound_store_is_sound(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fsck", root) == 0
    assert capsys.readouterr().out == "the store is sound\n"


def test_a_flipped_bit_is_told_by_place_and_never_by_value(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "store" / "data.mdb"
    data = file.read_bytes().replace(b'"data":"plain"', b'"data":"plaim"')
    file.write_bytes(data)
    assert run("fsck", root) == 1
    out = capsys.readouterr().out
    assert "objects " in out and "checksum does not hold" in out and "plaim" not in out
    assert out.splitlines()[-1].endswith("problems")


@pytest.mark.parametrize("command", ["fsck", "rotate"])
def test_a_store_that_is_not_there_is_not_made(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, tmp_path / "none") == 1
    assert "there is no store in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "store" / "data.mdb").write_bytes(b"something else" * 4096)
    for command in ("fsck", "rotate"):
        assert run(command, root, *(["--allow-any-filesystem"] if command == "rotate" else [])) == 1
        assert "atoll: " in capsys.readouterr().err


def primary(root: Path) -> int:
    return int(json.loads((root / "sealing-keys.json").read_text())["primary"])


async def test_rotation_seals_every_secret_anew_and_loses_none(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    assert await asyncio.to_thread(run, "rotate", root, "--allow-any-filesystem") == 0
    assert "key 2 seals from now on; 2 objects were re-sealed" in capsys.readouterr().out
    assert primary(root) == 2
    store = opened(root)
    with store.snapshot() as snapshot:
        record = snapshot.get(key("one", type=SECRETS))
    stored = [entry.value for entry in store.tail(0) if entry.key.name == "one"]
    await store.close()
    assert record is not None and b'"one"' in record.value
    assert [key_id(value) for value in stored] == [2]
    assert await asyncio.to_thread(run, "fsck", root) == 0


async def test_a_running_store_is_not_rotated_and_no_key_is_added(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    store = opened(root)
    before = (root / "sealing-keys.json").read_bytes()
    assert await asyncio.to_thread(run, "rotate", root, "--allow-any-filesystem") == 1
    assert "is open in another process: stop it first; no key was added" in capsys.readouterr().err
    assert (root / "sealing-keys.json").read_bytes() == before
    await store.close()


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    assert main.run(["--help"]) == 0
    assert main.run(["nonsense"]) == 2
    assert main.run(["version"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("atoll ")
    assert main.run(["start", "--feature-gates", "Nonsense=true"]) == 1
    assert "unrecognized feature gate: Nonsense" in capsys.readouterr().err
