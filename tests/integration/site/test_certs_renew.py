"""`atoll certs renew` on a site made by `atoll certs`: every process serves its new certificate while it is asked.

The processes run on their directories as they are made, so nothing is copied and nobody is restarted.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.machinery.process.pki import make_client
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.site import credentials, layout
from atoll.standalone.site.layout import Ports
from atoll.standalone.site.processes import ProcessSpec
from harness.clients.api import eventually
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.processes import atoll
from harness.servers.site import ServingProcess, SiteProcess
from integration.site.test_rotation import Client, Files, answers, said, went_on

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TIMEOUT_S = 120.0
NATS, PROXY = "nats-0", "proxy-0"
#: The processes that serve by HTTPS, with the command of each.
COMMANDS = {
    "root": "shard",
    "eu-1": "shard",
    PROXY: "front-proxy",
    "cache-0": "cache-server",
    "gateway-0": "event-gateway",
}
#: Those that present a certificate to shards, too.
CALLERS = ("root", "eu-1", PROXY, "cache-0")
SERVING, CLIENT = "serving certificate reloaded", "client certificate reloaded"


class Nats(SiteProcess):
    """The NATS server, with its streams beside the test."""

    def __init__(self, made: Path, logs: Path, port: int) -> None:
        directory = logs.parent / "nats"
        directory.mkdir(mode=0o700)
        config = Path(shutil.copy(made / NATS / "server.conf", directory))
        config.write_text(config.read_text().replace("/var/lib/atoll/nats", str(directory)))
        super().__init__(NATS, [str(find_binary()), "-c", str(config)], logs)
        self._port = port

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False


class Reader(Client):
    """Asks one process whether it is ready."""

    def __init__(self, site: Any, process: ServingProcess, *, keeps: bool) -> None:
        super().__init__(site, process.name, keeps=keeps)
        self._files, self._url = Files(site, "shard-admin"), process.url

    def _once(self, connection: http.client.HTTPSConnection) -> None:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        response.read()
        assert response.status == 200


class CertsSite:
    """The site, with what `ServingProcess` and the clients want of one."""

    def __init__(self, directory: Path) -> None:
        self.logs, self.ports = directory / "logs", Ports("127.0.0.1")
        self.logs.mkdir()
        self.layout = layout.of(str(directory / "certs"))
        at = {name: self.ports.reserve(0) for name in (*COMMANDS, NATS)}
        specs = [f"{kind}/{name}=127.0.0.1:{at[name]}" for name, kind in {**COMMANDS, NATS: "nats-server"}.items()]
        self.certs("init", "--external-url", f"https://127.0.0.1:{at[PROXY]}", *specs)
        cas = credentials.authorities(self.layout)
        self._trusted, self._clients = cas.serving.certificate, cas.clients
        self.nats = Nats(self.layout.root, self.logs, at[NATS])
        self.serving = {name: self._process(directory, name, port) for name, port in at.items() if name != NATS}
        self.proxy = self.serving[PROXY]

    def _process(self, directory: Path, name: str, port: int) -> ServingProcess:
        flags = ["--config", str(self.layout.root / name / "settings.yaml"), "--secure-port", str(port)]
        store = str(directory / "stores" / name)
        if COMMANDS[name] == "event-gateway":
            flags += ["--directory", store]
        else:
            flags += ["--root-directory", store, "--allow-any-filesystem", "true"]
        site: Any = self
        return ServingProcess(site, ProcessSpec(name, (COMMANDS[name], *flags), f"https://127.0.0.1:{port}"))

    def certs(self, command: str, *arguments: str) -> None:
        ran = atoll("certs", command, "--directory", str(self.layout.root), *arguments)
        assert ran.code == 0, ran.stderr

    def certificate(self, user: str, *groups: str) -> Pair:
        return make_client(self._clients, user, groups)

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        return client_context(self._trusted, pair)

    @property
    def processes(self) -> list[SiteProcess]:
        return [self.nats, *self.serving.values()]

    def serial(self, name: str) -> int:
        port = int(self.serving[name].url.rpartition(":")[2])
        return Pair(ssl.get_server_certificate(("127.0.0.1", port)).encode(), b"").x509.serial_number

    def serials(self) -> dict[str, int]:
        return {name: self.serial(name) for name in self.serving}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[CertsSite]:
    site = CertsSite(tmp_path)
    try:
        for process in site.processes:
            process.spawn()
        for process in site.processes:
            process.wait_ready()
        yield site
    finally:
        for process in reversed(site.processes):
            process.stop()
        site.ports.close()


@pytest.fixture
def clients(site: CertsSite) -> Iterator[list[Client]]:
    """Clients in a workspace of each shard, and others at each process without workspaces."""
    known: Any = SimpleNamespace(layout=site.layout, proxy=site.proxy)
    root = site.proxy.api("root")
    found: list[Client] = []
    for shard in ("root", "eu-1"):
        path = f"root:{ready(root, workspace(root, selector=on(shard)))['metadata']['name']}"
        eventually(partial(answers, known, path), path, TIMEOUT_S)
        found += [Client(known, path, keeps=keeps) for keeps in (True, False)]
    found += [
        Reader(known, site.serving[name], keeps=keeps) for name in ("cache-0", "gateway-0") for keeps in (True, False)
    ]
    for client in found:
        client.start()
    yield found
    for client in found:
        client.stop()


def test_every_process_serves_what_was_renewed_and_no_request_fails(site: CertsSite, clients: list[Client]) -> None:
    pids = {each.name: each.pid for each in site.processes}

    def differs(name: str, serial: int) -> bool:
        return site.serial(name) != serial

    def load_goes_on() -> None:
        before = [client.done for client in clients]
        for client, count in zip(clients, before, strict=True):
            eventually(partial(went_on, client, count), "load", TIMEOUT_S)
        assert [failure for client in clients for failure in client.failures] == []

    def renewed(*names: str) -> None:
        """Renew, and return once each process serves its new certificate and presents it."""
        serials = site.serials()
        calls = {name: site.serving[name].log().count(CLIENT) for name in CALLERS if name in names}
        site.certs("renew", *(names if len(names) == 1 else ("all",)))
        for name in names:
            eventually(partial(differs, name, serials[name]), f"{name} serves the new one", TIMEOUT_S)
        for name, count in calls.items():
            eventually(partial(said, site.serving[name], CLIENT, count), f"{name} presents the new one", TIMEOUT_S)
        load_goes_on()
        others = [name for name in site.serving if name not in names]
        assert {name: site.serial(name) for name in others} == {name: serials[name] for name in others}

    load_goes_on()
    for name in site.serving:
        renewed(name)
    renewed(*site.serving)
    assert {each.name: each.pid for each in site.processes if each.running} == pids, "nobody was restarted"
    assert not any("Traceback" in each.log() for each in site.processes)
