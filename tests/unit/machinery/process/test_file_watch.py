"""Client certificates that are read again when their files change."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.process import file_watch
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.process.file_watch import ClientFiles, client_files, renew_clients, renew_server
from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.private_files import write_pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.wire.idle_pool import IdlePool, PooledConnection
from harness.waits import until

CA = make_ca("ca")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "CHECK_EVERY_S", 0.01)


def files(directory: Path) -> ClientFiles:
    write_pair(directory, "client", make_client(CA, "one"))
    (directory / "ca.crt").write_bytes(CA.certificate)
    return client_files(*(str(directory / name) for name in ("client.crt", "client.key", "ca.crt")))


@asynccontextmanager
async def renewing(*clients: ClientFiles) -> AsyncIterator[None]:
    task = asyncio.create_task(renew_clients(clients))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def renewals(client: ClientFiles, count: int) -> None:
    async def reached() -> bool:
        return client.context.renewals == count

    await until(reached, f"{count} renewals")


async def test_a_context_is_replaced_once_its_files_belong_together(tmp_path: Path) -> None:
    client, other = files(tmp_path), make_client(CA, "two")
    async with renewing(client):
        (tmp_path / "client.crt").write_bytes(other.certificate)
        (tmp_path / "ca.crt").write_bytes(make_ca("another").certificate + CA.certificate)
        (tmp_path / "client.key").write_bytes(other.key)
        await renewals(client, 1)


async def test_files_that_cannot_be_used_change_nothing_and_what_follows_them_counts(tmp_path: Path) -> None:
    client, looked = files(tmp_path), asyncio.Event()

    def make() -> object:
        looked.set()
        return client.make()

    async with renewing(ClientFiles(client.files, client.context, make)):  # type: ignore[arg-type]
        (tmp_path / "client.key").write_text("no key")
        await asyncio.wait_for(looked.wait(), 60)
        assert client.context.renewals == 0
        (tmp_path / "client.crt").unlink()
        write_pair(tmp_path, "client", make_client(CA, "three"))
        await renewals(client, 1)


def test_the_earliest_end_of_each_file_is_a_metric_and_files_that_are_not_there_have_none(tmp_path: Path) -> None:
    write_pair(tmp_path, "serving", make_client(CA, "serving", days=20))
    pem = make_client(CA, "later").certificate + make_client(CA, "soon", days=3).certificate
    (tmp_path / "ca.crt").write_bytes(pem)
    (tmp_path / "kubeconfig").write_text("users: [1]")
    registry = CollectorRegistry()
    config = FrontProxyConfig(
        mapping_file="m",
        tls_cert_file=str(tmp_path / "serving.crt"),
        tls_private_key_file=str(tmp_path / "serving.key"),
        client_ca_file=(str(tmp_path / "none.crt"), str(tmp_path / "ca.crt")),
        mount_proxy_ca_file=str(tmp_path / "kubeconfig"),
    )
    CertificateExpiry(config, registry)
    found = {
        sample.labels["setting"]: round((sample.value - time.time()) / 86400)
        for family in registry.collect()
        for sample in family.samples
    }
    assert found == {"tls-cert-file": 20, "client-ca-file-1": 3}


async def test_a_listener_takes_a_serving_certificate_with_its_key_alone(tmp_path: Path) -> None:
    write_pair(tmp_path, "serving", make_serving(CA, ["localhost"]))
    used: list[ssl.SSLContext] = []
    pair = str(tmp_path / "serving.crt"), str(tmp_path / "serving.key")
    task = asyncio.create_task(renew_server(*pair, "", used.append))
    await asyncio.sleep(0)
    other = make_serving(CA, ["localhost"])
    (tmp_path / "serving.crt").write_bytes(other.certificate)
    (tmp_path / "serving.key").write_bytes(other.key)

    async def taken() -> bool:
        return len(used) == 1

    await until(taken, "a new context")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Connection(PooledConnection):
    @property
    def reusable(self) -> bool:
        return True

    def abort(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def still_quiet(self) -> bool:
        return True


def test_a_connection_with_a_certificate_from_before_is_used_for_no_further_request() -> None:
    context = client_context(CA.certificate)
    pool: IdlePool[Connection] = IdlePool(4, context)
    idle, busy, later = Connection(), Connection(), Connection()
    pool.put(idle, 0.0)
    context.replace(client_context(CA.certificate))
    assert pool.take() is None
    pool.put(busy, 0.0)
    assert (idle.closed, busy.closed, len(pool)) == (True, True, 0)
    later.renewals = context.renewals
    pool.put(later, 0.0)
    assert pool.take() is later
