"""The embedded NATS server: it is restarted, ends with the shard, and may be replaced by an external one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from atoll.machinery.stream.server.embedded import find_binary
from harness.clients.api import Api, configmap, eventually
from harness.clients.nats_subscriber import Operator
from harness.servers.processes import children, is_alive
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def nats_pid(shard: ShardProcess) -> int:
    """The process id of the embedded server, once it runs."""

    def running() -> int:
        return next((pid for pid, command in children(shard.pid).items() if "nats-server" in command), 0)

    return int(eventually(running, "nats-server"))


@pytest.mark.long
@pytest.mark.parametrize("workers", ["0", "2"])
def test_nobody_is_left_when_the_shard_is_killed(tmp_path: Path, workers: str) -> None:
    with ShardProcess(tmp_path, "--workers", workers) as shard:
        nats_pid(shard)
        family = children(shard.pid)
        assert len(family) == 1 + int(workers)
        shard.kill()
        eventually(lambda: not [pid for pid in family if is_alive(pid)], f"all are gone of {family}", timeout_s=60)


async def test_a_killed_server_is_started_again_while_writes_go_on(tmp_path: Path) -> None:
    async with ShardProcess(tmp_path) as shard:
        api = Api(shard, "root")
        written = [api.post(CONFIGMAPS, configmap("before")).json["metadata"]]
        async with Operator(shard) as operator:
            await operator.consume("atoll.changes.root.core.core.configmaps.root")
            assert (await operator.until("before"))[-1].revision == int(written[0]["resourceVersion"])
        pid = nats_pid(shard)
        os.kill(pid, signal.SIGKILL)
        for number in range(50):
            written.append(api.post(CONFIGMAPS, configmap(f"while-{number}")).json["metadata"])
        again = await asyncio.to_thread(eventually, lambda: _another(shard, pid), "another server", 30.0)
        assert again != pid
        async with Operator(shard) as operator:
            await operator.consume("atoll.changes.root.core.core.configmaps.root")
            found = await operator.until("while-49")
        assert [int(one["resourceVersion"]) for one in written] == [
            change.revision for change in found if change.name in {one["name"] for one in written}
        ]


def _another(shard: ShardProcess, pid: int) -> int:
    found = [one for one, command in children(shard.pid).items() if "nats-server" in command and one != pid]
    return found[0] if found else 0


@pytest.mark.long
def test_the_subscribers_address_and_password_outlive_a_restart(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        eventually((shard.root / "stream.json").exists, "stream.json")
        before = json.loads((shard.root / "stream.json").read_text())
        shard.restart()
        nats_pid(shard)
        assert json.loads((shard.root / "stream.json").read_text()) == before


@pytest.fixture
def external_server(tmp_path: Path) -> Iterator[str]:
    """The URL of a nats-server that is not the shard's."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    config = directory / "server.conf"
    config.write_text(json.dumps({"max_payload": 8 << 20, "jetstream": {"store_dir": str(directory / "store")}}))
    command = [str(find_binary()), "-c", str(config), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def announced() -> str:
        for path in directory.glob("*.ports"):
            text = path.read_text()
            return str(json.loads(text)["nats"][0]) if text.endswith("}") else ""
        return ""

    try:
        yield eventually(announced, "the port")
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.long
async def test_a_server_that_is_somebody_elses_is_published_to(tmp_path: Path, external_server: str) -> None:
    async with ShardProcess(tmp_path, "--nats-url", external_server) as shard:
        assert (children(shard.pid), (shard.root / "stream.json").exists()) == ({}, False)
        assert "stream.json" not in shard.stdout_path.read_text()
        connection = await nats.connect(external_server)
        try:
            subscription = await connection.subscribe("atoll.changes.root.core.core.configmaps.root")
            await connection.flush()
            made = Api(shard, "root").post(CONFIGMAPS, configmap("far")).json["metadata"]
            message = await subscription.next_msg(timeout=60)
            while json.loads(message.data)["metadata"]["name"] != "far":
                message = await subscription.next_msg(timeout=60)
            assert (message.headers or {})["Atoll-Revision"] == made["resourceVersion"]
        finally:
            await connection.close()


@pytest.mark.long
def test_nothing_waits_for_a_server_that_is_not_there(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--nats-url", "nats://127.0.0.1:1") as shard:
        Api(shard, "root").post(CONFIGMAPS, configmap("alone"))
        assert shard.stop() == 0
