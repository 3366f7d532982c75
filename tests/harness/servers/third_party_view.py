"""The view of `atoll.virtualworkspace_sdk`'s README, as a third party runs it, with a certificate of its own.

with ThirdParty(directory, certificates, provider, "teams") as view:
    view.url, view.get(path, user)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from atoll.machinery.process.pki import Pair, make_ca, make_client, make_serving
from harness.clients.api import Api
from harness.environment import SERVICES
from harness.servers.launch import Process, launch
from harness.servers.shard_process import process_of

README = SERVICES / "atoll/virtualworkspace_sdk/README.md"
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 30.0
_SERVES = re.compile(r"serves (https://\S+)")


def program() -> str:
    """The example, as it is printed."""
    found: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return found[0]


class Certificates:
    """Two authorities, of views and of shards, and what they signed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        views, shards, others = make_ca("views"), make_ca("shards"), make_ca("others")
        self.files: dict[str, Path] = {}
        serving = make_serving(views, ("127.0.0.1", "localhost"))
        for name, pair in (
            ("views", views),
            ("shards", shards),
            ("serving", serving),
            ("shard", make_client(shards, "shard")),
            ("stranger", make_client(others, "shard")),
        ):
            self._write(directory, name, pair)

    def _write(self, directory: Path, name: str, pair: Pair) -> None:
        for suffix, data in (("crt", pair.certificate), ("key", pair.key)):
            file = self.files[f"{name}.{suffix}"] = directory / f"{name}.{suffix}"
            file.write_bytes(data)

    def __getitem__(self, name: str) -> str:
        return str(self.files[name])

    @property
    def shard_flags(self) -> list[str]:
        """The flags with which a shard uses views."""
        return [
            "--egress-allow-cidr",
            "127.0.0.0/8",
            "--shard-client-cert-file",
            self["shard.crt"],
            "--shard-client-key-file",
            self["shard.key"],
            "--shard-virtual-workspace-ca-file",
            self["views.crt"],
        ]

    def client(self, name: str) -> ssl.SSLContext:
        """A client with a certificate; an empty name has none."""
        context = ssl.create_default_context(cafile=self["views.crt"])
        if name:
            context.load_cert_chain(self[f"{name}.crt"], self[f"{name}.key"])
        return context


class ThirdParty:
    """One running view."""

    def __init__(
        self,
        directory: Path,
        certificates: Certificates,
        provider: Api,
        export: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._certificates = directory, certificates
        (directory / "rosters.py").write_text(program())
        cluster = {"server": f"{provider.shard.url}/clusters/{provider.cluster}"}
        (directory / "ca.crt").write_bytes(process_of(provider).authority())
        cluster["certificate-authority"] = str(directory / "ca.crt")
        (directory / "kubeconfig").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "it",
                    "clusters": [{"name": "it", "cluster": cluster}],
                    "users": [{"name": "it", "user": {"token": provider.token}}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                }
            )
        )
        self._export, self.url, self._port = export, "", 0
        self._environment = {"PYTHONPATH": str(SERVICES), **(environment or {})}
        self._process: Process | None = None

    def __enter__(self) -> ThirdParty:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, on the port it had, and wait until it listens."""
        out = self._directory / "out"
        flags = {
            "export": self._export,
            "kubeconfig": self._directory / "kubeconfig",
            "directory": self._directory / "rows",
            "secure-port": self._port,
            "tls-cert-file": self._certificates["serving.crt"],
            "tls-private-key-file": self._certificates["serving.key"],
            "requestheader-client-ca-file": self._certificates["shards.crt"],
            "allow-any-filesystem": "true",
        }
        command = [sys.executable, "rosters.py", *(f"--{name}={value}" for name, value in flags.items())]
        out.write_bytes(b"")
        self._process = launch(
            command, out, self._directory / "err", environment=self._environment, directory=self._directory
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := _SERVES.search(out.read_text())):
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.url = found[1]
        self._port = urlsplit(self.url).port or 0

    def stop(self) -> None:
        """SIGTERM; harmless if it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(STOP_TIMEOUT_S) == 0, self.log()

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        return "\n".join((self._directory / "err").read_text(errors="replace").splitlines()[-30:])

    def get(self, path: str, user: str = "", certificate: str = "shard", **headers: str) -> tuple[int, Any]:
        """Status and body of a GET at the view itself, as somebody with a certificate who speaks for a user."""
        parts = urlsplit(self.url)
        sent = {"X-Remote-User": user, **headers} if user else dict(headers)
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=30, context=self._certificates.client(certificate)
        )
        with contextlib.closing(connection):
            connection.request("GET", path if path.startswith("/readyz") else parts.path + path, headers=sent)
            response = connection.getresponse()
            body = response.read()
            return response.status, json.loads(body) if body.startswith(b"{") else body
