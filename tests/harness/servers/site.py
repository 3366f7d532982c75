"""A real site: NATS, a root shard, more shards and a front proxy, each a process that a test may stop, kill and start.

    with Site(tmp_path, shards=3) as site:
        site.proxy.api("root").get(...)                    # kcp-admin, by the proxy
        site.root.api("root", "shard-admin")               # straight to a shard, with a client certificate
        site.shards["shard-1"].kill(); site.shards["shard-1"].start()
        site.nats.stop(); site.nats.delete_store(); site.nats.start()

In async tests `async with` does the waiting in a thread. Everything is made and told as `atoll start --shards` makes
and tells it (`standalone.site`); only that here nobody starts again what died. Entering waits until all are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from atoll.machinery.apiserver.authorization.groups import (
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    KCP_ADMIN,
    LOGICAL_CLUSTER_ADMIN,
)
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process.pki import make_client
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.stream.server.config import STREAMS_BYTES, ListenOptions, NatsUser, TenantOptions, server_config
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.edge_service import edge_users
from atoll.standalone.site import credentials, layout, processes, runner
from atoll.standalone.site.gateways import tenant_options
from atoll.standalone.site.layout import NATS, PROXY, Layout, Ports
from atoll.standalone.site.processes import ProcessSpec, StartConfig
from harness.clients.api import PATIENCE_S, Api
from harness.servers.launch import Process, launch
from harness.waits import source_of

START_TIMEOUT_S, STOP_TIMEOUT_S = 150.0, 60.0
#: Users with a certificate, and their groups; any other user of `api` has none.
GROUPS = {
    "kcp-admin": (KCP_ADMIN,),
    "shard-admin": (MASTERS,),
    "logical-cluster-admin": (LOGICAL_CLUSTER_ADMIN,),
    "external-logical-cluster-admin": (EXTERNAL_LOGICAL_CLUSTER_ADMIN,),
}


class ProcessFailed(AssertionError):
    """A process ended, or was not ready in time; carries the end of its log."""


class Endpoint:
    """A process as one user reaches it, for `Api`."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.url, self._context = url, context

    def token(self, user: str = "") -> str:
        """Raise: users have certificates, not tokens."""
        raise AssertionError(f"{user} has no token: sites know users by certificate")

    def tls(self) -> ssl.SSLContext:
        return self._context


