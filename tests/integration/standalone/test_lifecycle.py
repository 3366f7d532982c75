"""Two starts at once, rejected directories, and shutdown on SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import lmdb
import msgspec
import pytest

from atoll.machinery.storage.environment.filesystem import file_system_of
from harness.clients.api import Api, configmap, eventually
from harness.servers.processes import atoll, children, is_alive, tree
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
ANYWHERE = ("--secure-port", "0", "--allow-any-filesystem", "true")
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def stopped(tmp_path: Path) -> ShardProcess:
    """A root directory that was served once."""
    with ShardProcess(tmp_path) as shard:
        pass
    return shard


def test_on_sigterm_streams_end_requests_finish_and_the_exit_code_is_0(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        api, pid = Api(shard, "root"), shard.pid
        body = json.dumps(configmap("in-flight")).encode()
        head = f"POST /clusters/root{CONFIGMAPS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {api.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with contextlib.closing(api.open()) as watch, _connection(shard) as creating:
            watch.request("GET", f"/clusters/root{CONFIGMAPS}?watch=1", headers=api.headers())
            stream = watch.getresponse()
            creating.sendall(head.encode() + body[:20])
            helpers = eventually(lambda: children(pid), "the NATS server runs")
            os.kill(pid, signal.SIGTERM)
            # http.client raises IncompleteRead unless the last chunk came: the watch was ended, not cut.
            stream.read()
            creating.sendall(body[20:])
            assert creating.recv(100).startswith(b"HTTP/1.1 201 ")
        assert shard.stop() == 0
        assert (len(helpers), [one for one in helpers if is_alive(one)]) == (1, [])
        shard.start()
        Api(shard, "root").get(f"{CONFIGMAPS}/in-flight")


def _connection(shard: ShardProcess) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", urlsplit(shard.url).port or 0), timeout=60)
    return shard.tls().wrap_socket(raw, server_hostname="localhost")


def test_of_two_at_once_the_second_says_so_and_touches_nothing(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        eventually((shard.root / "stream.json").exists, "stream.json")
        names = ("admin.kubeconfig", ".admin-token-store", "sealing-keys.json", "sa.key", "secure-port", "stream.json")
        before = {name: (shard.root / name).stat().st_mtime_ns for name in names}
        second = atoll("start", "--root-directory", str(shard.root), *ANYWHERE)
        assert (second.code, "is open in another process" in second.stderr, second.stdout) == (1, True, "")
        assert "Traceback" not in second.stderr
        assert {name: (shard.root / name).stat().st_mtime_ns for name in names} == before
        assert shard.get("/readyz")[0] == 200


@pytest.mark.long
def test_of_two_on_an_empty_directory_one_serves_and_its_keys_stay(tmp_path: Path) -> None:
    both = [ShardProcess(tmp_path), ShardProcess(tmp_path)]
    both[1].stdout_path, both[1].stderr_path = tmp_path / "second.out", tmp_path / "second.err"
    threads = [threading.Thread(target=shard.spawn) for shard in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        eventually(lambda: not all(shard.running for shard in both), "one leaves", timeout_s=60)
        one, other = sorted(both, key=lambda shard: not shard.running)
        assert (one.running, other.stop()) == (True, 1)
        eventually(lambda: "atoll serves" in one.stdout_path.read_text(), "the other serves", timeout_s=60)
    finally:
        for shard in both:
            shard.stop()
    with ShardProcess(tmp_path) as again:
        # The identity secrets of the first start are sealed: they open only with the key they were sealed with.
        path = "/api/v1/namespaces/kcp-system/secrets"
        assert Api(again, "root", "shard-admin").get(path).json["items"]


@pytest.mark.long
def test_a_store_of_another_format_is_refused_and_left_as_it_was(stopped: ShardProcess) -> None:
    store = stopped.root / "store"
    with lmdb.open(str(store), max_dbs=32) as env, env.begin(write=True) as txn:
        txn.put(b"format", msgspec.msgpack.encode(999), db=env.open_db(b"meta", txn=txn))
    _refused(stopped, "has format 999")


@pytest.mark.parametrize("content", every(3, [os.urandom(1 << 16), b"", b"no store"]), ids=["random", "empty", "short"])
def test_a_file_that_is_no_store_is_refused_and_left_as_it_was(stopped: ShardProcess, content: bytes) -> None:
    (stopped.root / "store" / "data.mdb").write_bytes(content)
    _refused(stopped, "data.mdb")


def test_a_store_that_was_cut_off_is_refused_and_left_as_it_was(stopped: ShardProcess) -> None:
    os.truncate(stopped.root / "store" / "data.mdb", 100_000)
    _refused(stopped, "data.mdb is cut off at 100000 bytes: restore the store from a backup")


@pytest.mark.long
def test_a_store_without_its_sealing_keys_is_refused_and_gets_no_others(stopped: ShardProcess) -> None:
    (stopped.root / "sealing-keys.json").unlink()
    _refused(stopped, "sealing-keys.json is missing: without its sealing keys no Secret of the store can be read")


@pytest.mark.long
def test_a_store_without_the_key_of_its_accounts_is_refused_until_there_is_one(stopped: ShardProcess) -> None:
    key = stopped.root / "sa.key"
    kept = key.read_bytes()
    key.unlink()
    refused = atoll("start", "--root-directory", str(stopped.root), *ANYWHERE)
    assert (refused.code, "Traceback" in refused.stderr, key.exists()) == (1, False, False)
    assert f"{key} is missing: without it no token of a service account is valid; restore it, or" in refused.stderr
    key.write_bytes(kept)
    with stopped:
        assert key.read_bytes() == kept


@pytest.mark.long
def test_a_shard_without_its_event_keys_is_refused_until_consumers_are_given_others(stopped: ShardProcess) -> None:
    keys, credential = stopped.root / "event-keys.json", stopped.root / "stream.json"
    keys.unlink()
    _refused(stopped, "event-keys.json is missing: consumers with a copy of ")
    before = credential.read_bytes()
    credential.unlink()
    with stopped:
        eventually(credential.exists, "stream.json")
        assert keys.exists() and credential.read_bytes() != before


@pytest.mark.long
def test_the_store_of_another_shard_is_refused_and_left_as_it_was(stopped: ShardProcess) -> None:
    _refused(stopped, "belongs to shard 'root', not 'other'", "--shard-name", "other")


def _refused(shard: ShardProcess, reason: str, *flags: str) -> None:
    before = tree(shard.root)
    result = atoll("start", "--root-directory", str(shard.root), *ANYWHERE, *flags)
    assert (result.code, reason in result.stderr, "Traceback" in result.stderr) == (1, True, False), result.stderr
    assert tree(shard.root) == before


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    if file_system_of(SHARED_MEMORY) != "tmpfs":
        pytest.skip("no tmpfs at /dev/shm")
    directory = Path(tempfile.mkdtemp(dir=SHARED_MEMORY))
    yield directory
    shutil.rmtree(directory)


def test_a_temporary_file_system_is_refused_and_nothing_made_there(shared_memory: Path) -> None:
    root = shared_memory / "deep" / "atoll"
    refused = atoll("start", "--root-directory", str(root), "--secure-port", "0")
    assert (refused.code, "is on tmpfs" in refused.stderr) == (1, True), refused.stderr
    assert list(shared_memory.iterdir()) == []
    with ShardProcess(shared_memory) as allowed:
        assert allowed.get("/readyz")[0] == 200


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in ("0", "2"):
            result = atoll(
                "start",
                "--root-directory",
                str(tmp_path / workers),
                "--allow-any-filesystem",
                "true",
                "--secure-port",
                str(port),
                "--workers",
                workers,
            )
            assert (result.code, "in use" in result.stderr, "Traceback" in result.stderr) == (1, True, False)
