"""`atoll event-gateway` as a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import ssl
import sys
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from atoll.machinery.process import pki
from harness.clients.api import eventually
from harness.servers.launch import Process, launch


class EventGateway:
    """A process with these flags, for as long as it is entered."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory, self._flags = directory, flags
        self._clients = pki.make_ca("clients of gateways")
        self._process: Process | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        out, err = self._directory / "out", self._directory / "err"
        out.write_bytes(b"")
        clients = self._directory / "clients.crt"
        clients.write_bytes(self._clients.certificate)
        own = ["--directory", str(self._directory / "own"), "--client-ca-file", str(clients)]
        command = [sys.executable, "-m", "atoll.cli", "event-gateway", *own, "--allow-any-filesystem", "true"]
        self._process = process = launch([*command, *self._flags], out, err, directory=Path.cwd())

        def announced() -> str:
            assert process.poll() is None, err.read_text()[-3000:]
            return "".join(re.findall(r"serves (https://\S+)", out.read_text()))

        self.url = eventually(announced, "the gateway listens")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        killed = self._process.poll() is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 0 or killed

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def get(self, path: str, *groups: str) -> tuple[int, str]:
        """Status and body of a request; with a client certificate of these groups if there are any."""
        parts, context = urlsplit(self.url), ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if groups:
            pair, path_of_pair = pki.make_client(self._clients, "someone", groups), self._directory / "client.pem"
            path_of_pair.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(path_of_pair)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
