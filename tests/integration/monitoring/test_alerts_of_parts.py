"""Alerts whose causes are a slow disk, a clock, a file, a client or silence: the part that shows them, in process."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from atoll.edge.heartbeats import SILENT_S, heartbeat_status
from atoll.edge.target_metrics import TargetMetrics
from atoll.machinery.apiserver.serving.audit import COMPLETE, AuditLog, Event, UserInfo
from atoll.machinery.apiserver.serving.audit_metrics import AuditMetrics
from atoll.machinery.process import pki
from atoll.machinery.process import tls as contexts
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.storage.clock import MAX_STEP_S, Clock
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.metrics import ServerMetrics
from atoll.machinery.wire.server import Server
from atoll.shard.config import ShardConfig
from atoll.shard.store_metrics import StoreMetrics
from harness.clients.prometheus import begun_to_fire
from harness.clients.raw_http import until
from harness.data.stores import key, put, store_options

pytestmark = pytest.mark.long


def exposition(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.step_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.step_s


@contextlib.asynccontextmanager
async def measured(directory: Path, wall: Wall | None = None, **options: Any) -> AsyncIterator[tuple[LmdbStore, Any]]:
    """A store and its metrics."""
    store, registry = open_store(store_options(directory, **options), clock=Clock(wall or Wall())), CollectorRegistry()
    StoreMetrics(store, registry)
    try:
        yield store, registry
    finally:
        await store.close()


async def test_a_step_of_the_wall_clock_fires_until_it_is_back(tmp_path: Path) -> None:
    wall = Wall()
    async with measured(tmp_path / "store", wall) as (_, registry):
        before = exposition(registry)
        wall.step_s = -2 * MAX_STEP_S
        refused = exposition(registry)
        wall.step_s = 0.0
        after = exposition(registry)
    assert "atoll_clock_refused_step_seconds 0.0" in after
    assert begun_to_fire([before, refused])["AtollClockRefused"] == 1
    assert "AtollClockRefused" not in begun_to_fire([before, after])


class SlowDisk:
    """LMDB on a disk that takes 200 ms for each durable write."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def begin(self, *arguments: Any, **options: Any) -> Any:
        found = self._environment.begin(*arguments, **options)
        return SlowTransaction(found) if options.get("write") and not options.get("parent") else found


class SlowTransaction:
    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    def __enter__(self) -> Any:
        return self._transaction.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        time.sleep(0.2)
        return self._transaction.__exit__(kind, error, trace)


async def test_slow_durable_writes_fire(tmp_path: Path) -> None:
    async with measured(tmp_path / "store") as (store, registry):
        texts: list[str] = []
        for number in range(12):
            if number == 4:
                assert "AtollSyncSlow" not in begun_to_fire(texts)
                slow: Any = SlowDisk(store._environment.env)
                store._environment.env = slow
            store.space._measured_at = float("-inf")
            await store.submit([put(key(f"o{number}"))])
            texts.append(exposition(registry))
        assert begun_to_fire(texts)["AtollSyncSlow"] == 1


def event(verb: str) -> Event:
    now = "2026-11-27T00:00:00.000000Z"
    return Event(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id="a",
        stage=COMPLETE,
        request_uri="/",
        verb=verb,
        user=UserInfo("u"),
        request_received_timestamp=now,
        stage_timestamp=now,
    )


async def test_an_audit_log_that_cannot_be_written_fires() -> None:
    # Each write to this file fails, as on a full disk.
    audit, registry = AuditLog("/dev/full", max_events=1), CollectorRegistry()
    AuditMetrics(audit, registry)
    before = exposition(registry)
    audit.record(event("create"))
    audit.record(event("get"))
    await until(lambda: audit.failed_writes, "a write fails")
    texts = [before, *(exposition(registry) for _ in range(2))]
    audit.close()
    assert (audit.waiting, audit.dropped) == (1, 1)
    assert begun_to_fire(texts) == {"AtollAuditStopped": 1}


def test_certificates_fire_two_weeks_and_two_days_before_their_end(tmp_path: Path) -> None:
    authority, path = pki.make_ca("ca"), tmp_path / "proxy.crt"
    texts = []
    for days in (30, 10, 1):
        path.write_bytes(pki.make_serving(authority, ["localhost"], days=days).certificate)
        registry = CollectorRegistry()
        CertificateExpiry(ShardConfig(tls_cert_file=str(path), tls_private_key_file=str(path)), registry)
        texts.append(exposition(registry))
    assert begun_to_fire(texts[:1]) == {}
    assert begun_to_fire(texts[:2]) == {"AtollCertificateEnds": 1}
    assert begun_to_fire(texts[1:]) == {"AtollCertificateEnds": 1, "AtollCertificateEndsSoon": 1}


def flood(exchange: Exchange) -> None:
    """More than a stream may hold."""
    exchange.start(200, ())
    for _ in range(64):
        exchange.write(bytes(1 << 20))


class Served:
    """A server with TLS and its metrics."""

    def __init__(self) -> None:
        authority = pki.make_ca("ca")
        serving = pki.make_serving(authority, ["127.0.0.1"])
        self.trusted = contexts.client_context(authority.certificate)
        self._server = Server(flood, Limits(), contexts.server_context(serving, b""))
        self.registry, self.port = CollectorRegistry(), 0
        ServerMetrics(self._server, self.registry)

    async def __aenter__(self) -> Self:
        self.port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.drain(0)

    async def cut(self) -> None:
        """Be a client that does not read. Return once it is cut."""
        before = self._server.counts.cut_clients
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusted)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: self._server.counts.cut_clients > before, "it is cut")
        writer.transport.abort()
        del reader

    async def distrust(self) -> None:
        """Be a client that does not trust the server. Return once the server has seen it."""
        before = self._server.counts.failed_handshakes
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", self.port, ssl=ssl.create_default_context())
        await until(lambda: self._server.counts.failed_handshakes > before, "its handshake fails")


async def test_clients_that_do_not_read_fire() -> None:
    async with Served() as served:
        texts = [exposition(served.registry)]
        for _ in range(8):
            await served.cut()
            texts.append(exposition(served.registry))
    assert begun_to_fire(texts[:3], every_s=30) == {}
    assert begun_to_fire(texts, every_s=30) == {"AtollClientsCut": 1}


async def test_handshakes_that_fail_fire() -> None:
    async with Served() as served:
        texts = [exposition(served.registry)]
        for _ in range(20):
            for _ in range(6):
                await served.distrust()
            texts.append(exposition(served.registry))
    assert begun_to_fire(texts[:1]) == {}
    assert begun_to_fire(texts, every_s=45) == {"AtollHandshakesFail": 1}


def test_edge_clusters_that_are_silent_fire_and_new_ones_do_not() -> None:
    now_s, registry = time.time(), CollectorRegistry()
    targets: list[dict[str, Any]] = [{"status": heartbeat_status({}, now_s, now_s)}, {}]
    TargetMetrics(lambda: targets, registry)
    before = exposition(registry)
    targets[0] = {"status": heartbeat_status(targets[0]["status"], now_s, now_s + SILENT_S)}
    assert begun_to_fire([before]) == {}
    assert begun_to_fire([before, exposition(registry)]) == {"AtollEdgeSilent": 1}
