"""The edge service on a running server: `atoll edge-init` with an administrator's kubeconfig, and its controllers.

edge_init(shard, tmp_path / "edge.kubeconfig")
with EdgeControllers(tmp_path, tmp_path / "edge.kubeconfig"):
    ...
"""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import signal
import ssl
import sys
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlsplit

from atoll.cli.atoll import edge_init as command
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from harness.clients.api import Object, eventually
from harness.servers.launch import Process, launch

GROUP = "/apis/edge.kubestellar.io/v2alpha1"


class Administered(Protocol):
    """A server with the kubeconfig of an administrator."""

    kubeconfig: Path


def edge_init(server: Administered, output: Path, *flags: str) -> str:
    """Run the command in this process; return what it prints. Fails the test if it fails."""
    printed, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(failed):
        code = command.run(["--kubeconfig", str(server.kubeconfig), "-o", str(output), *flags])
    assert code == 0, failed.getvalue()
    return printed.getvalue()


class EdgeControllers:
    """`atoll edge-controllers` in a process of its own, with a kubeconfig that `edge_init` wrote.

    with EdgeControllers(tmp_path, kubeconfig) as controllers:
        controllers.url, controllers.get("/readyz")
    """

    def __init__(self, directory: Path, kubeconfig: Path, *flags: str) -> None:
        self.directory, self.kubeconfig, self._flags = directory, kubeconfig, flags
        self.url = ""
        #: What is set for it besides (`harness.servers.mutant_shard`).
        self.environment: dict[str, str] = {}
        self._process: Process | None = None
        self._clients = pki.make_ca("clients of controllers")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until every controller works."""
        self.spawn()
        eventually(lambda: self.get("/readyz")[0] == 200, "the controllers are ready")

    def spawn(self) -> None:
        """Start it, and wait until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        out, err = self.directory / "out", self.directory / "err"
        out.write_bytes(b"")
        clients = self.directory / "clients.crt"
        clients.write_bytes(self._clients.certificate)
        files = ["--kubeconfig", str(self.kubeconfig), "--directory", str(self.directory / "edge")]
        files += ["--client-ca-file", str(clients)]
        command = [sys.executable, "-m", "atoll.cli", "edge-controllers", *files, "--allow-any-filesystem", "true"]
        self._process = launch([*command, *self._flags], out, err, environment=self.environment, directory=Path.cwd())
        process = self._process

        def announced() -> str:
            assert process.poll() is None, err.read_text()[-3000:]
            return "".join(re.findall(r"serves (https://\S+)", out.read_text()))

        self.url = eventually(announced, "the controllers serve")

    def get(self, path: str, client: ssl.SSLContext | None = None) -> tuple[int, str]:
        """Return status and body of a request."""
        return answer_of(self.url, path, client)

    def metrics(self) -> str:
        """The metrics, which it shows to an administrator."""
        status, text = self.get("/metrics", administrator(self._clients, self.directory))
        assert status == 200, text
        return text

    def log(self) -> str:
        """What it logged, since the first start."""
        return (self.directory / "err").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)


def answer_of(url: str, path: str, client: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return status and body of a request to a process of controllers."""
    parts = urlsplit(url)
    context = client or ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def administrator(clients: Pair, directory: Path) -> ssl.SSLContext:
    """The client of an administrator, whose certificate a CA signed."""
    pair, path = pki.make_client(clients, "admin", ["system:masters"]), directory / "admin.pem"
    path.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context()
    context.load_cert_chain(path)
    return context


def an_object(kind: str, name: str, spec: Object | None = None, **labels: str) -> Object:
    """An object of the edge API."""
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": kind, "metadata": {"name": name, "labels": labels}}
    return {**head, "spec": spec or {}}


def location(name: str, target: str = "", **labels: str) -> Object:
    """A Location for the SyncTarget with the label `id` of that name, by default its own."""
    resource = {"group": "edge.kubestellar.io", "version": "v2alpha1", "resource": "synctargets"}
    return an_object(
        "Location", name, {"resource": resource, "instanceSelector": {"matchLabels": {"id": target or name}}}, **labels
    )
