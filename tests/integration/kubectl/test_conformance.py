"""The upstream conformance specs of kubectl itself: versions, and the proxy over TCP and over a Unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl


@pytest.mark.long
def test_the_api_versions_have_v1(kubectl: Kubectl) -> None:
    assert "v1" in kubectl.ok("api-versions").splitlines()


def test_version_prints_what_client_and_server_are(kubectl: Kubectl) -> None:
    told = kubectl.ok("version", "-o", "json")
    server = json.loads(told)["serverVersion"]
    assert {
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    } <= set(server)
    assert "Server Version: v" in kubectl.ok("version")


@contextlib.contextmanager
def proxy(kubectl: Kubectl, *flags: str) -> Iterator[str]:
    """`kubectl proxy` in the background; yield the line with its address."""
    command = kubectl.command("proxy", "--append-server-path", *flags)
    with subprocess.Popen(
        command, env=kubectl.environment, cwd=kubectl.home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield next(line for line in process.stdout if line.startswith("Starting to serve on "))
        finally:
            process.terminate()
            process.wait(timeout=60)


def versions(connection: http.client.HTTPConnection) -> list[str]:
    with contextlib.closing(connection):
        connection.request("GET", "/api/")
        found = json.loads(connection.getresponse().read())
    return list(found["versions"])


def test_a_proxy_on_any_port_serves_the_api(kubectl: Kubectl) -> None:
    with proxy(kubectl, "--port=0", "--disable-filter=true") as line:
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        assert versions(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)) == ["v1"]


class OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(15)
        self.sock.connect(str(self._path))


def test_a_proxy_on_a_unix_socket_serves_the_api(kubectl: Kubectl, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with proxy(kubectl, f"--unix-socket={path}") as line:
        assert str(path) in line
        assert versions(OverSocket(path)) == ["v1"]
