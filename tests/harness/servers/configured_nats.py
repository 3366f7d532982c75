"""A nats-server with the users of `atoll nats-config`, for a shard and processes beside it.

with ConfiguredNats(tmp_path, "--shards", "root", "--edge", "edge-0") as nats:
    ShardProcess(tmp_path, *nats.flags("shard-root"))
"""

from __future__ import annotations

import contextlib
import io
import signal
from pathlib import Path
from typing import Self

from atoll.cli.atoll import nats_config
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.site.layout import Ports
from harness.servers.launch import Process, launch


class ConfiguredNats:
    """The server runs while the context is open; clients wait until it serves."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._directory, self._names = directory, names
        self._ports = Ports("127.0.0.1")
        self._port = self._ports.reserve(0)
        self.url = f"nats://127.0.0.1:{self._port}"
        self._process: Process | None = None

    def __enter__(self) -> Self:
        with contextlib.redirect_stdout(io.StringIO()):
            code = nats_config.run(["--directory", str(self._directory), *self._names, "--port", str(self._port)])
        assert code == 0
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._ports.close()

    def start(self) -> None:
        """Start the server on its port."""
        command = [str(find_binary()), "-c", str(self._directory / "server.conf")]
        out = self._directory / "server.out"
        self._process = launch(command, out, out, directory=self._directory)

    def stop(self) -> None:
        """Stop the server; what it has stays on disk."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def flags(self, user: str) -> tuple[str, ...]:
        """Flags of a process that connects as a user."""
        return "--nats-url", self.url, "--nats-credentials-file", str(self._directory / f"nats-{user}.json")
