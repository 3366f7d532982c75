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
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.private_files import Pair
from harness.clients.api import Api
from harness.environment import SERVER_PATH, SERVICES
from harness.servers.launch import Process, launch
from harness.servers.shard_process import process_of

README = SERVICES / "atoll/virtualworkspace_sdk/README.md"
START_TIMEOUT_S, STOP_TIMEOUT_S = 150.0, 60.0
_SERVES = re.compile(r"serves (https://\S+)")


#: The examples in the order in which they are printed.
ROSTERS, SQUADS = 0, 1


def program(example: int = ROSTERS) -> str:
    """An example, as it is printed."""
    found: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return found[example]


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
        example: int = ROSTERS,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._certificates = directory, certificates
        #: The command without the settings that every view has.
        self.command = [sys.executable, "views.py"]
        (directory / "views.py").write_text(program(example))
        (directory / "kubeconfig").write_text(yaml.safe_dump(self.kubeconfig(provider)))
        self._export, self.url, self._port = export, "", 0
        self._environment = {"PYTHONPATH": SERVER_PATH, **(environment or {})}
        self._process: Process | None = None

    def kubeconfig(self, provider: Api) -> dict[str, Any]:
        """The kubeconfig of the provider, whose files are in the directory."""
        cluster = {"server": f"{provider.shard.url}/clusters/{provider.cluster}"}
        (self.directory / "ca.crt").write_bytes(process_of(provider).authority())
        cluster["certificate-authority"] = str(self.directory / "ca.crt")
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": provider.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }

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
        out = self.directory / "out"
        flags = {
            "export": self._export,
            "kubeconfig": self.directory / "kubeconfig",
            "directory": self.directory / "rows",
            "secure-port": self._port,
            "tls-cert-file": self._certificates["serving.crt"],
            "tls-private-key-file": self._certificates["serving.key"],
            "requestheader-client-ca-file": self._certificates["shards.crt"],
            "allow-any-filesystem": "true",
        }
        command = [*self.command, *(f"--{name}={value}" for name, value in flags.items())]
        out.write_bytes(b"")
        self._process = launch(
            command, out, self.directory / "err", environment=self._environment, directory=self.directory
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
        return "\n".join((self.directory / "err").read_text(errors="replace").splitlines()[-30:])

    def url_of(self, name: str) -> str:
        """The URL of one of several views."""
        return f"{self.url.rpartition('/')[0]}/{name}"

    @contextlib.contextmanager
    def watch(self, name: str, path: str, user: str, timeout_s: float = 60.0) -> Iterator[http.client.HTTPResponse]:
        """An open watch at a view itself, as a shard opens it for a user; ends with the context."""
        parts = urlsplit(self.url_of(name))
        context = self._certificates.client("shard")
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)
        with contextlib.closing(connection):
            connection.request("GET", f"{parts.path}{path}?watch=1", headers={"X-Remote-User": user})
            with connection.getresponse() as response:
                assert response.status == 200, response.read()
                yield response

    def send(
        self, method: str, target: str, body: Any = None, certificate: str = "shard", **headers: str
    ) -> tuple[int, Any]:
        """Status and body of a request to a path of the process."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=60, context=self._certificates.client(certificate)
        )
        with contextlib.closing(connection):
            data = json.dumps(body) if body is not None else None
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            connection.request(method, target, body=data, headers={"Content-Type": kind, **headers})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else text

    def get(self, path: str, user: str = "", certificate: str = "shard", **headers: str) -> tuple[int, Any]:
        """Status and body of a GET at the view itself, as somebody with a certificate who speaks for a user."""
        sent = {"X-Remote-User": user, **headers} if user else dict(headers)
        target = path if path.startswith("/readyz") else urlsplit(self.url).path + path
        return self.send("GET", target, certificate=certificate, **sent)
