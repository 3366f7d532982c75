"""`atoll backup` beside a shard that is written to, and `atoll restore` in its place, with clients that go on."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll.machinery.meta import times
from harness.clients.api import Api, configmap
from harness.environment import python_environment
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path / "shard") as running:
        yield running


def numbered(api: Api) -> list[int]:
    names = (each["metadata"]["name"] for each in api.get(CONFIGMAPS).json["items"])
    return sorted(int(name.removeprefix("n-")) for name in names if name.startswith("n-"))


@contextmanager
def writing(shard: ShardProcess) -> Iterator[list[int]]:
    """Create ConfigMaps one after the other; yields the numbers of those that were acknowledged."""
    done: list[int] = []
    ended = threading.Event()

    def write() -> None:
        api = Api(shard, "root")
        for number in itertools.count():
            if ended.is_set():
                break
            api.post(CONFIGMAPS, configmap(f"n-{number}", {"filling": "x" * 2000}))
            done.append(number)
        api.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def ok(*words: str) -> str:
    result = atoll(*words)
    assert result.code == 0, result.stderr
    return result.stdout


@pytest.mark.long
def test_a_backup_of_a_busy_shard_is_one_moment_of_it_and_takes_its_place(shard: ShardProcess, tmp_path: Path) -> None:
    root, backup, keys = str(shard.root), tmp_path / "backup", tmp_path / "keys.json"
    api = Api(shard, "root")
    api.post(SECRETS, {"metadata": {"name": "sealed"}, "stringData": {"password": "canary-of-a-backup"}})
    with writing(shard) as done:
        before = len(done)
        ok("backup", "--root-directory", root, "--to", str(backup), "--keys-to", str(keys))
        archive = subprocess.run(
            [sys.executable, "-m", "atoll.cli", "backup", "--root-directory", root, "--to", "-"],
            env=python_environment(),
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        ).stdout
        after = len(done)
    assert b"canary-of-a-backup" not in archive
    assert keys.stat().st_mode & 0o777 == 0o600
    newest = api.post(CONFIGMAPS, configmap("newest")).json["metadata"]["resourceVersion"]
    page = api.get(f"{CONFIGMAPS}?limit=1").json["metadata"]["continue"]
    assert "stop it first" in atoll("restore", "--root-directory", root, "--from", str(backup), "--in-place").stderr
    shard.stop()
    ok("restore", "--root-directory", root, "--from", str(backup), "--in-place")
    shard.start()
    found = numbered(api)
    assert found == list(range(len(found))), "all that was acknowledged before the moment, and nothing after it"
    assert before <= len(found) <= after + 1
    api.get(f"{CONFIGMAPS}/newest", expect=404)
    assert api.get(f"{SECRETS}/sealed").json["data"]
    for question in (f"?watch=true&resourceVersion={newest}", f"?limit=1&continue={page}"):
        assert b'"reason":"Expired"' in api.send("GET", CONFIGMAPS + question).body
    assert api.post(CONFIGMAPS, configmap("later")).json["metadata"]["resourceVersion"] > newest
    shard.stop()
    (tmp_path / "backup.tar").write_bytes(archive)
    for source in (backup, tmp_path / "backup.tar"):
        other = str(tmp_path / f"of-{source.name}")
        refused = atoll("restore", "--root-directory", other, "--from", str(source))
        assert "sealing keys" in refused.stderr
        ok("restore", "--root-directory", other, "--from", str(source), "--keys-from", str(keys))
        assert ok("fsck", "--root-directory", other) == "the store is sound\n"
    api.close()


def test_a_store_goes_back_to_a_moment_before_a_mistake(shard: ShardProcess, tmp_path: Path) -> None:
    root, api = str(shard.root), Api(shard, "root")
    kept = api.post(CONFIGMAPS, configmap("kept", {"a": "1"})).json["metadata"]["resourceVersion"]
    moment = times.format_micro_time(*divmod(int(kept) * 1000, 1_000_000_000))
    api.patch(f"{CONFIGMAPS}/kept", {"data": {"a": "2"}})
    api.delete(f"{CONFIGMAPS}/kept")
    ok("backup", "--root-directory", root, "--to", str(tmp_path / "backup"))
    shard.stop()
    said = ok(
        "restore", "--root-directory", root, "--from", str(tmp_path / "backup"), "--in-place", "--to-time", moment
    )
    assert f"the store is at revision {kept}; " in said
    shard.start()
    assert api.get(f"{CONFIGMAPS}/kept").json["data"] == {"a": "1"}
    api.close()
