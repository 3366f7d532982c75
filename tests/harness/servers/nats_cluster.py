"""Three nats-servers with the files of `atoll nats-config --servers`, over TLS, with faults for tests.

async with NatsCluster(tmp_path) as nats: nats.access("shard-root"); await nats.leader(stream); nats.kill("nats-1"); …
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from atoll.cli.atoll import nats_config
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import make_ca, make_peer
from atoll.machinery.process.private_files import Pair, write_pair
from atoll.machinery.stream.connection import Access, ApiError, Connection, Denied, Unavailable
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.permissions import shard_user
from atoll.machinery.stream.server.process import find_binary
from atoll.standalone.site.layout import Ports
from harness.servers.launch import Process, launch
from harness.waits import until

SERVERS = ("nats-0", "nats-1", "nats-2")
#: A user that the tests add to the account of each shard: it moves the leaders of its streams.
_MOVER = "mover"


class NatsCluster:
    """The servers run while the context is open; clients wait until they serve."""

    def __init__(self, directory: Path, *flags: str, shards: Sequence[str] = (ROOT,)) -> None:
        self.directory, self.shard, self._shards, self._flags = directory / "nats", shards[0], shards, flags
        self._ports = Ports("127.0.0.1")
        self._at = {name: (self._ports.reserve(0), self._ports.reserve(0)) for name in SERVERS}
        self._processes: dict[str, Process] = {}
        self.authority = make_ca("nats")
        self.directory.mkdir(parents=True)
        for name in SERVERS:
            self.certify(name, self.authority)
        self.trust(self.authority)

    def trust(self, *authorities: Pair) -> None:
        """Write the files for these authorities: clients believe them, and servers once they `reload`."""
        (self.directory / "ca.crt").write_bytes(b"".join(each.certificate for each in authorities))
        self.configure()

    def certify(self, name: str, authority: Pair) -> None:
        """Write another certificate for a server, which takes it with `reload`."""
        write_pair(self.directory / name, "server", make_peer(authority, ["127.0.0.1"]))

    def configure(self, *shards: str) -> None:
        """Write the files, for these shards more. Servers that run take them with `reload`."""
        self._shards = (*self._shards, *shards)
        servers = ",".join(f"{name}=127.0.0.1:{port}:{route}" for name, (port, route) in self._at.items())
        values = {
            "directory": self.directory,
            "shards": ",".join(self._shards),
            "servers": servers,
            "tls-cert-file": self.directory / "{server}/server.crt",
            "tls-private-key-file": self.directory / "{server}/server.key",
            "tls-ca-file": self.directory / "ca.crt",
        }
        with contextlib.redirect_stdout(io.StringIO()):
            assert nats_config.run([*(f"--{name}={value}" for name, value in values.items()), *self._flags]) == 0
        for name in SERVERS:
            document = msgspec.json.decode(self._config(name).read_bytes())
            for shard in self._shards:
                document["accounts"][shard_user(shard)]["users"].append({"user": _MOVER + shard, "password": _MOVER})
            self._config(name).write_bytes(msgspec.json.encode(document))

    async def __aenter__(self) -> Self:
        for name in SERVERS:
            self.start(name)
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in tuple(self._processes):
            await self.stop(name)
        self._ports.close()

    # --- servers and their faults ------------------------------------------------------------------------

    def start(self, name: str) -> None:
        out = self.directory / name / "out"
        command = [str(find_binary()), "-c", str(self._config(name))]
        self._processes[name] = launch(command, out, out, directory=self.directory)

    async def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a server and wait until it ended; what it has stays on disk."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        await asyncio.to_thread(process.wait, 30)

    async def kill(self, name: str) -> None:
        await self.stop(name, signal.SIGKILL)

    def pause(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def reload(self, *names: str) -> None:
        """Have servers read their files again: these, or all."""
        for name in names or tuple(self._processes):
            self._processes[name].send_signal(signal.SIGHUP)

    def delete_store(self, name: str) -> None:
        """Only while it is stopped."""
        shutil.rmtree(self.directory / name / "store")

    def flip_bit(self, name: str, stream: str, needle: bytes) -> None:
        """Flip a bit behind the last occurrence of `needle` in one server's copy of a stream. Only while stopped."""
        blocks = (self.directory / name / "store").glob(f"jetstream/*/streams/{stream}/msgs/*.blk")
        for block in sorted(blocks, reverse=True):
            data = bytearray(block.read_bytes())
            at = data.rfind(needle)
            if at >= 0:
                data[at + len(needle) - 1] ^= 0x01
                block.write_bytes(data)
                return
        raise AssertionError(f"{needle!r} is in no block of {stream}")

    def said(self, name: str) -> str:
        """What a server wrote to its log."""
        return (self.directory / name / "out").read_text()

    def _config(self, name: str) -> Path:
        return self.directory / name / "server.conf"

    # --- access ------------------------------------------------------------------------------------------

    @property
    def ports(self) -> list[tuple[int, int]]:
        """The ports of each server for clients and for routes."""
        return list(self._at.values())

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run."""
        return {name: process.pid for name, process in self._processes.items()}

    def free_port(self) -> int:
        return self._ports.reserve(0)

    @property
    def urls(self) -> list[str]:
        return [f"tls://127.0.0.1:{port}" for port, _ in self._at.values()]

    @property
    def access(self) -> Access:
        """The shard's own access to all servers."""
        return self.access_of(shard_user(self.shard))

    def access_of(self, user: str) -> Access:
        return read_access(self.urls[0], str(self.directory / f"nats-{user}.json"))

    async def connect(self) -> Connection:
        """A connection with the shard's own credential, as soon as a server takes it."""

        async def opened() -> Connection | None:
            try:
                return await Connection.open(self.access, "test")
            except Unavailable:
                return None

        connection: Connection = await until(opened, "a server takes the shard")
        return connection

    async def info(self, stream: str) -> Object:
        """A stream's info, as soon as it has a leader and all copies are there and current."""
        info: Object = await until(lambda: self.current(stream), f"{stream} has all its copies", 60.0)
        return info

    async def current(self, stream: str) -> Object | None:
        """A stream's info; None unless it has a leader and all copies are there and current."""
        found = await self._request(f"STREAM.INFO.{stream}")
        if found is None or not found["cluster"].get("leader"):
            return None
        replicas = found["cluster"].get("replicas", [])
        whole = len(replicas) + 1 == found["config"]["num_replicas"]
        return found if whole and all(each["current"] for each in replicas) else None

    async def leader(self, stream: str) -> str:
        """The server that leads a stream, as soon as there is one."""

        async def leads() -> str:
            found = await self._request(f"STREAM.INFO.{stream}")
            return str((found or {}).get("cluster", {}).get("leader", ""))

        return str(await until(leads, f"{stream} has a leader", 60.0))

    async def step_down(self, stream: str) -> None:
        """Have the leader of a stream give up; another may be elected, or the same."""
        await self._request(f"STREAM.LEADER.STEPDOWN.{stream}")

    async def _request(self, subject: str) -> Object | None:
        access = msgspec.structs.replace(self.access, user=_MOVER + self.shard, password=_MOVER, source=None)
        try:
            connection = await Connection.open(access, "test")
            try:
                return await connection.api(subject)
            finally:
                await connection.close()
        except Denied:
            raise
        except (Unavailable, ApiError):
            return None