class SiteProcess:
    """One process of a site; only this class starts and stops it."""

    def __init__(self, name: str, command: Sequence[str], logs: Path) -> None:
        self.name, self.command = name, list(command)
        self.out_path, self.log_path = logs / f"{name}.out", logs / f"{name}.err"
        #: What is set for it besides (`harness.servers.mutant_shard`).
        self.environment: dict[str, str] = {}
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start it without waiting."""
        assert not self.running, f"{self.name} runs"
        self._process = launch(
            self.command, self.out_path, self.log_path, environment=self.environment, directory=Path.cwd()
        )

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it is ready."""
        self.spawn()
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it is ready. Raises ProcessFailed if it ends before, or takes longer."""
        self.until(self.is_ready, timeout_s)

    def is_ready(self) -> bool:
        """Whether it reports that it is ready."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until a condition holds; fails if it does not in time, or if the process ends."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if not self.running:
                raise ProcessFailed(f"{self.name} ended:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name}: not after {timeout_s} s: {source_of(condition)}\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> int:
        """SIGTERM; the exit code. Harmless if it does not run."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL, as a crash would; returns when it is gone."""
        return self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop if it runs, and start again."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP, as a pause of the machine would: connections stay open and get no answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Its log, over all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
            # A frozen process handles no other signal.
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ProcessFailed(f"{self.name} is still there after {number.name}:\n{self.log_tail()}") from None


class ServingProcess(SiteProcess):
    """A shard or the proxy."""

    def __init__(self, site: Site, member: ProcessSpec) -> None:
        super().__init__(member.name, [sys.executable, "-m", "atoll.cli", *member.arguments], site.logs)
        self.url, self._site = member.url, site

    def api(self, cluster: str = "", user: str = "kcp-admin", *groups: str) -> Api:
        """A user's requests to this process, by client certificate; user "" is anonymous. Groups: see GROUPS."""
        return Api(self.endpoint(user, *groups), cluster, "", patience_s=PATIENCE_S)

    def endpoint(self, user: str = "", *groups: str) -> Endpoint:
        """This process as a user with a certificate sees it; user "" presents none."""
        pair = self._site.certificate(user, *(groups or GROUPS.get(user, ()))) if user else None
        return Endpoint(self.url, self._site.context(pair))

    def with_token(self, token: str, cluster: str = "") -> Api:
        """A user's requests with a bearer token."""
        return Api(Endpoint(self.url, self._site.context()), cluster, "", token, PATIENCE_S)

    def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, bytes]:
        """Status and body of an anonymous GET."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout_s, context=self._site.context()
        )
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


class NatsProcess(SiteProcess):
    """The NATS server of the site."""

    def __init__(self, site: Site, users: Sequence[NatsUser]) -> None:
        directory, port = site.layout.nats, site.plan.ports[NATS]
        directory.mkdir(mode=0o700, exist_ok=True)
        self._listen = ListenOptions(directory, "127.0.0.1", port, len(site.plan.shards) * STREAMS_BYTES)
        self.config = directory / "server.conf"
        self.configure(users, tenant_options(site.layout.pki, site.plan.shards))
        super().__init__(NATS, [str(find_binary()), "-c", str(self.config)], site.logs)
        self.url, self._directory, self._port = f"nats://127.0.0.1:{port}", directory, port

    def configure(self, users: Sequence[NatsUser], tenants: TenantOptions | None = None, leaves: str = "") -> None:
        """Write the configuration for these users, and for tenants; at `leaves` regions join."""
        self.users = list(users)
        listen = msgspec.structs.replace(self._listen, leaves=leaves)
        self.config.write_bytes(server_config(listen, users, tenants))

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5.0) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    def delete_store(self) -> None:
        """Only while stopped."""
        assert not self.running
        shutil.rmtree(self._directory / "store")


class Site:
    """A whole site. `shards` holds all of them by name, the root shard too."""

    def __init__(self, directory: Path, shards: int = 3, *, proxy: bool = True, flags: dict[str, object] | None = None):
        """`flags` are settings of `atoll start`, as field names; `proxy` False leaves it out."""
        self.logs = directory / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.layout: Layout = layout.of(str(directory / "site"))
        self._config = StartConfig(
            root_directory=str(self.layout.root),
            secure_port=0,
            allow_any_filesystem=True,
            shards=shards,
            **(flags or {}),  # type: ignore[arg-type]
        )
        self._ports = Ports("127.0.0.1")
        self.plan = runner.plan(self.layout, self._config, self._ports)
        edge = edge_users(self._config.edge_processes)
        users = runner.prepare(self.layout, self.plan, self._config.shard, edge)
        self._given = credentials.authorities(self.layout)
        self._contexts: dict[Pair | None, ssl.SSLContext] = {}
        self._certificates: dict[tuple[str, tuple[str, ...]], Pair] = {}
        self.authority = self._given.serving.certificate
        self.kubeconfig = self.layout.root / "admin.kubeconfig"
        self.nats = NatsProcess(self, users)
        found = {
            m.name: ServingProcess(self, m) for m in processes.process_specs(self.layout, self.plan, self._config.shard)
        }
        self.proxy = found.pop(PROXY)
        self.shards: dict[str, ServingProcess] = found
        self.root = found[ROOT]
        #: Lets subscribers of events in. A test that needs it starts it, and stops it.
        self.gateway = ServingProcess(self, processes.gateway_spec(self.layout, self.plan, self._config.shard))
        self._has_proxy = proxy

    @property
    def processes(self) -> list[SiteProcess]:
        """All of them, in an order in which they can be ended."""
        shards = [shard for name, shard in self.shards.items() if name != ROOT]
        return [*([self.proxy] if self._has_proxy else []), *shards, self.root, self.nats]

    def __enter__(self) -> Site:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Site:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def start(self) -> None:
        """Start everything that does not run, and wait until all are ready. Raises ProcessFailed."""
        try:
            for process in reversed(self.processes):
                if not process.running:
                    process.spawn()
            for process in reversed(self.processes):
                process.wait_ready()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Stop everything, even if some processes fail to stop."""
        with contextlib.ExitStack() as stack:
            for process in (*reversed(self.processes), self.gateway):
                stack.callback(process.stop)

    def close(self) -> None:
        """Stop everything, and give the ports back."""
        try:
            self.stop()
        finally:
            self._ports.close()

    def certificate(self, user: str, *groups: str) -> Pair:
        """A user's certificate of the site's client authority; the same one each time."""
        found = self._certificates.get((user, groups))
        if found is None:
            found = self._certificates[user, groups] = make_client(self._given.clients, user, groups)
        return found

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Trusts the site's servers and nobody else's; presents the certificate, if one is given."""
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = client_context(self.authority, pair)
        return found


def site(directory: Path, shards: int = 3, *, proxy: bool = True, **flags: object) -> Site:
    """A site to enter, with settings of `atoll start` by field name."""
    return Site(directory, shards, proxy=proxy, flags=flags)
