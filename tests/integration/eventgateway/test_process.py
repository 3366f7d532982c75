"""`atoll event-gateway` with the files of `atoll nats-config`, at a server of an operator."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from atoll.cli.atoll import main
from atoll.machinery.apiserver.authentication import event_tokens
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import make_rsa_key, public_key_pem
from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.server.embedded import find_binary
from atoll.machinery.stream.tenants.connection_kicks import probe
from atoll.machinery.stream.tenants.key_files import read_gateway_keys, read_subscription_keys
from atoll.standalone.site.layout import Ports
from harness.clients.api import eventually
from harness.servers.event_gateway import EventGateway
from harness.servers.tenant_server import RawClient
from harness.waits import until


class Operated:
    """A server that an operator runs with the files of `atoll nats-config`."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.url, self._port = directory / "nats", f"nats://127.0.0.1:{port}", port
        pem = make_rsa_key()
        self.keys: KeySet = load_keys(pem)
        self.public_key = directory / "sa.pub"
        self.public_key.write_bytes(public_key_pem(pem))
        self._process: asyncio.subprocess.Process | None = None

    def configure(self, shards: str, *gateways: str) -> None:
        flags = ["--shards", shards, "--port", str(self._port), "--nats-url", "nats://outside.example.com:4222"]
        flags += ["--event-gateways", ",".join(gateways)] if gateways else []
        assert main.run(["nats-config", "--directory", str(self.directory), *flags]) == 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(str(find_binary()), "-c", self.configuration)
        await until(self._listens, "the server is there")

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        return True

    @property
    def configuration(self) -> str:
        return str(self.directory / "server.conf")

    def written(self) -> Object:
        found: Object = msgspec.json.decode(Path(self.configuration).read_bytes())
        return found

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()

    async def connected(self, user: str) -> bool:
        """Whether a user connects; a gateway: to a server that has subscribers."""
        try:
            access = read_access(self.url, str(self.directory / f"nats-{user}.json"))
            connection = await Connection.open(access, "test")
        except Unavailable:
            return False
        try:
            if user.startswith("gateway"):
                await probe(connection)
        except Unavailable:
            # While the server reads its configuration again, a request may be lost.
            return False
        finally:
            await connection.close()
        return True

    def gateway_flags(self, user: str, url: str = "") -> list[str]:
        values = {
            "nats-url": url or self.url,
            "nats-credentials-file": self.directory / f"nats-{user}.json",
            "keys-file": self.directory / "event-gateway-keys.json",
            "service-account-key-file": self.public_key,
        }
        return [f"--{name}={value}" for name, value in values.items()]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Operated]:
    ports = Ports("127.0.0.1")
    server = Operated(tmp_path, ports.reserve(0))
    yield server
    await server.stop()
    ports.close()


async def test_a_gateway_serves_health_to_all_metrics_to_administrators_and_lets_subscribers_in(
    server: Operated, tmp_path: Path
) -> None:
    server.configure("root,eu-1", "gateway-0")
    await server.start()
    token = event_tokens.issue(server.keys, "ann", "", time.time()).text

    def work() -> None:
        with EventGateway(tmp_path / "gateway", *server.gateway_flags("gateway-0")) as gateway:
            eventually(lambda: gateway.get("/readyz") == (200, "ok"), "the gateway is ready")
            assert gateway.get("/livez")[0] == 200
            assert gateway.get("/metrics")[0] == 403
            assert gateway.get("/metrics", "system:authenticated")[0] == 403
            for path in ("/", "/api", "/services/events/clusters/root/subscriptions", "/metrics/x"):
                assert gateway.get(path)[0] == 404
            asyncio.run(_enter(server, token))
            status, metrics = gateway.get("/metrics", "system:masters")
            assert (status, 'atoll_event_gateway_connects_total{result="admitted"} 1.0' in metrics) == (200, True)

    await asyncio.to_thread(work)


async def _enter(server: Operated, token: str) -> None:
    (await RawClient.open(server.url, auth_token=token)).close()


@pytest.mark.long
async def test_a_gateway_and_a_shard_more_are_a_reload_of_the_server(server: Operated) -> None:
    server.configure("root", "gateway-0")
    before = server.written()
    await server.start()
    access = read_access(server.url, str(server.directory / "nats-shard-root.json"))
    held = await Connection.open(access, "test")
    server.configure("root,eu-1", "gateway-0", "gateway-1")
    after = server.written()
    assert after["authorization"] == before["authorization"]
    assert not await server.connected("gateway-1")
    server.reload()
    for user in ("gateway-1", "shard-eu-1", "gateway-0"):
        await until(lambda user=user: server.connected(user), f"{user} connects")  # type: ignore[misc]
    await held.close()


@pytest.mark.long
async def test_a_gateway_whose_user_the_server_does_not_know_is_alive_and_not_ready(
    server: Operated, tmp_path: Path
) -> None:
    server.configure("root")
    await server.start()
    server.configure("root", "gateway-0")

    def work() -> None:
        with EventGateway(tmp_path / "gateway", *server.gateway_flags("gateway-0")) as gateway:
            assert gateway.get("/livez")[0] == 200
            status, text = gateway.get("/readyz")
            assert (status, "[-]nats-connection failed" in text) == (500, True)

    await asyncio.to_thread(work)


def test_shards_get_the_key_of_names_and_the_address_and_not_the_keys_that_answer(tmp_path: Path) -> None:
    server = Operated(tmp_path, 4222)
    server.configure("root", "gateway-0")
    keys = read_gateway_keys(server.directory / "event-gateway-keys.json")
    given = read_subscription_keys(server.directory / "event-subscriptions.json")
    assert (given.names, given.servers, given.ca) == (keys.names, ("nats://outside.example.com:4222",), "")
    server.configure("root,eu-1", "gateway-0", "gateway-1")
    assert read_gateway_keys(server.directory / "event-gateway-keys.json") == keys
    for path in server.directory.iterdir():
        if path.name != "event-gateway-keys.json":
            assert keys.issuer not in path.read_text()
            assert keys.box not in path.read_text()
