"""`atoll start` as a process, and the maintenance commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl, Result
from harness.servers import processes
from harness.servers.shard_process import ShardProcess


def atoll(shard: ShardProcess, command: str, *flags: str) -> Result:
    return processes.atoll(command, "--root-directory", str(shard.root), *flags)


@pytest.mark.long
def test_the_caretakers_of_a_running_and_of_a_stopped_shard(tmp_path: Path) -> None:
    shard = ShardProcess(tmp_path)
    with shard:
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        kubectl.ok("create", "secret", "generic", "s", "--from-literal=k=v")
        port = shard.url.rpartition(":")[2]
        healthy = atoll(shard, "doctor", "--secure-port", port, "--allow-any-filesystem")
        assert healthy.code == 0, healthy.stdout
        assert f"port: 127.0.0.1:{port} is served by the shard of {shard.root}" in healthy.stdout
        rotated = atoll(shard, "rotate", "--allow-any-filesystem")
        assert (rotated.code, "key 2 seals from now on" in rotated.stdout) == (0, True), rotated.stderr
        assert "all objects are sealed with it" in rotated.stdout
        assert atoll(shard, "fsck").code == 0
    rotated = atoll(shard, "rotate", "--allow-any-filesystem")
    assert (rotated.code, "key 3 seals from now on" in rotated.stdout) == (0, True)
    assert atoll(shard, "fsck").stdout == "the store is sound\n"
    with shard:
        assert kubectl.ok("get", "secret", "s", "-o", "jsonpath={.data.k}") == "dg=="


def test_a_shard_goes_on_where_it_was_after_a_kill(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        kubectl.ok("create", "workspace", "kept", "--create-context", "kept")
        url, pid = shard.url, shard.pid
        assert shard.kill() == -9
        shard.start()
        assert (shard.url, shard.pid != pid) == (url, True)
        assert kubectl.ok("get", "workspaces", "-o", "jsonpath={.items[*].metadata.name}") == "kept"
        assert shard.stop() == 0


@pytest.mark.long
def test_a_second_start_on_the_same_directory_says_so_and_leaves(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        second = atoll(shard, "start", "--secure-port", "0", "--allow-any-filesystem", "true")
        assert (second.code, "is open in another process" in second.stderr) == (1, True)
        assert shard.get("/readyz")[0] == 200
