"""The embedded nats-server: started, supervised, stopped with the shard."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.connection import Connection, TooOld, Unavailable, check_version
from atoll.machinery.stream.server.config import TlsFiles
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from atoll.machinery.stream.server.process import ServerFailed, find_binary, reserve_port
from atoll.machinery.stream.server.silence import Probing
from harness.servers.nats import NatsServer, eventually
from harness.servers.processes import is_alive, listening

PARENT = """
import asyncio, sys
from pathlib import Path
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions

async def main():
    async with EmbeddedServer(ServerOptions(directory=Path(sys.argv[1]), shard="root")) as server:
        print("pid", server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def start_process(*command: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, **options)


async def test_its_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        assert mode(server.directory) == 0o700
        for name in ("server.conf", "secrets.json", "server.pid"):
            assert mode(server.directory / name) == 0o600
        assert mode(server.credentials_file) == 0o600
        assert server.access.password.encode() not in command_line(server.server.pid)


async def test_it_listens_for_clients_on_loopback_and_nothing_else(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        addresses = listening(server.server.pid)
        port = int(server.server.address.rsplit(":", 1)[1])
    assert addresses == [f"0100007F:{port:04X}"]


async def test_a_server_that_dies_is_started_again_on_the_same_address(tmp_path: Path) -> None:
    async with NatsServer(tmp_path, backoff=Backoff(0.01, 5.0, least=1.0)) as server:
        address, pid = server.server.address, server.server.pid
        await server.kill()
        assert server.server.pid not in (0, pid)
        connection = await server.connect()
        await connection.close()
        assert server.server.address == address


async def test_a_server_that_stands_still_is_killed_and_started_again(tmp_path: Path) -> None:
    probing = Probing(pause_s=0.05, wait_s=0.3, most=3)
    async with NatsServer(tmp_path, backoff=Backoff(0.01, 5.0, least=1.0), probing=probing) as server:
        frozen = server.server.pid
        os.kill(frozen, signal.SIGSTOP)
        await eventually(lambda: server.server.restarts == 1)
        assert server.server.pid not in (0, frozen)
        assert not is_alive(frozen)
        connection = await server.connect()
        await connection.close()


async def test_its_port_is_reserved_until_it_stops(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        held = server.server._reserved
        assert held is not None
        assert held.getsockname()[1] == int(server.server.address.rsplit(":", 1)[1])
    assert held.fileno() == -1


def test_a_reserved_port_is_given_to_no_stranger_and_a_server_may_listen_on_it() -> None:
    with reserve_port("127.0.0.1", 0) as held, socket.socket() as stranger:
        with pytest.raises(OSError, match="in use"):
            stranger.bind(held.getsockname())
        with socket.create_server(held.getsockname()):
            pass


async def test_address_and_credentials_survive_a_restart(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        first = server.operator
    async with NatsServer(tmp_path) as server:
        assert server.operator == first


async def test_no_server_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    source_root = str(Path(sys.modules[EmbeddedServer.__module__].__file__ or "").parents[3])
    parent = start_process(
        sys.executable,
        "-c",
        PARENT,
        str(tmp_path / "nats"),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source_root},
    )
    assert parent.stdout is not None
    pid = int(next(line for line in parent.stdout if line.startswith(b"pid ")).split()[1])
    assert is_alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    await eventually(lambda: not is_alive(pid))


async def test_a_server_left_behind_on_the_directory_is_ended_first(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        config = server.directory / "server.conf"
    left = start_process(str(find_binary()), "-c", str(config))
    await eventually(lambda: bool(listening(left.pid)))
    (tmp_path / "nats" / "server.pid").write_text(f"{left.pid}\n")
    waiting = asyncio.ensure_future(asyncio.to_thread(left.wait))
    async with NatsServer(tmp_path) as server:
        await asyncio.wait_for(waiting, 30)
        connection = await server.connect()
        await connection.close()


async def test_a_foreign_process_with_the_pid_of_a_dead_server_is_left_alone(tmp_path: Path) -> None:
    bystander = start_process(sys.executable, "-c", "import sys; sys.stdin.read()", stdin=subprocess.PIPE)
    try:
        (tmp_path / "nats").mkdir(mode=0o700)
        (tmp_path / "nats" / "server.pid").write_text(f"{bystander.pid}\n")
        async with NatsServer(tmp_path):
            assert bystander.poll() is None
    finally:
        assert bystander.stdin is not None
        bystander.stdin.close()
        bystander.wait(30)


@pytest.mark.long
async def test_a_stranger_on_its_port_is_not_taken_for_it(tmp_path: Path) -> None:
    async with NatsServer(tmp_path, backoff=Backoff(0.3, 5.0, least=4.0)) as server:
        first = server.server.pid
        config = json.loads((server.directory / "server.conf").read_text())
        config["jetstream"]["store_dir"] = str(tmp_path / "elsewhere")
        (tmp_path / "stranger.conf").write_text(json.dumps(config))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not is_alive(first))
        stranger = start_process(str(find_binary()), "-c", str(tmp_path / "stranger.conf"))
        try:
            await eventually(lambda: bool(listening(stranger.pid)))
            await eventually(lambda: server.server.pid not in (0, first))
            second = server.server.pid
            await eventually(lambda: not is_alive(second))
            assert server.server.restarts == 0
        finally:
            stranger.terminate()
            stranger.wait()
        await eventually(lambda: server.server.restarts == 1)
        connection = await server.connect()
        await connection.close()


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "a") as server:
        port = int(server.server.address.rsplit(":", 1)[1])
        other = EmbeddedServer(ServerOptions(directory=tmp_path / "b", shard="root", port=port))
        with pytest.raises(ServerFailed, match="taken"):
            await other.start()


async def test_a_plain_client_reads_with_the_operators_file(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        connection = await server.connect()
        await connection.api(
            "STREAM.CREATE.atoll-changes-root",
            {"name": "atoll-changes-root", "subjects": ["atoll.changes.root.>"], "storage": "file"},
        )
        await connection.client.jetstream().publish("atoll.changes.root.core.core.pods.c1", b"{}")
        await connection.close()

        access = json.loads(server.credentials_file.read_text())
        client = await nats.connect(**access["connect"])
        stream, consumer = access["streams"]["changes"], access["consumers"][0]
        reading = await client.jetstream(prefix=access["api_prefix"]).pull_subscribe(
            "atoll.changes.root.>", durable=consumer, stream=stream
        )
        messages = await reading.fetch(1, timeout=60)
        await messages[0].ack_sync()
        await client.close()
    assert messages[0].data == b"{}"


@pytest.mark.parametrize("version", ["2.14.3", "2.15.1", "3.0.0", "2.15.0-preview.1"])
def test_a_server_at_the_floor_or_above_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["2.14.2", "2.9.99", "1.0.0", "", "nonsense"])
def test_a_server_below_the_floor_is_refused(version: str) -> None:
    with pytest.raises(TooOld):
        check_version(version)


@pytest.mark.long
async def test_with_tls_a_client_checks_the_certificate(tmp_path: Path) -> None:
    ca = make_ca("nats-ca")
    pair = make_serving(ca, ["127.0.0.1"])
    files = TlsFiles(tmp_path / "nats.crt", tmp_path / "nats.key", tmp_path / "ca.crt")
    for path, data in (
        (files.cert_file, pair.certificate),
        (files.key_file, pair.key),
        (files.ca_file, ca.certificate),
    ):
        write_private(path, data)
    async with NatsServer(tmp_path, tls=files) as server:
        assert server.server.address.startswith("tls://")
        assert server.operator["ca_file"] == str(files.ca_file)
        connection = await server.connect()
        await connection.close()
        stranger = tmp_path / "stranger.crt"
        write_private(stranger, make_ca("another").certificate)
        with pytest.raises(Unavailable):
            await Connection.open(msgspec.structs.replace(server.access, ca_file=str(stranger)), "test")
