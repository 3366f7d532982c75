"""A syncer that is measured: `atoll syncer` with the manifest that registers its cluster, and what it sends.

The syncer reaches its mailbox through a relay that counts bytes, and its edge cluster by a kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml

from atoll.cli.kubectl.kubestellar import account
from atoll.cli.kubectl.kubestellar.account import Account
from atoll.cli.kubectl.kubestellar.manifest import Registration, manifests, syncer_id
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.objects import Object
from harness.servers.launch import Process, launch
from harness.waits import until
from loadtest.edge_site import COMPILED, LIMIT_S, EdgeServer, Mailbox
from loadtest.processes import Memory, memory

#: Seconds of the token, and the rate at which a syncer may write: its own limit is not what is measured.
LIFETIME_S, RATE = 720 * 3600.0, "1000"
NAMESPACE = "default"
#: Connections that wait to be taken: thousands of edges come at once.
BACKLOG = 4096


class CountingRelay:
    """A second address of a port of this machine; `passed` counts the bytes of both directions, TLS included.

    `is_cut` refuses new connections; `cut` also ends all that there are.
    """

    def __init__(self, target: int) -> None:
        self._target, self.port, self.passed, self.is_cut = target, 0, 0, False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self.is_cut, tasks = True, list(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, to_server), (from_server, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                self.passed += len(data)
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.close()


class SyncerProcess:
    """One process, which keeps its files in a directory from start to start."""

    def __init__(self, directory: Path, mailbox: Mailbox, edge: Path) -> None:
        self._directory, self._mailbox, self._edge = directory, mailbox, edge
        self._process: Process | None = None
        self._url = ""

    @classmethod
    async def registered(cls, directory: Path, server: EdgeServer, mailbox: Mailbox, edge: Path, port: int = 0) -> Self:
        """Register a syncer for a mailbox; `port` is another one for the server, `edge` the cluster's kubeconfig."""
        wanted = Account("default", {}, LIFETIME_S)
        async with server.client(mailbox.cluster) as client:
            token = await account.ensure(client, wanted, silent=True)
        admin = Kubeconfig.load(str(server.kubeconfig))
        cluster = admin.cluster_of("root")
        if port:
            own = urlsplit(cluster["server"])
            cluster["server"] = f"https://127.0.0.1:{port}{own.path}"
        found = Registration(
            id=syncer_id(mailbox.target, mailbox.uid),
            namespace=NAMESPACE,
            target=mailbox.target,
            uid=mailbox.uid,
            cluster=mailbox.cluster,
            token=token,
            image="none",
            replicas=1,
            qps=float(RATE),
            burst=int(RATE),
        )
        await asyncio.to_thread(_write, directory, manifests(found, cluster))
        return cls(directory, mailbox, edge)

    async def start(self) -> None:
        """Start it, and wait until it serves its metrics."""
        out, err = self._directory / "out", self._directory / "err"
        out.write_bytes(b"")
        flags = {
            "from-kubeconfig": self._directory / "kubeconfig",
            "to-kubeconfig": self._edge,
            "sync-target-name": self._mailbox.target,
            "sync-target-uid": self._mailbox.uid,
            "state-file": self._directory / "state",
            "secret": syncer_id(self._mailbox.target, self._mailbox.uid),
            "qps": RATE,
            "burst": RATE,
        }
        command = [sys.executable, "-m", "atoll.cli", "syncer", *(f"--{name}={value}" for name, value in flags.items())]
        self._process = launch(
            command, out, err, environment={**COMPILED, "NAMESPACE": NAMESPACE}, directory=self._directory
        )

        async def announced() -> str:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the syncer ended: {err.read_text()[-2000:]}")
            return "".join(re.findall(r"serves (http://\S+)", out.read_text()))

        self._url = await until(announced, "the syncer serves", LIMIT_S)

    async def metrics(self) -> dict[str, float]:
        """What it says of itself, without the prefix of the names."""

        def ask() -> str:
            with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(ask)
        rows = re.findall(r"^syncer_(\w+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in rows}

    async def until_idle(self, revision: int) -> None:
        """Wait until it has tried everything up to a revision of its mailbox."""

        async def is_idle() -> bool:
            found = await self.metrics()
            is_current = found["writer"] > 0 and found["applied_revision"] >= revision
            return is_current and found["queue_depth"] == 0

        await until(is_idle, "the syncer has looked at everything", LIMIT_S)

    def memory(self) -> Memory:
        """The memory that it takes now."""
        assert self._process is not None
        return memory([self._process.pid])

    async def stop(self) -> None:
        """Stop it in order. Harmless if it does not run."""
        if self._process is not None:
            self._process.send_signal(15)
            await asyncio.to_thread(self._process.wait, 30)
            self._process = None


def _write(directory: Path, objects: Iterable[Object]) -> None:
    """Write the files that a syncer has mounted."""
    (secret,) = (each["stringData"] for each in objects if "kubeconfig" in each.get("stringData", ()))
    for name, text in secret.items():
        (directory / name).write_text(text)


@asynccontextmanager
async def syncing(syncer: SyncerProcess) -> AsyncIterator[SyncerProcess]:
    """Run it while the block runs."""
    await syncer.start()
    try:
        yield syncer
    finally:
        with contextlib.suppress(ProcessLookupError):
            await syncer.stop()


def workspace_kubeconfig(server: EdgeServer, cluster: str, file: Path) -> Path:
    """Write the kubeconfig of a workspace that is an edge cluster."""
    found: Object = yaml.safe_load(server.kubeconfig.read_text())
    for each in found["clusters"]:
        base = each["cluster"]["server"].partition("/clusters/")[0]
        each["cluster"]["server"] = f"{base}/clusters/{cluster}"
    file.write_text(yaml.safe_dump(found))
    return file
